package proxy

import (
	"testing"
	"time"
)

// The end of a tunnel that is passed on unread, where no turns are kept, tells the pacer what came of it. No request of a
// fetcher is there to be asked how long it waits.
func TestOpaqueMaxWait(t *testing.T) {
	p := &Profile{}
	p.Pacing.MaxWait = time.Minute
	x := &exchange{profile: p, began: time.Now()}
	if w := x.maxWait(); w <= 0 || w > time.Minute {
		t.Errorf("it waits %s", w)
	}
}
