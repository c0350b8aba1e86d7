package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Requests that wait for a stream are woken each time one ends, however soon.
func TestSiteStreamsWakeThoseWhoWait(t *testing.T) {
	const all, fetchers = 600, 16
	r := newRig(t)
	s := r.h2Site("one.test", []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(p *h2Peer, _ int, fr *http2.MetaHeadersFrame) {
		p.head(fr.StreamID, true, ":status", "204")
	})
	r.start(bounded(1, 5*time.Second))
	// A connection whose site has not spoken yet ends with the request that made it.
	_, err := fetch(t.Context(), r.client(true), "GET", s.url("https", "/"), nil)
	must(t, err)
	var wg sync.WaitGroup
	var bad atomic.Int64
	for i := range fetchers {
		c := r.client(i%2 == 0)
		wg.Go(func() {
			for range all / fetchers {
				// Whoever leaves in the middle gives its stream back late.
				ctx, cancel := context.WithCancel(t.Context())
				if i == 0 {
					time.AfterFunc(time.Millisecond, cancel)
				}
				resp, err := fetch(ctx, c, "GET", s.url("https", "/"), nil)
				if i != 0 && (err != nil || resp.StatusCode != 204) {
					bad.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if _, conns := s.count(); bad.Load() != 0 || conns != 1 {
		t.Errorf("%d of %d failed, on %d connections", bad.Load(), all, conns)
	}
	r.noSeatsLeft(t)
}

// A site may take fewer streams for a while, none at all even, and more again: nobody is asked to come back for that.
func TestSiteTakesNoStreamsForAWhile(t *testing.T) {
	r := newRig(t)
	held := make(chan func(), 1)
	limit := func(p *h2Peer, n uint32) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n})
	}
	s := r.h2Site("while.test", []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(p *h2Peer, n int, fr *http2.MetaHeadersFrame) {
		if n == 2 {
			limit(p, 0)
			p.head(fr.StreamID, true, ":status", "204")
			held <- func() { limit(p, 1) }
			return
		}
		p.head(fr.StreamID, true, ":status", "204")
	})
	r.start(bounded(1, 5*time.Second))
	c := r.client(true)
	for range 2 {
		_, err := fetch(t.Context(), c, "GET", s.url("https", "/"), nil)
		must(t, err)
	}
	again := <-held
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if resp, err := fetch(t.Context(), c, "GET", s.url("https", "/"), nil); err != nil || resp.StatusCode != 204 {
				t.Errorf("%v %v", resp, err)
			}
		})
	}
	r.until("three to wait", func() bool { return r.gate.upstream.conns.waiting.Load() == 3 })
	again()
	wg.Wait()
	if _, conns := s.count(); conns != 1 {
		t.Errorf("%d connections", conns)
	}
	r.noSeatsLeft(t)
}

// A new HTTP/2 connection whose site says nothing is not waited for any longer than by the request that made it.
func TestSiteSilentAfterTheHandshake(t *testing.T) {
	r := newRig(t)
	o := r.h2Site("mute.test", nil, func(p *h2Peer, _ int, fr *http2.MetaHeadersFrame) { p.head(fr.StreamID, true, ":status", "204") })
	o.mute = true
	r.start(bounded(6, 0))
	c := r.client(true)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = fetch(ctx, c, "GET", o.url("https", "/"), nil) })
	r.until("a connection", func() bool { _, conns := o.count(); return conns == 1 })
	for range 3 {
		wg.Go(func() {
			if resp, err := fetch(t.Context(), c, "GET", o.url("https", "/"), nil); err != nil || resp.StatusCode != 204 {
				t.Errorf("%v %v", resp, err)
			}
		})
	}
	r.until("three to wait", func() bool { return r.gate.upstream.conns.waiting.Load() == 3 })
	began := time.Now()
	cancel()
	wg.Wait()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	r.noSeatsLeft(t)
}
