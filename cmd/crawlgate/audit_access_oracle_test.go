package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"crawlgate/policy"
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
