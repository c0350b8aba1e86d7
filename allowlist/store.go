package allowlist

import (
	"sync"
	"time"
)

// evidence keeps what the gate saw, by key, for a fixed life per kind: bounded, oldest first out.
type evidence[V any] struct {
	mu    sync.Mutex
	max   int
	byKey map[string]*item[V]
	rings []item[V]       // one list per kind, oldest next to the root; a fixed life keeps each in order of expiry
	lives []time.Duration // by kind
}

type item[V any] struct {
	prev, next *item[V]
	key        string
	kind       int
	seen       time.Time
	value      V
}

func newEvidence[V any](limit int, lives ...time.Duration) *evidence[V] {
	e := &evidence[V]{max: limit, byKey: map[string]*item[V]{}, rings: make([]item[V], len(lives)), lives: lives}
	for i := range e.rings {
		e.rings[i].prev, e.rings[i].next = &e.rings[i], &e.rings[i]
	}
	return e
}

// get gives the value of a key that is still alive.
func (e *evidence[V]) get(key []byte, now time.Time) (v V, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	it := e.byKey[string(key)]
	if it == nil {
		return v, false
	}
	if now.Sub(it.seen) >= e.lives[it.kind] {
		e.drop(it)
		return v, false
	}
	return it.value, true
}

// put stores a value, or gives the key a new life. merge, if not nil, combines a living value with the new one.
func (e *evidence[V]) put(key []byte, kind int, v V, now time.Time, merge func(old, fresh V) V) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if it := e.byKey[string(key)]; it != nil {
		if merge != nil && now.Sub(it.seen) < e.lives[it.kind] {
			v = merge(it.value, v)
		}
		e.drop(it)
	}
	for kind := range e.rings {
		for it := e.rings[kind].next; it != &e.rings[kind] && now.Sub(it.seen) >= e.lives[kind]; it = e.rings[kind].next {
			e.drop(it)
		}
	}
	if len(e.byKey) >= e.max {
		var oldest *item[V]
		for kind := range e.rings {
			if it := e.rings[kind].next; it != &e.rings[kind] && (oldest == nil || it.seen.Before(oldest.seen)) {
				oldest = it
			}
		}
		if oldest != nil {
			e.drop(oldest)
		}
	}
	it := &item[V]{key: string(key), kind: kind, seen: now, value: v}
	root := &e.rings[kind]
	it.prev, it.next = root.prev, root
	root.prev.next, root.prev = it, it
	e.byKey[it.key] = it
}

func (e *evidence[V]) drop(it *item[V]) {
	it.prev.next, it.next.prev = it.next, it.prev
	delete(e.byKey, it.key)
}
