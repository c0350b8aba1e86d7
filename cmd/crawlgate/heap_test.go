package main

import (
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 8 << 20: 300, 12 << 20: 166, 16 << 20: 100, 1 << 34: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d live bytes: %d, want %d", live, got, want)
		}
	}
}

// A small heap is collected seldom, unless the operator has set how often.
func TestHeapFloor(t *testing.T) {
	t.Parallel()
	g := startGate(t, gateConfig{})
	within(t, 20*time.Second, "the collector waits for more", func() bool { return g.metric(t, "go_gc_gogc_percent") > 100 })
	for _, set := range []string{"GOGC=70", "GOMEMLIMIT=1GiB"} {
		g := startGate(t, gateConfig{env: []string{set}})
		want := 100.0
		if set == "GOGC=70" {
			want = 70
		}
		within(t, 20*time.Second, "the collector ran", func() bool { return g.metric(t, "go_gc_duration_seconds_count") > 0 })
		if got := g.metric(t, "go_gc_gogc_percent"); got != want {
			t.Errorf("%s: %v", set, got)
		}
	}
}
