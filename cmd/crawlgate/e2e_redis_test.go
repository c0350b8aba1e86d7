package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"crawlgate/pacing/redistest"
	"crawlgate/proxy"
)

// Two real gates share one Redis; eight clients each are in a hurry for one host. The site sees one polite visitor: never
// two at once, never closer than the gap, and every client within a turn of the others. A stop entered at one gate holds
// at the other.
func TestTwoGatesOneSite(t *testing.T) {
	t.Parallel()
	const gap, length = 200 * time.Millisecond, 10 * time.Second
	red := redistest.Start(t)
	o := newOrigin(t, "plain", func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }
	}, "one.test")
	var clients strings.Builder
	secrets := map[string]string{}
	clients.WriteString("\n")
	for n := range 16 {
		name := fmt.Sprintf("c%02d", n)
		secret, hash, err := proxy.NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
		fmt.Fprintf(&clients, "  - {name: %s, secret_hash: %q, profiles: [crawl], sites: [%q]}\n", name, hash, o.url("/"))
	}
	cfg := gateConfig{profiles: fmt.Sprintf("[{name: crawl, pacing: {gap: %s, max_wait: 60s}}]", gap), clients: clients.String(), origins: []*origin{o},
		more: fmt.Sprintf("redis: {url: \"redis://%s/0\"}\n", red.Addr)}
	gates := []*gate{startGate(t, cfg), startGate(t, cfg)}

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	served := map[string]int{}
	for n := range 16 {
		name, g := fmt.Sprintf("c%02d", n), gates[n%2]
		u, err := url.Parse(g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(name, secrets[name])
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}}
			defer c.CloseIdleConnections()
			for k := 0; ctx.Err() == nil; k++ {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url(fmt.Sprintf("/%s/%d", name, k)), nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := c.Do(req)
				if err != nil {
					return // the time is up
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if code := resp.Header.Get("Crawlgate-Reason"); code != "" {
					t.Errorf("%s was refused: %s", name, code)
					return
				}
				mu.Lock()
				served[name]++
				mu.Unlock()
			}
		}()
	}
	wg.Wait()

	all := o.arrivals()
	for n := 1; n < len(all); n++ {
		before, now := all[n-1], all[n]
		if now.At.Before(before.Done) {
			t.Errorf("%s came while %s was answered", now.URI, before.URI)
		} else if d := now.At.Sub(before.Done); d < gap {
			t.Errorf("%s came %s after %s had ended", now.URI, d, before.URI)
		}
	}
	if len(all) < int(length/(gap*3)) {
		t.Errorf("only %d requests in %s", len(all), length)
	}
	least, most := len(all), 0
	for name := range secrets {
		least, most = min(least, served[name]), max(most, served[name])
	}
	if most-least > 2 { // one turn, and the one under way when the time was up
		t.Errorf("clients were served between %d and %d times: %v", least, most, served)
	}
	t.Logf("%d requests of 16 clients by two gates, each %d to %d", len(all), least, most)

	if r := gates[0].cli(t, "sites", "stop", "one.test", "--reason", "owner's mail"); r.code != 0 {
		t.Fatalf("sites stop: %+v", r)
	}
	u, _ := url.Parse(gates[1].proxy)
	u.User = url.UserPassword("c01", secrets["c01"])
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}}
	defer c.CloseIdleConnections()
	within(t, 5*time.Second, "the other gate keeps the stop", func() bool {
		resp, err := c.Get(o.url("/stopped"))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.Header.Get("Crawlgate-Reason") == "site-stopped"
	})
}

// Without Redis no turn is given; when it is back, turns are.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	red := redistest.Start(t)
	o := newOrigin(t, "plain", nil, "away.test")
	g := startGate(t, gateConfig{profiles: "[{name: crawl, robots: {mode: ignore}, pacing: {gap: 10ms, max_wait: 5s}}]", origins: []*origin{o},
		more: fmt.Sprintf("redis: {url: \"redis://%s/0\", store_grace: 200ms}\n", red.Addr)})
	get := func(path string) string {
		a := curl(t, g, o.url(path))
		return a.header.Get("Crawlgate-Reason")
	}
	if code := get("/before"); code != "" {
		t.Fatalf("refused with Redis there: %s", code)
	}
	red.Stop()
	if code := get("/away"); code != "overloaded" {
		t.Errorf("with Redis away: %q", code)
	}
	red.Start()
	within(t, 20*time.Second, "turns are given again", func() bool { return get("/back") == "" })
	for _, a := range o.pages() {
		if a.URI == "/away" {
			t.Error("a request went out without a turn")
		}
	}
}

// A Redis that may evict keys, a wrong password, and a wrong URL stop the start and name the setting.
func TestRedisRefused(t *testing.T) {
	t.Parallel()
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	locked := redistest.Start(t, "--requirepass", "right")
	for name, u := range map[string]string{"evicts": "redis://" + evicting.Addr, "password": "redis://:wrong@" + locked.Addr, "nobody": "redis://127.0.0.1:1", "form": "http://127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, gateConfig{noWait: true, more: fmt.Sprintf("redis: {url: %q}\n", u)})
			if code := g.exit(t, 20*time.Second); code != 2 {
				t.Errorf("exit %d", code)
			}
			if s := g.err.String(); !strings.Contains(s, "redis.url") || strings.Contains(s, "wrong@") {
				t.Errorf("said %q", s)
			}
			if _, err := os.Stat(g.state); err != nil {
				t.Logf("no state was made: %v", err)
			}
		})
	}
}

// What a site refused to one agent at one gate goes out under no other agent at the other gate.
func TestIdentityLockAcrossGates(t *testing.T) {
	t.Parallel()
	red := redistest.Start(t)
	o := newOrigin(t, "plain", func(o *origin) {
		o.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	}, "locked.test")
	cfg := gateConfig{agents: `[{name: a, product_token: ABot, user_agent: "ABot/1.0 (+https://bot.example/a)"}, {name: b, product_token: BBot, user_agent: "BBot/1.0 (+https://bot.example/b)"}]`,
		profiles: "[{name: one, agent: a, pacing: {gap: 10ms}}, {name: two, agent: b, pacing: {gap: 10ms}}]", origins: []*origin{o},
		more: fmt.Sprintf("redis: {url: \"redis://%s/0\"}\n", red.Addr)}
	first, second := startGate(t, cfg), startGate(t, cfg)
	if a := curl(t, first, o.url("/page")); a.status != http.StatusForbidden || a.header.Get("Crawlgate-Reason") != "" {
		t.Fatalf("%+v", a)
	}
	u, err := url.Parse(second.proxy)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("default+two", "x")
	within(t, 5*time.Second, "the other gate keeps the refusal", func() bool {
		return curlVia(t, u.String(), second.ca, o.url("/page")).header.Get("Crawlgate-Reason") == "identity-switch"
	})
}

// A job's pages are counted once for all gates, and without the store it fetches none. A signal in an answer that one gate
// saw binds the other.
func TestJobAndSignalsAcrossGates(t *testing.T) {
	t.Parallel()
	red := redistest.Start(t)
	o := newOrigin(t, "plain", func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bound" {
				w.Header().Set("Content-Signal", "ai-input=no")
			}
			_, _ = io.WriteString(w, r.URL.Path)
		}
	}, "job.test")
	cfg := gateConfig{profiles: "[{name: crawl, pacing: {gap: 1ms, max_wait: 10s}, job: {max_pages: 3}, robots: {stop_on: [ai-input=no], response_signals: bind}}]", origins: []*origin{o},
		more: fmt.Sprintf("redis: {url: \"redis://%s/0\", store_grace: 200ms}\n", red.Addr)}
	gates := []*gate{startGate(t, cfg), startGate(t, cfg)}
	get := func(n int, job, path string) string {
		t.Helper()
		u, err := url.Parse(gates[n].proxy)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("default+crawl+"+job, "x")
		a := curlVia(t, u.String(), gates[n].ca, o.url(path))
		if a.status == 0 {
			t.Fatalf("%+v", a)
		}
		return a.header.Get("Crawlgate-Reason")
	}
	for n, want := range []string{"", "", "", "job-exhausted", "job-exhausted"} {
		if code := get(n%2, "errand", fmt.Sprintf("/%d", n)); code != want {
			t.Errorf("page %d: %q, want %q", n, code, want)
		}
	}
	for n, g := range gates {
		if r := g.cli(t, "jobs", "show", "errand", "--json"); r.code != 0 || !strings.Contains(r.out, `"pages":3`) || !strings.Contains(r.out, `"job-exhausted":2`) {
			t.Errorf("gate %d: %+v", n, r)
		}
	}
	if code := get(0, "signals", "/bound"); code != "" {
		t.Fatal(code)
	}
	if code := get(1, "signals", "/bound"); code != "robots-signal" {
		t.Errorf("the other gate: %q", code)
	}
	red.Stop()
	if code := get(1, "signals", "/away"); code != "overloaded" {
		t.Errorf("without the store: %q", code)
	}
	red.Start() // empty
	within(t, 20*time.Second, "jobs go on", func() bool { return get(1, "signals", "/back") == "" })
	if code := get(1, "errand", "/more"); code != "job-exhausted" {
		t.Errorf("a store that came back empty gave a job new pages: %q", code)
	}
	if code := get(0, "signals", "/bound"); code != "robots-signal" {
		t.Errorf("a store that came back empty forgot a signal: %q", code)
	}
}
