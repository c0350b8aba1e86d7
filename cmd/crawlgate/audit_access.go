package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
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

// accessFlags are the flags of `audit access`: the same settings as the block audit.access of the configuration, and those
// that only make sense on a command line.
type accessFlags struct {
	audit.AccessConfig
	json bool
	o    audit.AccessOptions
}

func newAuditAccessCmd(a *app) *cobra.Command {
	f := accessFlags{AccessConfig: audit.AccessDefaults()}
	cmd := &cobra.Command{
		Use:   "access [flags] LOG...",
		Short: "what crawlers did to a web server, by its access logs and robots.txt",
		Long: `Reads a web server's access logs and tells of every known crawler what it fetched, whether it really came from who it
says, and which requests robots.txt forbade at their time. LOG is a file, a folder, a pattern, or - for standard input;
rotated files, compressed ones (gzip, bzip2, zstd, xz) and copies are put in order and counted once.

Formats are told by themselves: common, combined and vhost logs of Apache and nginx, W3C (IIS, CloudFront), JSON (nginx,
Caddy, Cloudflare Logpush, crawlgate), Squid, AWS load balancers. --log-format takes the text of an nginx log_format too.

The block audit.access of the configuration (--config) may hold the same settings, with _ for - in their names; a flag
that is given wins over it, a list as a whole.

Exit code 0 report written; 1 written, but --fail-on was hit, an input was cut short or a self-check failed; 2 nothing
written.`,
		Example: `  crawlgate audit access --robots robots.txt --host www.example.com /var/log/nginx/access.log*
  crawlgate audit access --robots robots-versions/ --ranges ranges/ --format html -o report.html logs/`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, a, args) },
	}
	fl := cmd.Flags()
	d := f.AccessConfig
	fl.StringArrayVar((*[]string)(&f.Robots), "robots", nil, "`PATH` of a robots.txt, or of a folder of versions: HOST/20260131T120000Z[.STATUS].txt, or index.jsonl (repeat)")
	fl.StringArrayVar((*[]string)(&f.Crawlers), "crawlers", nil, "`FILE` with definitions of crawlers instead of the built-in list; a later one replaces equal names (repeat)")
	fl.StringVar(&f.Ranges, "ranges", "", "folder `DIR` of published address ranges, in the form of googlebot.json")
	fl.StringArrayVar((*[]string)(&f.TrustedProxy), "trusted-proxy", nil, "`CIDR` whose X-Forwarded-For is believed (repeat, or with commas)")
	fl.StringVar(&f.DNSCache, "dns-cache", "", "`FILE` with answers of the DNS; --dns live adds to it")
	fl.StringVar(&f.DNS, "dns", "", "whether names confirm a crawler: `MODE` off, cache or live (default cache with --dns-cache, else off)")
	fl.StringArrayVar((*[]string)(&f.Sitemap), "sitemap", nil, "sitemap `FILE`, XML or text (repeat)")
	fl.StringVar(&f.Host, "host", "", "`NAME` of the host of lines that name none (default: the only one of --robots)")
	fl.StringVar(&f.LogFormat, "log-format", d.LogFormat, "`FORMAT` of the lines: auto, combined, common, vhost, w3c, json, squid, alb, crawlgate, or an nginx log_format")
	fl.StringVar(&f.Since, "since", "", "from `T` on: RFC 3339")
	fl.StringVar(&f.Until, "until", "", "before `T`")
	fl.DurationVar(&f.Grace, "grace", 0, "for `D` after a change of robots.txt, what it allowed before is still allowed")
	fl.BoolVar(&f.Delay, "delay", false, "check the gaps against Crawl-delay")
	fl.DurationVar(&f.DelayTolerance, "delay-tolerance", 0, "a gap may be shorter by `D`; 1s suits logs in whole seconds")
	fl.StringVar(&f.Dedupe, "dedupe", d.Dedupe, "count once what stands twice: `MODE` none, overlap (of a rotated file and the next) or lines (of several files)")
	fl.StringVar(&f.NoVersion, "no-version", d.NoVersion, "count requests before the first robots.txt `AS` unjudged or allowed")
	fl.StringVar(&f.Unverified, "unverified", d.Unverified, "count claims that can not be checked `AS` genuine or impersonated")
	fl.DurationVar(&f.UnreachableLimit, "unreachable-limit", d.UnreachableLimit, "an unreachable robots.txt forbids everything for `D`")
	fl.StringVar(&f.As, "as", "", "every request is the crawler `NAME`'s, as in egress logs")
	fl.IntVar(&f.Top, "top", d.Top, "list `N` addresses of impersonators")
	fl.IntVar(&f.Workers, "workers", 0, "work on `N` cores (default: all)")
	fl.StringVar(&f.Format, "format", "", "`FORM` table, json, csv or html (default: by the name of -o, else table on a terminal, else json)")
	fl.BoolVar(&f.json, "json", false, "same as --format json")
	fl.StringVarP(&f.Output, "output", "o", "", "write to `FILE`")
	fl.BoolVar(&f.ByPurpose, "by-purpose", false, "table: one block for each category")
	fl.StringVar(&f.List, "list", "", "with --format csv: `WHAT` violations instead of crawlers")
	fl.StringSliceVar((*[]string)(&f.FailOn), "fail-on", nil, "exit 1 if there are any of `WHAT`, a list of "+strings.Join(audit.AccessFailures, ", "))
	return cmd
}

func (f *accessFlags) run(cmd *cobra.Command, a *app, args []string) error {
	ctx := cmd.Context()
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if err := f.configured(a, given); err != nil {
		return err
	}
	if err := f.complete(a, given, args); err != nil {
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
	for _, what := range f.FailOn {
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

// configured fills every setting whose flag was not given from the configuration.
func (f *accessFlags) configured(a *app, given func(flag string) bool) error {
	// Nothing of the state is needed, nor a home to find it in.
	cfg, _, err := a.loader(identityFlags{}, map[string]string{"state_dir": "/nonexistent"})()
	if err != nil {
		return err
	}
	to, from := reflect.ValueOf(&f.AccessConfig).Elem(), reflect.ValueOf(cfg.Audit.Access)
	for i := range to.NumField() {
		if !given(accessFlag(to.Type().Field(i))) {
			to.Field(i).Set(from.Field(i))
		}
	}
	return nil
}

// accessFlag is the flag of a setting.
func accessFlag(f reflect.StructField) string {
	return strings.ReplaceAll(f.Tag.Get("mapstructure"), "_", "-")
}

// complete checks what the settings say together and makes the options of them.
func (f *accessFlags) complete(a *app, given func(flag string) bool, args []string) error {
	f.o = audit.AccessOptions{
		Logs: args, Stdin: a.stdin, Judge: accessJudge{}, Robots: f.Robots, Crawlers: f.Crawlers, Ranges: f.Ranges, DNS: f.DNS, DNSCache: f.DNSCache, Sitemaps: f.Sitemap,
		Host: f.Host, LogFormat: f.LogFormat, Grace: f.Grace, Delay: f.Delay, DelayTolerance: f.DelayTolerance, Dedupe: f.Dedupe, NoVersion: f.NoVersion,
		Unverified: f.Unverified, UnreachableLimit: f.UnreachableLimit, As: f.As, Top: f.Top, Workers: f.Workers,
	}
	o := &f.o
	if len(args) == 0 {
		return usage("no LOG given (a file, a folder, a pattern, or - for standard input)")
	}
	if err := f.form(a, given); err != nil {
		return err
	}
	for _, what := range f.FailOn {
		switch {
		case !slices.Contains(audit.AccessFailures, what):
			return usage("--fail-on %q is not one of %s", what, strings.Join(audit.AccessFailures, ", "))
		case what == "delay" && !o.Delay:
			return usage("--fail-on delay needs --delay")
		}
	}
	for _, list := range f.TrustedProxy {
		for _, text := range strings.Split(list, ",") {
			p, err := audit.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return usage("--trusted-proxy: %v", err)
			}
			o.TrustedProxies = append(o.TrustedProxies, netip.PrefixFrom(p.Addr(), p.Bits()))
		}
	}
	var err error
	if o.Since, err = audit.ParseStamp(f.Since); err != nil {
		return usage("--since: %v", err)
	}
	if o.Until, err = audit.ParseStamp(f.Until); err != nil {
		return usage("--until: %v", err)
	}
	if f.UnreachableLimit <= 0 {
		return usage("--unreachable-limit %s is not above 0", f.UnreachableLimit)
	}
	if o.Top < 1 {
		return usage("--top %d is not above 0", o.Top)
	}
	return nil
}

// form settles the form of the report.
func (f *accessFlags) form(a *app, given func(flag string) bool) error {
	if f.json {
		if given("format") && f.Format != "json" {
			return usage("--json and --format %s contradict each other", f.Format)
		}
		f.Format = "json"
	}
	if f.Format == "" {
		f.Format = "json"
		if f.Output == "" && isTerminal(a.stdout) {
			f.Format = "table"
		}
		if ext := filepath.Ext(f.Output); ext == ".html" || ext == ".csv" {
			f.Format = ext[1:]
		}
	}
	if !slices.Contains(audit.AccessFormats, f.Format) {
		return usage("--format %q is not one of %s", f.Format, strings.Join(audit.AccessFormats, ", "))
	}
	if f.List != "" && f.Format != "csv" && !given("list") {
		f.List = "" // the file's word is for csv
	}
	if f.List != "" && (f.List != "violations" || f.Format != "csv") {
		return usage("--list %q: only violations, and only with --format csv", f.List)
	}
	return nil
}

// write renders the report, all of it before the first byte is written.
func (f *accessFlags) write(a *app, rep *audit.AccessReport) error {
	var b bytes.Buffer
	var err error
	switch f.Format {
	case "json":
		err = rep.WriteJSON(&b)
	case "csv":
		err = rep.WriteCSV(&b, f.List == "violations")
	case "html":
		err = rep.WriteHTML(&b)
	default:
		to := a.stdout
		if f.Output != "" {
			to = nil
		}
		err = rep.WriteTable(&b, audit.TableStyle{Width: terminalWidth(to), Color: colored(to), ByPurpose: f.ByPurpose})
	}
	if err != nil {
		return fail("write the report: %v", err)
	}
	if f.Output == "" {
		if _, err := a.stdout.Write(b.Bytes()); err != nil {
			return fail("write the report: %v", err)
		}
		return nil
	}
	if err := os.WriteFile(f.Output, b.Bytes(), 0o644); err != nil {
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
