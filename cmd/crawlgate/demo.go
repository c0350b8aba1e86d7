package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/audit"
	"crawlgate/proxy"
)

func newDemoCmd(a *app) *cobra.Command {
	var hold bool
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "three sites, three greedy fetchers and the gate between them: no network, no configuration",
		Long: `Starts three loopback web sites with different rules, lets three hurried fetchers at them without the gate and then through it,
and shows what the sites saw. Needs no network, no configuration and leaves nothing behind.`,
		Example: "  crawlgate demo\n  crawlgate demo --hold",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.demo(ctx, length, hold)
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "keep the live page up until interrupted")
	cmd.Flags().DurationVar(&length, "for", 10*time.Second, "how long the fetchers run")
	return cmd
}

// demoSites are three sites of one loopback server, told apart by Host.
type demoSites struct {
	mu   sync.Mutex
	last map[string]time.Time // end of the last answer, by host
	n    map[string]int
	most int // requests of one host at once
	busy map[string]int
	bad  int // requests for what robots.txt forbids
}

const (
	shopRules = "User-agent: *\nDisallow: /cart\nCrawl-delay: 2\n"
	newsRules = "User-agent: *\nDisallow: /drafts/\n"
	docsRules = "User-agent: *\nContent-Signal: search=yes, ai-input=no\nAllow: /\n"
)

func newDemoSites() *demoSites {
	return &demoSites{last: map[string]time.Time{}, n: map[string]int{}, busy: map[string]int{}}
}

// ServeHTTP answers for all three; the gap a site saw travels back in a field.
func (s *demoSites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	rules := map[string]string{"shop.test": shopRules, "news.test": newsRules, "docs.test": docsRules}[host]
	if r.URL.Path == "/robots.txt" {
		_, _ = io.WriteString(w, rules)
		return
	}
	s.mu.Lock()
	gap := "-"
	if end, ok := s.last[host]; ok {
		gap = fmt.Sprintf("%.1fs", time.Since(end).Seconds())
	}
	s.n[host]++
	n := s.n[host]
	s.busy[host]++
	s.most = max(s.most, s.busy[host])
	if strings.HasPrefix(r.URL.Path, "/cart") || strings.HasPrefix(r.URL.Path, "/drafts/") {
		s.bad++
	}
	s.mu.Unlock()
	time.Sleep(20 * time.Millisecond) // a page takes its time
	w.Header().Set("Demo-Gap", gap)
	if host == "news.test" && n == 3 {
		w.Header().Set("Retry-After", "4")
		w.WriteHeader(http.StatusTooManyRequests)
	} else {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s %s</title>\n", host, r.URL.Path)
	}
	s.mu.Lock()
	s.busy[host]--
	s.last[host] = time.Now()
	s.mu.Unlock()
}

// demoFetcher asks for its pages one after another, in a hurry.
type demoFetcher struct {
	name  string
	pages []string
}

var demoFetchers = []demoFetcher{
	{"browser", []string{"shop.test/b", "shop.test/cart", "news.test/b"}},
	{"scraper", []string{"shop.test/s", "news.test/s", "news.test/drafts/"}},
	{"shell", []string{"news.test/l", "docs.test/guide", "shop.test/l"}},
}

// page is the nth page asked for: never the same one twice.
func (f demoFetcher) page(n int) string {
	return fmt.Sprintf("%s%d", f.pages[n%len(f.pages)], n/len(f.pages)+1)
}

// demoRow is one answer as a fetcher saw it.
type demoRow struct {
	at      time.Duration
	fetcher int
	page    string
	status  int
	gap     string
	reason  string
	detail  string
	retry   string
	waited  string
}

func (a *app) demo(ctx context.Context, length time.Duration, hold bool) error {
	if !hasFlag(a, "log-level") {
		a.logLevel = "error"
	}
	log, err := a.logger()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "crawlgate-demo-")
	if err != nil {
		return fail("%w", err)
	}
	defer os.RemoveAll(dir)
	sites := newDemoSites()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail("%w", err)
	}
	srv := &http.Server{Handler: sites, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	port := l.Addr().(*net.TCPAddr).Port

	fmt.Fprintf(a.stdout, "sites     shop.test  Crawl-delay: 2, Disallow: /cart\n          news.test  Disallow: /drafts/, and it answers 429 when it has enough\n"+
		"          docs.test  Content-Signal: ai-input=no\nfetchers  a browser, a scraper and a loop in a shell, all in a hurry\n\n")
	alone, direct := newDemoSites(), 2*time.Second
	n := demoWithout(ctx, alone, direct)

	i, secrets, err := openDemoGate(dir, port, log)
	if err != nil {
		return err
	}
	defer i.close()
	defer i.stop(log)
	if hold { // there is time to look on
		fmt.Fprintf(a.stdout, "live page  %s\n\n", i.admin.url())
	}
	rows := make(chan demoRow, 64)
	start := time.Now()
	fctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	for n, f := range demoFetchers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f.through(fctx, n, i.proxyURL(), secrets[f.name], port, start, rows)
		}()
	}
	go func() { wg.Wait(); close(rows) }()
	fmt.Fprintf(a.stdout, " %-7s %-17s %-17s %-17s %s\n", "time", "browser", "scraper", "shell", "the site saw")
	sent, refused := 0, 0
	for r := range rows {
		fmt.Fprintln(a.stdout, r.text())
		if r.reason == "" {
			sent++
		} else {
			refused++
		}
	}
	took := time.Since(start).Seconds()
	seq, _ := i.audit.Head()
	fmt.Fprintf(a.stdout, "\nwithout the gate: %d fetchers, %d requests in %.0fs, %.0f a second, up to %d at once at one site, %d for what robots.txt forbids\n",
		len(demoFetchers), n, direct.Seconds(), float64(n)/direct.Seconds(), alone.most, alone.bad)
	fmt.Fprintf(a.stdout, "with the gate:    %d fetchers, %d requests in %.0fs, %s, %d for what robots.txt forbids, %d refused before sending\n",
		len(demoFetchers), sent, took, atOnce(sites.most), sites.bad, refused)
	if err := i.audit.Flush(); err != nil {
		return fail("audit log: %w", err)
	}
	chain := "chain whole"
	if report, err := audit.Verify([]string{i.audit.Path()}, audit.VerifyOptions{}); err != nil || !report.OK {
		chain = "chain BROKEN"
	}
	fmt.Fprintf(a.stdout, "log:              %d events, %s\n", seq, chain)
	if hold && ctx.Err() == nil {
		fmt.Fprintf(a.stdout, "live page:        %s (until interrupted)\n", i.admin.url())
		<-ctx.Done()
	} else {
		fmt.Fprintf(a.stdout, "live page:        crawlgate demo --hold keeps it up\n")
	}
	return nil
}

func atOnce(most int) string {
	if most <= 1 {
		return "never two at once"
	}
	return fmt.Sprintf("up to %d at once", most)
}

// text is the row as it is printed: each fetcher has its column.
func (r demoRow) text() string {
	cols := []string{"", "", ""}
	cols[r.fetcher] = "GET " + strings.TrimSuffix(strings.Replace(r.page, ".test", "", 1), "/")
	s := fmt.Sprintf("%5.1fs  %-17s %-17s %-17s ", r.at.Seconds(), cols[0], cols[1], cols[2])
	switch {
	case r.reason != "":
		s += "nothing: " + r.reason
		if r.detail != "" {
			s += ", " + r.detail
		}
	default:
		s += fmt.Sprintf("%d  gap %s", r.status, r.gap)
		if r.retry != "" {
			s += "  Retry-After: " + r.retry
		}
		if r.waited != "" {
			s += "  (waited " + r.waited + "s)"
		}
	}
	return strings.TrimRight(s, " ")
}

// through fetches by way of the gate until ctx ends.
func (f demoFetcher) through(ctx context.Context, n int, proxyURL, secret string, port int, start time.Time, rows chan<- demoRow) {
	u, err := url.Parse(proxyURL)
	if err != nil {
		return
	}
	u.User = url.UserPassword(f.name, secret)
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}}
	defer c.CloseIdleConnections()
	for k := 0; ctx.Err() == nil; k++ {
		page := f.page(k)
		host, path, _ := strings.Cut(page, "/")
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/%s", host, port, path), nil)
		if err != nil {
			return
		}
		req.Header.Set("User-Agent", "hurried/1.0")
		resp, err := c.Do(req)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		r := demoRow{at: time.Since(start), fetcher: n, page: page, status: resp.StatusCode, gap: resp.Header.Get("Demo-Gap"),
			reason: resp.Header.Get("Crawlgate-Reason"), retry: resp.Header.Get("Retry-After"), waited: resp.Header.Get("Crawlgate-Waited")}
		if r.reason != "" {
			if _, d, ok := strings.Cut(resp.Header.Get("Proxy-Status"), ": "); ok {
				r.detail = strings.TrimSuffix(d, `"`)
			}
		}
		rows <- r
		pause := 100 * time.Millisecond
		if r.reason != "" {
			pause = 700 * time.Millisecond // even a hurried fetcher does not hammer a wall
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// demoWithout lets the fetchers at a second set of sites with no gate between, and counts.
func demoWithout(ctx context.Context, sites *demoSites, d time.Duration) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	srv := &http.Server{Handler: sites, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for _, f := range demoFetchers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for k := 0; ctx.Err() == nil; k++ {
				host, path, _ := strings.Cut(f.page(k), "/")
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/"+path, nil)
				if err != nil {
					return
				}
				req.Host = host
				if resp, err := c.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}()
	}
	wg.Wait()
	sites.mu.Lock()
	defer sites.mu.Unlock()
	total := 0
	for _, n := range sites.n {
		total += n
	}
	return total
}

// openDemoGate starts a gate with a configuration of its own: what a user would write for three fetchers.
func openDemoGate(dir string, port int, log *slog.Logger) (*instance, map[string]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
state_dir: %s
agents:
  - {name: demo, product_token: DemoBot, user_agent: "DemoBot/1.0 (+https://bot.example/about)", purposes: [search, ai-input]}
profiles:
  - {name: crawl, agent: demo, pacing: {gap: 1s, max_wait: 30s}}
egress:
  ports: [80, 443]
  hosts: ["127.0.0.1 shop.test news.test docs.test"]
  allow_private: [{prefix: 127.0.0.1/32, ports: [%d]}]
clients:
`, filepath.Join(dir, "state"), port)
	secrets := map[string]string{}
	for _, f := range demoFetchers {
		secret, hash, err := proxy.NewSecret()
		if err != nil {
			return nil, nil, fail("%w", err)
		}
		secrets[f.name] = secret
		fmt.Fprintf(&b, "  - {name: %s, secret_hash: %q, profiles: [crawl], sites: [\"http://shop.test:%d/\", \"http://news.test:%d/\", \"http://docs.test:%d/\"]}\n",
			f.name, hash, port, port, port)
	}
	file := filepath.Join(dir, "crawlgate.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return nil, nil, fail("%w", err)
	}
	load := (&app{configFile: file}).loader(identityFlags{}, nil)
	cfg, src, err := load()
	if err != nil {
		return nil, nil, err
	}
	i, err := openInstance(cfg, src, log)
	if err != nil {
		return nil, nil, err
	}
	if err := i.openProxyPorts(cfg); err != nil {
		i.close()
		return nil, nil, err
	}
	if err := i.openAdmin(cfg); err != nil {
		i.stop(log)
		i.close()
		return nil, nil, err
	}
	return i, secrets, nil
}
