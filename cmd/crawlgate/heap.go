package main

import (
	"os"
	"runtime"
	"runtime/debug"
	rtmetrics "runtime/metrics"
	"sync"
)

// heapFloor is the size up to which the heap may grow before the collector runs. By itself Go's collector runs whenever
// the heap has doubled: for a gate that knows few sites that is every few hundred requests, and a tenth of its processor
// time. Past half of the floor the usual rule holds.
const heapFloor = 32 << 20

// gcPercent is the setting of GOGC that lets a heap with so many live bytes grow to the floor.
func gcPercent(live uint64) int {
	if live >= heapFloor/2 {
		return 100
	}
	return int(min(1000, (heapFloor-live)*100/max(live, 1)))
}

// keepHeapFloor sets the collector by the live heap after each of its cycles, unless the operator has set it (GOGC), or
// the memory that may be used (GOMEMLIMIT).
var keepHeapFloor = sync.OnceFunc(func() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	last := 100
	sample := []rtmetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var next func(*cycle)
	next = func(c *cycle) {
		rtmetrics.Read(sample)
		if p := gcPercent(sample[0].Value.Uint64()); p*10 < last*9 || p*9 > last*10 {
			debug.SetGCPercent(p) // stops the world for a moment: only where it matters
			last = p
		}
		runtime.SetFinalizer(c, next)
	}
	runtime.SetFinalizer(&cycle{}, next)
})

// cycle is garbage at once: its finalizer runs after each collection. It holds a pointer, since the runtime puts small
// objects without any together, where they live as long as their neighbours.
type cycle struct{ _ *byte }
