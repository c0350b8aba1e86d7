package proxy

import (
	"context"
	"testing"
)

// A site may end a chunked body in good form when it sees our side close. That end is not the body's own.
func TestWhole(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		left  int64
		ctx   context.Context
		whole bool
	}{
		{0, context.Background(), true},
		{0, ended, true},
		{-1, context.Background(), true},
		{-1, ended, false},
		{7, context.Background(), false},
		{7, ended, false},
	} {
		b := &body{left: c.left, x: &exchange{sending: c.ctx}}
		if got := b.whole(); got != c.whole {
			t.Errorf("%d bytes left, ended by us %v: whole %v", c.left, c.ctx.Err() != nil, got)
		}
	}
}
