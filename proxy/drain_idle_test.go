package proxy

import (
	"context"
	"testing"
	"time"
)

// TestDrainAsItFallsIdle: a tunnel whose request ends in the moment in which the gate begins to drain does not hold it up
// for its idle time.
func TestDrainAsItFallsIdle(t *testing.T) {
	for range 30 {
		r := newRig(t)
		o := r.origin("site.test", true, "", hello)
		r.start(rigOptions{rules: func(ru *Rules) { ru.Server.Idle = time.Minute }})
		c := r.client(false)
		r.get(c, o.url("https", "/"))
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		began := time.Now()
		if err := r.gate.Shutdown(ctx); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		stop()
	}
}
