package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"crawlgate/policy"

	"github.com/google/go-cmp/cmp"
)

// The oracle is an access audit in the plainest way: every line at once in memory, standard library for everything, no
// cache, one request after the other. It knows combined logs only. Random logs must give it and the command the same
// report.

type oracleCrawler struct {
	Name, Category string
	UA             []string `json:"ua_tokens"`
	Tokens         []string `json:"robots_tokens"`
	Files          []string `json:"ranges_files"`
	RDNS           []string `json:"rdns_suffixes"`
	nets           []netip.Prefix
}

type oracleVersion struct {
	host   string
	at     time.Time
	status int
	rules  *policy.Ruleset
}

type oracle struct {
	crawlers   []oracleCrawler
	versions   []oracleVersion // by host and time
	ptr        map[string]struct{ Names []string }
	forward    map[string]struct{ Addresses []string }
	trusted    []netip.Prefix
	host       string
	grace      time.Duration
	limit      time.Duration
	tolerance  time.Duration
	since      time.Time
	until      time.Time
	noVersion  bool // allowed
	strict     bool // unverified is impersonated
	totals     map[string]int
	malformed  map[string]int
	perCrawler map[string]map[string]int
	broken     map[string]map[string]int // by crawler: host, line, rule, reason -> requests
	times      map[string]map[string][]time.Time
}

type oracleRequest struct {
	peer, xff, host, target, agent string
	at                             time.Time
	status                         int
}

// parse gives a request or why it is none.
func (o *oracle) parse(line string) (r oracleRequest, why string) {
	words := strings.SplitN(line, " ", 3)
	if len(words) < 3 || words[0] == "" || words[1] == "" {
		return r, "structure"
	}
	_, err := netip.ParseAddr(words[0])
	r.peer = words[0]
	rest := words[1] + " " + words[2]
	if err != nil {
		if _, err := netip.ParseAddr(words[1]); err == nil {
			r.host, r.peer, rest = words[0], words[1], words[2]
		}
	}
	_, rest, ok := strings.Cut(rest, " ") // ident
	if !ok {
		return r, "structure"
	}
	user, rest, ok := strings.Cut(rest, " [")
	if !ok || user == "" {
		return r, "structure"
	}
	clock, rest, ok := strings.Cut(rest, "]")
	if !ok {
		return r, "structure"
	}
	request, rest, ok := oracleQuoted(rest)
	if !ok {
		return r, "structure"
	}
	parts := strings.SplitN(strings.TrimLeft(rest, " "), " ", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return r, "structure"
	}
	rest = ""
	if len(parts) == 3 {
		rest = parts[2]
	}
	if strings.Trim(rest, " ") != "" {
		if _, rest, ok = oracleQuoted(rest); !ok {
			return r, "structure"
		}
		if r.agent, rest, ok = oracleQuoted(rest); !ok {
			return r, "structure"
		}
		if r.agent == "-" {
			r.agent = ""
		}
		if rest = strings.TrimLeft(rest, " "); rest != "" {
			x := strings.SplitN(rest, " ", 2)[0]
			if rest[0] == '"' {
				if x, _, ok = oracleQuoted(rest); !ok {
					return r, "structure"
				}
			}
			good := true
			for _, el := range strings.Split(x, ",") {
				el = strings.Trim(el, " \t")
				_, isAddr := oracleForwarded(el)
				good = good && (isAddr || strings.EqualFold(el, "unknown") || len(el) > 1 && el[0] == '_')
			}
			if good {
				r.xff = x
			}
		}
	}
	if _, err := netip.ParseAddr(r.peer); err != nil {
		return r, "address"
	}
	leap := strings.Contains(clock, ":60 ")
	if leap {
		clock = strings.Replace(clock, ":60 ", ":59 ", 1)
	}
	if r.at, err = time.Parse("02/Jan/2006:15:04:05 -0700", clock); err != nil || len(clock) != 26 {
		return r, "time"
	}
	method, target, ok := strings.Cut(request, " ")
	if i := strings.LastIndex(target, " "); i >= 0 && strings.HasPrefix(target[i+1:], "HTTP/") {
		target = target[:i]
	}
	if !ok || method == "" || !strings.Contains("abcdefghijklmnopqrstuvwxyz", strings.ToLower(method[:1])) || target == "" {
		return r, "request"
	}
	switch {
	case target[0] == '/':
		r.target, _, _ = strings.Cut(target, "#")
	case target == "*":
	case method == "CONNECT":
		r.host = target
	default:
		scheme := oracleScheme.FindString(target)
		if scheme == "" {
			return r, "request"
		}
		after := target[len(scheme):]
		i := strings.IndexAny(after, "/?#")
		if i < 0 {
			i = len(after)
		}
		r.host = after[strings.LastIndex(after[:i], "@")+1 : i]
		if r.host == "" {
			return r, "request"
		}
		r.target, _, _ = strings.Cut(after[i:], "#")
		if !strings.HasPrefix(r.target, "/") {
			r.target = "/" + r.target
		}
	}
	if len(parts[0]) != 3 || strings.Trim(parts[0], "0123456789") != "" {
		return r, "status"
	}
	r.status, _ = strconv.Atoi(parts[0])
	return r, ""
}

var oracleScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

func oracleQuoted(s string) (value, rest string, ok bool) {
	s = strings.TrimLeft(s, " ")
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		if s[i] == '"' && (i+1 == len(s) || s[i+1] == ' ') {
			value = s[1:i]
			if u, err := strconv.Unquote(`"` + strings.ReplaceAll(value, `"`, `\"`) + `"`); err == nil && !strings.Contains(value, `\"`) {
				value = u
			} else {
				value = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(value)
			}
			return value, s[i+1:], true
		}
	}
	return "", "", false
}

func oracleForwarded(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t\"")
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a.Unmap(), err == nil && (!strings.HasPrefix(s, "[") || a.Is6())
}

func (o *oracle) isTrusted(a netip.Addr) bool {
	return slices.ContainsFunc(o.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (o *oracle) client(r *oracleRequest) netip.Addr {
	a := netip.MustParseAddr(r.peer).Unmap()
	if r.xff == "" {
		return a
	}
	for _, el := range slices.Backward(strings.Split(r.xff, ",")) {
		if !o.isTrusted(a) {
			break
		}
		next, ok := oracleForwarded(el)
		if !ok {
			break
		}
		a = next
	}
	return a
}

func (o *oracle) claim(agent string) *oracleCrawler {
	var best *oracleCrawler
	at, length := len(agent), 0
	lower := strings.ToLower(agent)
	for i := range o.crawlers {
		for _, token := range o.crawlers[i].UA {
			token = strings.ToLower(token)
			for from := 0; ; {
				k := strings.Index(lower[from:], token)
				if k < 0 {
					break
				}
				k += from
				from = k + 1
				end := k + len(token)
				if (k == 0 || strings.ContainsRune(" \t(;,\"[", rune(agent[k-1]))) && (end == len(agent) || strings.ContainsRune(" \t/;,)\"]", rune(agent[end]))) &&
					(k < at || k == at && len(token) > length) {
					best, at, length = &o.crawlers[i], k, len(token)
				}
			}
		}
	}
	return best
}

// identity is verified, unverified or impersonated.
func (o *oracle) identity(c *oracleCrawler, a netip.Addr) string {
	if c.Category == "control-token" {
		return "impersonated"
	}
	for _, p := range c.nets {
		if p.Contains(a) {
			return "verified"
		}
	}
	known := len(c.Files) > 0
	verdict := "no data"
	if len(c.RDNS) > 0 {
		if e, ok := o.ptr[a.String()]; ok {
			verdict = "no"
			for _, n := range e.Names {
				n = strings.TrimSuffix(strings.ToLower(n), ".")
				for _, s := range c.RDNS {
					if n == s || strings.HasSuffix(n, "."+s) {
						f, ok := o.forward[n]
						if !ok {
							verdict = "no data"
						}
						for _, x := range f.Addresses {
							if netip.MustParseAddr(x).Unmap() == a {
								return "verified"
							}
						}
					}
				}
			}
		}
	}
	if known || verdict == "no" || o.strict {
		return "impersonated"
	}
	return "unverified"
}

func oracleHost(h string) string {
	h = strings.ToLower(h)
	h = strings.TrimSuffix(strings.TrimSuffix(h, ":443"), ":80")
	return strings.TrimSuffix(h, ".")
}

func (o *oracle) of(host string) (out []oracleVersion) {
	for _, v := range o.versions {
		if v.host == host {
			out = append(out, v)
		}
	}
	return out
}

// allows judges by version number i of a host at t.
func (o *oracle) allows(vs []oracleVersion, i int, c *oracleCrawler, target string, t time.Time) (bool, policy.Match) {
	v := vs[i]
	if v.status >= 500 {
		run := i
		for run > 0 && vs[run-1].status >= 500 {
			run--
		}
		itself := policy.Parse(nil).Group("x").MatchString(target).Class == policy.ClassRobotsItself
		return itself || t.Sub(vs[run].at) >= o.limit, policy.Match{}
	}
	if v.status >= 300 {
		return true, policy.Match{}
	}
	m := v.rules.Group(c.Tokens[0], c.Tokens[1:]...).MatchString(target)
	return m.Allowed, m
}

func (o *oracle) line(line string) {
	o.totals["lines"]++
	if strings.TrimSpace(line) == "" {
		o.totals["blank"]++
		return
	}
	r, why := o.parse(line)
	if why != "" {
		o.totals["malformed"]++
		o.malformed[why]++
		return
	}
	if !o.since.IsZero() && r.at.Before(o.since) || !o.until.IsZero() && !r.at.Before(o.until) {
		o.totals["filtered"]++
		return
	}
	o.totals["requests"]++
	c := o.claim(r.agent)
	if c == nil {
		o.totals["not_crawler"]++
		return
	}
	n := o.perCrawler[c.Name]
	if n == nil {
		n = map[string]int{}
		o.perCrawler[c.Name] = n
	}
	n["total"]++
	identity := o.identity(c, o.client(&r))
	n[identity]++
	if identity == "impersonated" {
		return
	}
	n["genuine"]++
	host := o.host
	if h := oracleHost(r.host); h != "" {
		host = h
	}
	if o.times[c.Name] == nil {
		o.times[c.Name] = map[string][]time.Time{}
	}
	o.times[c.Name][host] = append(o.times[c.Name][host], r.at)
	waste := false
	mark := func(key string, is bool) {
		if is {
			n[key]++
			waste = true
		}
	}
	mark("redirect", r.status >= 300 && r.status < 400 && r.status != 304)
	mark("client_error", r.status >= 400 && r.status < 500)
	mark("server_error", r.status >= 500 && r.status < 600)
	path, query, asked := strings.Cut(r.target, "?")
	mark("parameter", query != "")
	duplicate := asked && query == "" || strings.Contains(path, "//")
	for i, s := range strings.Split(path, "/") {
		duplicate = duplicate || s == "." || s == ".."
		if i == strings.Count(path, "/") {
			duplicate = duplicate || slices.Contains([]string{"index.html", "index.htm", "index.php", "default.aspx"}, s)
		}
	}
	for _, p := range strings.Split(query, "&") {
		name, _, _ := strings.Cut(p, "=")
		duplicate = duplicate || strings.HasPrefix(name, "utm_") || slices.Contains([]string{"gclid", "sid", "phpsessid"}, strings.ToLower(name))
	}
	mark("duplicate", duplicate)
	verdict := "unjudged"
	vs := o.of(host)
	i := -1
	for k, v := range vs {
		if !v.at.After(r.at) {
			i = k
		}
	}
	if r.target != "" {
		if i < 0 {
			if o.noVersion {
				verdict = "allowed"
			}
		} else {
			allowed, m := o.allows(vs, i, c, r.target, r.at)
			verdict = "allowed"
			if !allowed {
				verdict = "disallowed"
				for k := i - 1; k >= 0 && o.grace > 0; k-- {
					end := vs[k+1].at
					if end.After(r.at.Add(-o.grace)) {
						if ok, _ := o.allows(vs, k, c, r.target, end.Add(-time.Millisecond)); ok {
							verdict = "allowed"
						}
					}
				}
				if verdict == "allowed" {
					n["grace"]++
				} else {
					if o.broken[c.Name] == nil {
						o.broken[c.Name] = map[string]int{}
					}
					o.broken[c.Name][fmt.Sprintf("%s %s %d %s", host, vs[i].at.UTC().Format("2006-01-02T15:04:05.000Z"), m.Line, m.Rule)]++
				}
			}
		}
	}
	n[verdict]++
	mark("np_disallowed", verdict == "disallowed")
	if waste {
		n["np_total"]++
	}
}

// delays counts checked gaps and short ones.
func (o *oracle) delays(c *oracleCrawler) (checked, short int) {
	for host, times := range o.times[c.Name] {
		sort.Slice(times, func(i, j int) bool { return times[i].Before(times[j]) })
		for k := 1; k < len(times); k++ {
			var v *oracleVersion
			for _, x := range o.of(host) {
				if !x.at.After(times[k]) {
					v = &x
				}
			}
			if v == nil || v.rules == nil {
				continue
			}
			if d, source, _ := v.rules.Group(c.Tokens[0], c.Tokens[1:]...).Delay(times[k]); source == "crawl-delay" && d > 0 {
				checked++
				if times[k].Sub(times[k-1]) < d-o.tolerance {
					short++
				}
			}
		}
	}
	return checked, short
}

// TestAuditAccessOracle compares reports of random logs with the oracle's.
func TestAuditAccessOracle(t *testing.T) {
	common, err := filepath.Abs(filepath.Join(accessVectors, "common"))
	if err != nil {
		t.Fatal(err)
	}
	var base oracle
	var list struct{ Crawlers []oracleCrawler }
	var dns struct {
		PTR     map[string]struct{ Names []string }
		Forward map[string]struct{ Addresses []string }
	}
	read := func(name string, v any) {
		body, err := os.ReadFile(filepath.Join(common, name))
		if err == nil {
			err = json.Unmarshal(body, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read("crawlers.json", &list)
	read("dns.json", &dns)
	base.crawlers, base.ptr, base.forward = list.Crawlers, dns.PTR, dns.Forward
	for addr, e := range base.ptr {
		if e.Names == nil && addr != "203.0.113.46" { // servfail is no data
			delete(base.ptr, addr)
		}
	}
	for i := range base.crawlers {
		for _, f := range base.crawlers[i].Files {
			var r struct{ Prefixes []map[string]string }
			read("ranges/"+f, &r)
			for _, p := range r.Prefixes {
				for _, text := range p {
					base.crawlers[i].nets = append(base.crawlers[i].nets, netip.MustParsePrefix(text).Masked())
				}
			}
		}
	}
	base.trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 20251103))
		o := base
		runOracle(t, rnd, &o, common)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func runOracle(t *testing.T, rnd *rand.Rand, o *oracle, common string) {
	dir := t.TempDir()
	o.totals, o.malformed = map[string]int{}, map[string]int{}
	o.perCrawler, o.broken, o.times = map[string]map[string]int{}, map[string]map[string]int{}, map[string]map[string][]time.Time{}
	o.host, o.limit = "www.example.com", oneOf(rnd, 720*time.Hour, time.Hour)
	o.grace, o.tolerance = oneOf(rnd, 0, 0, 20*time.Minute, 5*time.Hour), oneOf(rnd, 0, time.Second)
	o.noVersion, o.strict = rnd.IntN(3) == 0, rnd.IntN(3) == 0
	start := time.Date(2025, 11, 3, 9, 0, 0, 0, time.UTC)
	args := []string{"--robots", dir + "/robots", "--crawlers", common + "/crawlers.json", "--ranges", common + "/ranges", "--dns-cache", common + "/dns.json",
		"--trusted-proxy", "10.0.0.0/29", "--host", o.host, "--grace", o.grace.String(), "--unreachable-limit", o.limit.String(), "--delay", "--delay-tolerance", o.tolerance.String(),
		"--workers", fmt.Sprint(1 + rnd.IntN(4))}
	if o.noVersion {
		args = append(args, "--no-version", "allowed")
	}
	if o.strict {
		args = append(args, "--unverified", "impersonated")
	}
	if rnd.IntN(4) == 0 {
		o.since, o.until = start.Add(20*time.Minute), start.Add(3*time.Hour)
		args = append(args, "--since", o.since.Format(time.RFC3339), "--until", o.until.Format(time.RFC3339))
	}
	for _, host := range []string{"www.example.com", "shop.example.org"} {
		at := start.Add(time.Duration(rnd.IntN(20)-10) * time.Minute)
		for range 1 + rnd.IntN(5) {
			v := oracleVersion{host: host, at: at, status: oneOf(rnd, 200, 200, 200, 404, 503, 500, 301)}
			name := at.Format("20060102T150405Z")
			var body string
			if v.status == 200 {
				for range 1 + rnd.IntN(4) {
					body += "User-agent: " + oneOf(rnd, "*", "GPTBot", "googlebot", "ClaudeBot", "UnlobBot/1") + "\n"
					for range rnd.IntN(5) {
						body += oneOf(rnd, "Disallow: /", "Disallow: /a", "Allow: /a/b", "Disallow: /*?", "Disallow: /*.pdf$", "Disallow:", "Crawl-delay: 3", "Crawl-delay: 1.5", "Allow: /$") + "\n"
					}
				}
				v.rules = policy.Parse([]byte(body))
			} else {
				name += fmt.Sprintf(".%d", v.status)
			}
			if err := os.MkdirAll(filepath.Join(dir, "robots", host), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "robots", host, name+".txt"), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
			o.versions = append(o.versions, v)
			at = at.Add(time.Duration(1+rnd.IntN(200)) * time.Minute)
		}
	}
	var files []string
	for f := range 1 + rnd.IntN(3) {
		var log strings.Builder
		for range rnd.IntN(400) {
			line := randomLine(rnd, start)
			o.line(strings.TrimSuffix(line, "\r"))
			log.WriteString(line + "\n")
		}
		// A first line that is in the format for sure, and different in each file.
		first := fmt.Sprintf(`192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "GET /file%d HTTP/1.1" 200 1 "-" "x"`, f)
		var text string
		for range 20 {
			o.line(first)
			text += first + "\n"
		}
		path := filepath.Join(dir, fmt.Sprintf("log%d", f))
		if err := os.WriteFile(path, []byte(text+log.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	out, errs, code := runAccess(t, "", append(args, files...)...)
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	rnd.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	if again, _, _ := runAccess(t, "", append(append(args, files...), "--workers", "8")...); again != out {
		t.Error("other bytes for shuffled arguments and 8 workers")
	}
	compareOracle(t, o, out)
}

func randomLine(rnd *rand.Rand, start time.Time) string {
	at := start.Add(time.Duration(rnd.IntN(6*3600)) * time.Second)
	if rnd.IntN(3) == 0 {
		at = at.In(time.FixedZone("", oneOf(rnd, 3600, -5*3600, 5*3600+1800)))
	}
	addr := oneOf(rnd, "192.0.2.1", "192.0.2.17", "198.51.100.70", "203.0.113.42", "203.0.113.43", "203.0.113.45", "203.0.113.46", "203.0.113.47", "203.0.113.10", "203.0.113.99", "203.0.113.200", "10.0.0.5", "10.0.0.9",
		"::ffff:192.0.2.2", "2001:db8:a::1", "2001:db8:6::7", "::ffff:10.0.0.5")
	agent := oneOf(rnd, "GPTBot/1.3", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "x (ClaudeBot) GPTBot", "UnlobBot/1.0", "Amazonbot", "Bytespider;", "Google-Extended/1.0", "NotGPTBot", "Firefox", "-", `a \"GPTBot\" b`, "Googlebot-Image/1.0", "[OAI-SearchBot]")
	target := oneOf(rnd, "/", "/a", "/a/b", "/a/b?x", "/x.pdf", "/x.pdf?y=1", "/robots.txt", "/%72obots.txt", "//a", "/a/../b", "/index.html", "/q?utm_source=1", "/q?PHPSESSID=1", "/q?", "/A", "/a b", "/a#b", "*", "http://shop.example.org:80/a", "http://shop.example.org", "http://other.example/a?b", "relative", "/index.htm/x")
	method := oneOf(rnd, "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "9GET")
	line := fmt.Sprintf(`%s %s %s [%s] "%s %s HTTP/1.1" %s %s`, addr, oneOf(rnd, "-", "id"), oneOf(rnd, "-", "frank", "frank s"), at.Format("02/Jan/2006:15:04:05 -0700"), method, target,
		oneOf(rnd, "200", "200", "304", "301", "404", "503", "000", "2000"), oneOf(rnd, "-", "123"))
	if rnd.IntN(8) > 0 {
		line += ` "` + oneOf(rnd, "-", "http://x/", `a\\`) + `" "` + agent + `"`
		if rnd.IntN(3) == 0 {
			line += ` "` + oneOf(rnd, "192.0.2.3", "203.0.113.9, 192.0.2.4", "192.0.2.4, 10.0.0.6", "192.0.2.4, 10.0.0.99", "unknown", "192.0.2.4, unknown", "_x, 10.0.0.3", "[2001:db8:a::7]:4711", "192.0.2.7:5555", "-", "gzip", "10.0.0.6, 10.0.0.7", "::ffff:192.0.2.6") + `"`
		}
	}
	if rnd.IntN(4) == 0 {
		line = oneOf(rnd, "www.example.com", "SHOP.example.org:443", "shop.example.org.", "other.example") + " " + line
	}
	if rnd.IntN(10) == 0 { // damage
		b := []byte(line)
		switch i := rnd.IntN(len(b)); rnd.IntN(3) {
		case 0:
			b[i] = oneOf[byte](rnd, ' ', '"', '[', ']', '0', 'x', '\\')
		case 1:
			b = b[:i]
		default:
			b = slices.Delete(b, i, i+1)
		}
		line = string(b)
	}
	if rnd.IntN(20) == 0 {
		line = oneOf(rnd, "", "  ", "\t")
	}
	if rnd.IntN(5) == 0 {
		line += "\r"
	}
	return line
}

func compareOracle(t *testing.T, o *oracle, out string) {
	t.Helper()
	var rep struct {
		Totals, Malformed map[string]int
		Crawlers          map[string]struct {
			Total, Genuine, Verified, Unverified, Impersonated, Allowed, Disallowed, Unjudged, Grace int
			NonProductive                                                                            map[string]int `json:"non_productive"`
			CrawlDelay                                                                               map[string]int `json:"crawl_delay"`
			Violations                                                                               []struct {
				Host, Version, Rule string
				Line, Requests      int
			}
		}
		SelfCheck struct{ OK bool }
	}
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatal(err)
	}
	if !rep.SelfCheck.OK {
		t.Error("self-check failed")
	}
	for _, k := range []string{"lines", "blank", "malformed", "filtered", "requests", "not_crawler"} {
		if rep.Totals[k] != o.totals[k] {
			t.Errorf("%s: %d, oracle %d", k, rep.Totals[k], o.totals[k])
		}
	}
	for k, n := range rep.Malformed {
		if n != o.malformed[k] {
			t.Errorf("malformed %s: %d, oracle %d", k, n, o.malformed[k])
		}
	}
	if len(rep.Crawlers) != len(o.perCrawler) {
		t.Errorf("%d crawlers, oracle %d", len(rep.Crawlers), len(o.perCrawler))
	}
	for i := range o.crawlers {
		name := o.crawlers[i].Name
		n, c := o.perCrawler[name], rep.Crawlers[name]
		checked, short := o.delays(&o.crawlers[i])
		want := []int{n["total"], n["genuine"], n["verified"], n["unverified"], n["impersonated"], n["allowed"], n["disallowed"], n["unjudged"], n["grace"], n["np_total"], n["np_disallowed"],
			n["parameter"], n["duplicate"], n["redirect"], n["client_error"], n["server_error"], checked, short}
		p := c.NonProductive
		got := []int{c.Total, c.Genuine, c.Verified, c.Unverified, c.Impersonated, c.Allowed, c.Disallowed, c.Unjudged, c.Grace, p["total"], p["disallowed"],
			p["parameter"], p["duplicate"], p["redirect"], p["client_error"], p["server_error"], c.CrawlDelay["checked"], c.CrawlDelay["violations"]}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (oracle -, report +): %s", name, d)
		}
		broken := map[string]int{}
		for _, v := range c.Violations {
			broken[fmt.Sprintf("%s %s %d %s", v.Host, v.Version, v.Line, v.Rule)] += v.Requests
		}
		if d := cmp.Diff(o.broken[name], broken); d != "" && len(broken)+len(o.broken[name]) > 0 {
			t.Errorf("%s: violations (oracle -, report +): %s", name, d)
		}
	}
}
