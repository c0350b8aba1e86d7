package pacing

import (
	"reflect"
	"testing"
)

// TestAllocations holds what a turn without waiting may allocate.
func TestAllocations(t *testing.T) {
	p, err := newPacer(Defaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Key: "www.one-hot-host.example", Client: "team-a", URL: "https://www.one-hot-host.example/a/page"}
	for _, c := range []struct {
		name string
		most float64
		do   func()
	}{
		{"turn", 1, func() { mustAcquire(t, p, r).Done(okay) }},
		{"turn of host and domain", 2, func() {
			r := r
			r.DomainKey = "one-hot-host.example"
			mustAcquire(t, p, r).Done(okay)
		}},
	} {
		if got := testing.AllocsPerRun(1000, c.do); got > c.most {
			t.Errorf("%s: %v allocations, at most %v", c.name, got, c.most)
		}
	}
}

// TestSizes holds the sizes that a million hosts are paid with: an entry in its size class, a shard in whole cache lines.
func TestSizes(t *testing.T) {
	if n := reflect.TypeFor[entry]().Size(); n > 160 {
		t.Errorf("an entry has %d bytes", n)
	}
	if n := reflect.TypeFor[shard]().Size(); n%64 != 0 {
		t.Errorf("a shard has %d bytes", n)
	}
}
