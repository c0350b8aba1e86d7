package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"crawlgate/audit"
)

// summaryEvent is what a summary keeps of an audit event.
type summaryEvent struct {
	Type     string `json:"type"`
	Host     string `json:"host"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Class    string `json:"class"`
	Rule     string `json:"rule"`
	Line     int    `json:"line"`
	Address  string `json:"address"`
	Sent     bool   `json:"sent"`
	WaitedMS int64  `json:"waited_ms"`
	Delay    string `json:"delay"`
	DelayMS  int64  `json:"delay_ms"`
}

func newSummaryEvent(e *audit.Event) *summaryEvent {
	s := &summaryEvent{Type: e.Type, Host: e.Host, Decision: e.Decision, Reason: e.Reason, Class: e.Class, Rule: e.Rule.Text, Line: e.Rule.Line,
		Sent: e.Sent, WaitedMS: e.TurnWaitMS, Delay: e.DelaySource, DelayMS: e.DelayOwedMS}
	if e.Reason == "address-denied" {
		s.Address = e.Upstream.IP
	}
	return s
}

// summary counts what went out, what did not, and why.
type summary struct {
	mu       sync.Mutex
	requests int
	sent     int
	failed   int
	left     int
	hosts    map[string]bool
	reasons  map[string]*reasonCount
	waited   time.Duration
	byHost   map[string]time.Duration
	delays   map[string]string
}

type reasonCount struct {
	n       int
	example string
}

func newSummary() *summary {
	return &summary{hosts: map[string]bool{}, reasons: map[string]*reasonCount{}, byHost: map[string]time.Duration{}, delays: map[string]string{}}
}

func (s *summary) add(e *summaryEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Type != audit.TypeRequest && e.Type != audit.TypeTunnel {
		return
	}
	s.requests++
	if e.Host != "" {
		s.hosts[e.Host] = true
	}
	waited := time.Duration(e.WaitedMS) * time.Millisecond
	s.waited += waited
	if waited > 0 {
		s.byHost[e.Host] += waited
		if e.DelayMS > 0 {
			s.delays[e.Host] = fmt.Sprintf("%s (%s)", time.Duration(e.DelayMS)*time.Millisecond, e.Delay)
		}
	}
	switch e.Decision {
	case audit.Forwarded:
		s.sent++
		return
	case audit.Cancelled:
		s.left++
		return
	case audit.Failed:
		s.failed++
	}
	r := s.reasons[e.Reason]
	if r == nil {
		r = &reasonCount{example: example(e)}
		s.reasons[e.Reason] = r
	}
	r.n++
}

func example(e *summaryEvent) string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s (line %d: %s)", e.Host, e.Line, e.Rule)
	case e.Address != "":
		return fmt.Sprintf("%s -> %s (%s)", e.Host, e.Address, e.Class)
	case e.Class != "":
		return fmt.Sprintf("%s (%s)", e.Host, e.Class)
	}
	return e.Host
}

// print says it to people. cmd is the program that was run.
func (s *summary) print(w io.Writer, cmd string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == 0 {
		fmt.Fprintf(w, "crawlgate: 0 requests seen: %s sent nothing through the gate\n", cmd)
		if fix := fixFor(cmd); fix != "" {
			fmt.Fprintf(w, "  %s\n", fix)
		}
		return
	}
	refused := 0
	for _, r := range s.reasons {
		refused += r.n
	}
	refused -= s.failed
	fmt.Fprintf(w, "crawlgate: %s to %s: %d sent, %d refused", count(s.requests, "request"), count(len(s.hosts), "host"), s.sent, refused)
	if s.failed > 0 {
		fmt.Fprintf(w, ", %d failed", s.failed)
	}
	if s.left > 0 {
		fmt.Fprintf(w, ", %d given up by the fetcher", s.left)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	names := make([]string, 0, len(s.reasons))
	for name := range s.reasons {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := s.reasons[b].n - s.reasons[a].n; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		fmt.Fprintf(tw, "  %s\t%d\t%s\n", name, s.reasons[name].n, s.reasons[name].example)
	}
	if s.waited >= 50*time.Millisecond {
		var host string
		for h, d := range s.byHost {
			if host == "" || d > s.byHost[host] || d == s.byHost[host] && h < host {
				host = h
			}
		}
		why := host
		if d := s.delays[host]; d != "" {
			why += " is asked once per " + d
		}
		fmt.Fprintf(tw, "  waited for turns\t%s\t%s\n", s.waited.Round(10*time.Millisecond), why)
	}
	_ = tw.Flush()
	if refused+s.failed > 0 {
		fmt.Fprintln(w, "  each one: crawlgate why URL")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fixFor knows programs that do not read the proxy variables.
func fixFor(cmd string) string {
	name := strings.ToLower(strings.TrimSuffix(cmd, ".exe"))
	switch {
	case strings.HasPrefix(name, "node"), name == "npm", name == "npx":
		return "node reads the proxy variables from version 24 on; before that use undici: setGlobalDispatcher(new EnvHttpProxyAgent())"
	case strings.Contains(name, "chrom"):
		return "chromium reads no proxy variables: --user-data-dir=DIR --proxy-server=$CRAWLGATE_PROXY --ignore-certificate-errors-spki-list=$CRAWLGATE_SPKI --proxy-bypass-list='<-loopback>'"
	case strings.Contains(name, "firefox"):
		return "firefox has its own proxy settings and certificate store: crawlgate ca env --for firefox"
	case strings.HasPrefix(name, "python"):
		return "urllib, requests and httpx read the proxy variables; aiohttp needs trust_env=True; addresses of loopback are skipped by most clients"
	case name == "java":
		return "java reads JAVA_TOOL_OPTIONS, which needs keytool for the trust store"
	}
	return "the program does not read http_proxy and https_proxy, or asked nothing; crawlgate ca env --for TOOL prints a client's set-up"
}
