package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"crawlgate/audit"
	"crawlgate/policy"

	"github.com/spf13/cobra"
)

// accessJudge lets the access audit judge with the gate's own matcher.
type accessJudge struct{}

func (accessJudge) Parse(body []byte) audit.RobotsFile {
	return &accessRobots{
		rules: policy.Parse(body),
		waits: sync.OnceValue(func() *policy.Ruleset { return policy.Parse(withoutRequestRate(body)) }),
	}
}

type accessRobots struct {
	rules *policy.Ruleset
	waits func() *policy.Ruleset // without Request-rate lines
}

func (f *accessRobots) Sitemaps() []string { return f.rules.Sitemaps() }

func (f *accessRobots) Group(tokens []string) audit.RobotsGroup {
	var token string
	if len(tokens) > 0 {
		token, tokens = tokens[0], tokens[1:]
	}
	g := &accessGroup{g: f.rules.Group(token, tokens...)}
	delay, source, _ := g.g.Delay(time.Unix(0, 0))
	if source == "request-rate" {
		// The audit checks Crawl-delay alone. Such a line never ends a group, so that the groups stay the same without it.
		delay, _, _ = f.waits().Group(token, tokens...).Delay(time.Unix(0, 0))
	}
	g.delay = delay
	return g
}

// withoutRequestRate empties the Request-rate lines of a robots.txt.
func withoutRequestRate(body []byte) []byte {
	lines := bytes.Split(bytes.ReplaceAll(body, []byte{'\r'}, []byte{'\n'}), []byte{'\n'})
	for i, line := range lines {
		key, _, _ := bytes.Cut(line, []byte{':'})
		key = bytes.Map(func(r rune) rune {
			if r == '-' || r == '_' || r == ' ' || r == '\t' {
				return -1
			}
			return r
		}, key)
		if bytes.EqualFold(key, []byte("requestrate")) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte{'\n'})
}

type accessGroup struct {
	g     *policy.Group
	delay time.Duration
}

func (g *accessGroup) Match(target string) audit.RobotsMatch {
	m := g.g.MatchString(target)
	return audit.RobotsMatch{Allowed: m.Allowed, Itself: m.Class == policy.ClassRobotsItself, Rule: m.Rule, Line: m.Line}
}

func (g *accessGroup) Token() string             { return g.g.Token() }
func (g *accessGroup) Line() int                 { return g.g.Line() }
func (g *accessGroup) CrawlDelay() time.Duration { return g.delay }

// accessFlags are the flags of `audit access` that need a second look.
type accessFlags struct {
	o                    audit.AccessOptions
	trusted              []string
	since, until         string
	format, output, list string
	byPurpose, json      bool
	failOn               []string
	unreachable          time.Duration
}

var accessFailures = []string{"violations", "impersonated", "malformed", "delay"}

func newAuditAccessCmd(a *app) *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use:   "access [flags] LOG...",
		Short: "what crawlers did to a web server, by its access logs and robots.txt",
		Long: `Reads a web server's access logs and tells of every known crawler what it fetched, whether it really came from who it
says, and which requests robots.txt forbade at their time. LOG is a file, a folder, a pattern, or - for standard input;
rotated files, compressed ones (gzip, bzip2, zstd, xz) and copies are put in order and counted once.

Formats are told by themselves: common, combined and vhost logs of Apache and nginx, W3C (IIS, CloudFront), JSON (nginx,
Caddy, Cloudflare Logpush, crawlgate), Squid, AWS load balancers. --log-format takes the text of an nginx log_format too.

Exit code 0 report written; 1 written, but --fail-on was hit, an input was cut short or a self-check failed; 2 nothing
written.`,
		Example: `  crawlgate audit access --robots robots.txt --host www.example.com /var/log/nginx/access.log*
  crawlgate audit access --robots robots-versions/ --ranges ranges/ --format html -o report.html logs/`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), a, args) },
	}
	fl := cmd.Flags()
	o := &f.o
	fl.StringArrayVar(&o.Robots, "robots", nil, "`PATH` of a robots.txt, or of a folder of versions: HOST/20260131T120000Z[.STATUS].txt, or index.jsonl (repeat)")
	fl.StringArrayVar(&o.Crawlers, "crawlers", nil, "`FILE` with definitions of crawlers instead of the built-in list; a later one replaces equal names (repeat)")
	fl.StringVar(&o.Ranges, "ranges", "", "folder `DIR` of published address ranges, in the form of googlebot.json")
	fl.StringArrayVar(&f.trusted, "trusted-proxy", nil, "`CIDR` whose X-Forwarded-For is believed (repeat, or with commas)")
	fl.StringVar(&o.DNSCache, "dns-cache", "", "`FILE` with answers of the DNS; --dns live adds to it")
	fl.StringVar(&o.DNS, "dns", "", "whether names confirm a crawler: `MODE` off, cache or live (default cache with --dns-cache, else off)")
	fl.StringArrayVar(&o.Sitemaps, "sitemap", nil, "sitemap `FILE`, XML or text (repeat)")
	fl.StringVar(&o.Host, "host", "", "`NAME` of the host of lines that name none (default: the only one of --robots)")
	fl.StringVar(&o.LogFormat, "log-format", "auto", "`FORMAT` of the lines: auto, combined, common, vhost, w3c, json, squid, alb, crawlgate, or an nginx log_format")
	fl.StringVar(&f.since, "since", "", "from `T` on: RFC 3339")
	fl.StringVar(&f.until, "until", "", "before `T`")
	fl.DurationVar(&o.Grace, "grace", 0, "for `D` after a change of robots.txt, what it allowed before is still allowed")
	fl.BoolVar(&o.Delay, "delay", false, "check the gaps against Crawl-delay")
	fl.DurationVar(&o.DelayTolerance, "delay-tolerance", 0, "a gap may be shorter by `D`; 1s suits logs in whole seconds")
	fl.StringVar(&o.Dedupe, "dedupe", "none", "count once what stands twice: `MODE` none, overlap (of a rotated file and the next) or lines (of several files)")
	fl.StringVar(&o.NoVersion, "no-version", "unjudged", "count requests before the first robots.txt `AS` unjudged or allowed")
	fl.StringVar(&o.Unverified, "unverified", "genuine", "count claims that can not be checked `AS` genuine or impersonated")
	fl.DurationVar(&f.unreachable, "unreachable-limit", 720*time.Hour, "an unreachable robots.txt forbids everything for `D`")
	fl.StringVar(&o.As, "as", "", "every request is the crawler `NAME`'s, as in egress logs")
	fl.IntVar(&o.Top, "top", 10, "list `N` addresses of impersonators")
	fl.IntVar(&o.Workers, "workers", 0, "work on `N` cores (default: all)")
	fl.StringVar(&f.format, "format", "", "`FORM` table, json, csv or html (default: by the name of -o, else table on a terminal, else json)")
	fl.BoolVar(&f.json, "json", false, "same as --format json")
	fl.StringVarP(&f.output, "output", "o", "", "write to `FILE`")
	fl.BoolVar(&f.byPurpose, "by-purpose", false, "table: one block for each category")
	fl.StringVar(&f.list, "list", "", "with --format csv: `WHAT` violations instead of crawlers")
	fl.StringSliceVar(&f.failOn, "fail-on", nil, "exit 1 if there are any of `WHAT`, a list of "+strings.Join(accessFailures, ", "))
	return cmd
}

func (f *accessFlags) run(ctx context.Context, a *app, args []string) error {
	if err := f.complete(a, args); err != nil {
		return err
	}
	var bar *progressBar
	if isTerminal(a.stderr) {
		bar = &progressBar{w: a.stderr, start: time.Now()}
		f.o.Progress = bar.show
	}
	f.o.Warn = func(s string) {
		bar.clear()
		fmt.Fprintf(a.stderr, "crawlgate: %s\n", s)
	}
	rep, err := audit.Access(ctx, f.o)
	bar.clear()
	switch {
	case ctx.Err() != nil:
		return fail("stopped: no report written")
	case err != nil:
		return &exitError{exitUsage, err}
	}
	if err := f.write(a, rep); err != nil {
		return err
	}
	problems := rep.Problems
	for _, what := range f.failOn {
		if n, _ := rep.Count(what); n > 0 {
			problems = append(problems, fmt.Sprintf("--fail-on %s: %d", what, n))
		}
	}
	for _, p := range problems {
		fmt.Fprintf(a.stderr, "crawlgate: %s\n", p)
	}
	if len(problems) > 0 {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// complete checks what the flags say together.
func (f *accessFlags) complete(a *app, args []string) error {
	o := &f.o
	o.Judge, o.Logs, o.Stdin = accessJudge{}, args, a.stdin
	if len(args) == 0 {
		return usage("no LOG given (a file, a folder, a pattern, or - for standard input)")
	}
	if f.json {
		if f.format != "" && f.format != "json" {
			return usage("--json and --format %s contradict each other", f.format)
		}
		f.format = "json"
	}
	if f.format == "" {
		f.format = "json"
		if f.output == "" && isTerminal(a.stdout) {
			f.format = "table"
		}
		if ext := filepath.Ext(f.output); ext == ".html" || ext == ".csv" {
			f.format = ext[1:]
		}
	}
	if !slices.Contains([]string{"table", "json", "csv", "html"}, f.format) {
		return usage("--format %q is not one of table, json, csv, html", f.format)
	}
	if f.list != "" && (f.list != "violations" || f.format != "csv") {
		return usage("--list %q: only violations, and only with --format csv", f.list)
	}
	for _, what := range f.failOn {
		switch {
		case !slices.Contains(accessFailures, what):
			return usage("--fail-on %q is not one of %s", what, strings.Join(accessFailures, ", "))
		case what == "delay" && !o.Delay:
			return usage("--fail-on delay needs --delay")
		}
	}
	for _, list := range f.trusted {
		for _, text := range strings.Split(list, ",") {
			p, err := audit.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return usage("--trusted-proxy: %v", err)
			}
			o.TrustedProxies = append(o.TrustedProxies, netip.PrefixFrom(p.Addr(), p.Bits()))
		}
	}
	var err error
	if o.Since, err = parseStamp(f.since); err != nil {
		return usage("--since: %v", err)
	}
	if o.Until, err = parseStamp(f.until); err != nil {
		return usage("--until: %v", err)
	}
	if f.unreachable <= 0 {
		return usage("--unreachable-limit %s is not above 0", f.unreachable)
	}
	o.UnreachableLimit = f.unreachable
	if o.Top < 1 {
		return usage("--top %d is not above 0", o.Top)
	}
	return nil
}

func parseStamp(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is not a time like 2026-01-31T12:00:00Z", s)
	}
	return t, nil
}

// write renders the report, all of it before the first byte is written.
func (f *accessFlags) write(a *app, rep *audit.AccessReport) error {
	var b bytes.Buffer
	var err error
	switch f.format {
	case "json":
		err = rep.WriteJSON(&b)
	case "csv":
		err = rep.WriteCSV(&b, f.list == "violations")
	case "html":
		err = rep.WriteHTML(&b)
	default:
		to := a.stdout
		if f.output != "" {
			to = nil
		}
		err = rep.WriteTable(&b, audit.TableStyle{Width: terminalWidth(to), Color: colored(to), ByPurpose: f.byPurpose})
	}
	if err != nil {
		return fail("write the report: %v", err)
	}
	if f.output == "" {
		if _, err := a.stdout.Write(b.Bytes()); err != nil {
			return fail("write the report: %v", err)
		}
		return nil
	}
	if err := os.WriteFile(f.output, b.Bytes(), 0o644); err != nil {
		return usage("--output: %v", err)
	}
	return nil
}

// colored tells whether colour is wanted on w: a terminal, and no NO_COLOR.
func colored(w io.Writer) bool {
	return w != nil && isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// terminalWidth is the width of w in columns: $COLUMNS, or what the terminal says, 100 for none.
func terminalWidth(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok && f != nil {
		if n := ttyColumns(f); n > 0 {
			return n
		}
	}
	return 100
}

// progressBar is one line on a terminal, drawn over and over.
type progressBar struct {
	w     io.Writer
	start time.Time
	drawn bool
}

func (p *progressBar) show(s audit.AccessProgress) {
	took := time.Since(p.start)
	if took < 500*time.Millisecond {
		return // a short run draws nothing
	}
	part := ""
	if s.Total > 0 {
		share := min(float64(s.Done)/float64(s.Total), 1)
		const width = 24
		n := int(share * width)
		part = fmt.Sprintf("[%s%s] %3.0f %%  ", strings.Repeat("#", n), strings.Repeat(".", width-n), share*100)
	}
	name := filepath.Base(s.Input)
	if len(name) > 30 {
		name = name[:29] + "~"
	}
	fmt.Fprintf(p.w, "\r\033[K%s%s lines, %s/s  %s", part, audit.Group(s.Lines), audit.Group(int64(float64(s.Lines)/took.Seconds())), audit.Printable(name, 30))
	p.drawn = true
}

func (p *progressBar) clear() {
	if p != nil && p.drawn {
		fmt.Fprint(p.w, "\r\033[K")
		p.drawn = false
	}
}
