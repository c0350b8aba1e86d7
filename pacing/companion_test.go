package pacing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const (
	urlA = "http://h.test/a"
	urlB = "http://h.test/b"
)

func companion(kind Kind, url, page string) Companion {
	return Companion{Kind: kind, Client: "c", URL: url, Key: "h.test", Page: page, PageKey: "h.test", Hops: 2}
}

func pageTurnOf(t *testing.T, p *Pacer, url string, ticket *Ticket, kind Kind) *Turn {
	t.Helper()
	return mustAcquire(t, p, Request{Key: "h.test", Client: "c", Kind: kind, URL: url, Wait: time.Minute, Gap: time.Second, Ticket: ticket})
}

func allowed(p *Pacer, c Companion) bool {
	_, ok := p.Companion(c)
	return ok
}

func TestCompanionWindowAndBudget(t *testing.T) {
	inBubble(t, func(c *Config) { c.CompanionBudget = 3 }, func(t *testing.T, p *Pacer) {
		file := companion(Subresource, "http://cdn.test/x", urlA)
		if allowed(p, file) {
			t.Error("rides on a page nobody asked for")
		}
		turn := pageTurnOf(t, p, urlA, nil, Page)
		other := file
		other.Client = "d"
		if allowed(p, other) {
			t.Error("rides on another client's page")
		}
		ticket, ok := p.Companion(file)
		if !ok {
			t.Fatal("does not ride on an open page")
		}
		ticket.Cancel()
		ticket.Cancel() // once
		(*Ticket)(nil).Cancel()
		turn.Done(okay)
		for i, want := range []bool{true, true, true, false} {
			if allowed(p, file) != want {
				t.Errorf("rider %d of a budget of 3: want %v", i, want)
			}
		}
		turn = pageTurnOf(t, p, urlA, nil, Page)
		turn.Done(okay)
		wait(30*time.Second - time.Millisecond)
		if !allowed(p, file) {
			t.Error("does not ride within the window")
		}
		wait(time.Millisecond)
		if allowed(p, file) {
			t.Error("rides after the window")
		}
	})
}

func TestRenderAndRepeatOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		render, repeat := companion(Render, urlA, ""), companion(Repeat, urlA, "")
		turn := pageTurnOf(t, p, urlA, nil, Page)
		if allowed(p, render) {
			t.Error("renders a page that did not answer yet")
		}
		turn.Done(Outcome{Sent: true, Status: 304})
		ticket, ok := p.Companion(render)
		if !ok || allowed(p, render) {
			t.Error("one render, not two")
		}
		r := Request{Key: "h.test", Client: "c", Kind: Render, URL: urlA, Wait: time.Second, Ticket: ticket}
		mustAcquire(t, p, r).Done(Outcome{}) // not sent: it may be asked for again
		if !allowed(p, render) || allowed(p, render) {
			t.Error("a render that was not sent comes back, once")
		}
		if !allowed(p, repeat) || allowed(p, repeat) {
			t.Error("one repeat, not two")
		}
		for _, status := range []int{429, 404, 500, 301} {
			u := urlB + "/" + string(rune('0'+status%7))
			wait(10 * time.Minute)
			pageTurnOf(t, p, u, nil, Page).Done(Outcome{Sent: true, Status: status})
			if allowed(p, companion(Render, u, "")) || allowed(p, companion(Repeat, u, "")) {
				t.Errorf("after %d a retry is a page", status)
			}
		}
	})
}

func TestRedirectOncePerAnswer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		moved := Outcome{Sent: true, Status: 302, Location: urlB}
		pageTurnOf(t, p, urlA, nil, Page).Done(moved)
		if allowed(p, companion(Redirect, urlA, "")) {
			t.Error("follows what was not answered")
		}
		cdn := companion(Redirect, urlB, "")
		cdn.Key = "cdn.test"
		if allowed(p, cdn) {
			t.Error("another key is no redirect of this one")
		}
		ticket, ok := p.Companion(companion(Redirect, urlB, ""))
		if !ok || allowed(p, companion(Redirect, urlB, "")) {
			t.Fatal("once per answer")
		}
		turn := pageTurnOf(t, p, urlB, ticket, Redirect)
		if turn.Waited() != 0 {
			t.Errorf("waited %v", turn.Waited())
		}
		turn.Done(Outcome{Sent: true, Status: 302, Location: urlA})
		ticket, ok = p.Companion(companion(Redirect, urlA, ""))
		if !ok {
			t.Fatal("the second of two hops")
		}
		pageTurnOf(t, p, urlA, ticket, Redirect).Done(moved)
		if allowed(p, companion(Redirect, urlB, "")) {
			t.Error("a third hop of two")
		}
	})
}

func TestRetryAfterOfARedirect(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		pageTurnOf(t, p, urlA, nil, Page).Done(Outcome{Sent: true, Status: 302, Location: urlB, RetryAfter: "5"})
		ticket, _ := p.Companion(companion(Redirect, urlB, ""))
		if ticket.NotBefore() != 5*time.Second {
			t.Errorf("not before %v", ticket.NotBefore())
		}
		got := make(chan *Turn)
		go func() { got <- pageTurnOf(t, p, urlB, ticket, Redirect) }()
		synctest.Wait()
		other := mustAcquire(t, p, page("z")) // it delays only the target
		if waited(other) != time.Second {
			t.Errorf("another page waited %v", waited(other))
		}
		other.Done(okay)
		turn := <-got
		if waited(turn) != 5*time.Second {
			t.Errorf("the target waited %v", waited(turn))
		}
		turn.Done(Outcome{Sent: true, Status: 307, Location: urlA, RetryAfter: "9"})
		ticket, _ = p.Companion(companion(Redirect, urlA, ""))
		turn = mustAcquire(t, p, Request{Key: "h.test", Client: "c", Kind: Redirect, URL: urlA, Wait: time.Minute, Gap: time.Second, Redirect: OwnTurn, Ticket: ticket})
		if waited(turn) != 9*time.Second {
			t.Errorf("with a turn of its own the target waited %v", waited(turn))
		}
		turn.Done(okay)
	})
}

func TestRefusedRequestGivesItsTicketBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pacer) {
		pageTurnOf(t, p, urlA, nil, Page).Done(okay)
		ticket, _ := p.Companion(companion(Repeat, urlA, ""))
		p.Observe(page("x"), Outcome{Sent: true, Status: 429})
		mustRefuse(t, p, Request{Key: "h.test", Client: "c", Kind: Repeat, URL: urlA, Ticket: ticket}, HostBackoff)
		ticket, ok := p.Companion(companion(Repeat, urlA, ""))
		if !ok {
			t.Fatal("the refused repeat used the ticket up")
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := p.Acquire(ctx, Request{Key: "h.test", Client: "c", Kind: Repeat, URL: urlA, Ticket: ticket}); err == nil {
			t.Fatal("granted to nobody")
		}
		if !allowed(p, companion(Repeat, urlA, "")) {
			t.Error("the client that left used the ticket up")
		}
	})
}
