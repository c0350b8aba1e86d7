package policy

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// storeRetry is what a refusal asks for while the store does not answer.
const storeRetry = 5 * time.Second

func signalID(key string) string { return "signal:" + key }

// bindingOf is what an answer for a URL said, to this instance or to another. What was lifted by one instance is lifted for
// all: it leaves an entry without a stop. What the store does not have it has lost, or was not told yet.
func (p *Policy) bindingOf(ctx context.Context, key string) (binding, error) {
	mine, _ := p.binds.get(key)
	if p.shared == nil {
		return mine, nil
	}
	value, err := p.shared.Load(ctx, signalID(key))
	if err != nil {
		return mine, err
	}
	p.binds.tell(func(e binding) error { return p.lendBinding(ctx, e) })
	if value == nil {
		if mine.Stop != "" && time.Until(mine.Until) > 0 {
			err = p.lendBinding(ctx, mine)
		}
		return mine, err
	}
	var e binding
	if json.Unmarshal(value, &e) != nil || e.Key != key {
		return mine, errors.New("the shared store holds something else than a signal")
	}
	if e.Stop != mine.Stop || !e.Until.Equal(mine.Until) {
		if err := p.binds.put(e); err != nil {
			p.log.Error("a signal that another instance saw could not be stored; it holds until the next restart", "err", err)
		}
	}
	return e, nil
}

// lendBinding tells the other instances.
func (p *Policy) lendBinding(ctx context.Context, e binding) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.shared.Store(ctx, signalID(e.Key), value, time.Until(e.Until)+clockSkew)
}

// shareBinding tells the other instances, now or as soon as the store answers.
func (p *Policy) shareBinding(e binding) {
	if p.shared == nil {
		return
	}
	if err := p.lendBinding(context.Background(), e); err != nil {
		p.log.Warn("a signal in an answer could not be told to the other instances; it will be", "err", err)
		p.binds.keepUntold(e)
	}
}

func (b *bindings) keepUntold(e binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.untold == nil {
		b.untold = map[string]binding{}
	}
	if len(b.untold) < maxBinds {
		b.untold[e.Key] = e
	}
}

// tell hands out what was not told yet, until f fails.
func (b *bindings) tell(f func(binding) error) {
	b.mu.Lock()
	untold := b.untold
	b.untold = nil
	b.mu.Unlock()
	failed := false
	for _, e := range untold {
		if time.Until(e.Until) <= 0 {
			continue
		}
		if failed = failed || f(e) != nil; failed {
			b.keepUntold(e)
		}
	}
}
