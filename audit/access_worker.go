package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
)

// Bounds of a worker's caches.
const (
	maxAgents   = 1 << 15
	maxClients  = 1 << 16
	maxTargets  = 1 << 16
	targetBytes = 16 << 20
	maxHosts    = 1 << 12
)

// accessWorker judges blocks of lines. Everything in it is its own.
type accessWorker struct {
	a      *auditor
	ctx    context.Context
	parser lineParser
	counts *accessCounts

	agents  map[string]int32
	clients map[clientKey]identity
	hosts   map[string]*hostVersions
	home    *hostVersions // of requests that name no host
	targets map[targetKey]targetVerdict
	held    int // bytes of targets
	normal  []byte
}

type clientKey struct {
	crawler int32
	addr    netip.Addr
}

// identity is whether a claim is true.
type identity uint8

const (
	unverified identity = iota
	verified
	impersonated
)

type hostVersions struct {
	name     string
	versions []*robotsVersion
}

type targetKey struct {
	version, crawler int32
	target           string
}

// targetVerdict is what is known of a target whenever it is asked for.
type targetVerdict struct {
	allowed   bool
	itself    bool
	parameter bool
	duplicate bool
	line      int32
	rule      string
}

func newAccessWorker(a *auditor, ctx context.Context) *accessWorker {
	return &accessWorker{
		a: a, ctx: ctx, counts: newAccessCounts(a), agents: map[string]int32{}, clients: map[clientKey]identity{},
		hosts: map[string]*hostVersions{}, targets: map[targetKey]targetVerdict{},
		home: &hostVersions{a.host, a.robots.of(a.host)},
	}
}

// block counts the lines of a block. A panic makes its line malformed, and the report a failed one.
func (w *accessWorker) block(b *logBlock) {
	in := &w.counts.inputs[b.input]
	for range b.overlong {
		in.lines++
		w.malformed(in, badStructure)
	}
	in.lines += int64(b.dropped)
	in.duplicates += int64(b.dropped)
	if w.ctx.Err() != nil {
		return
	}
	for data := b.data; len(data) > 0; {
		data = w.lines(b, data)
	}
}

// lines counts lines up to the end of data or to a panic, and gives what is left.
func (w *accessWorker) lines(b *logBlock, data []byte) (rest []byte) {
	in := &w.counts.inputs[b.input]
	rest = data
	defer func() {
		if r := recover(); r != nil {
			w.counts.faults++
			w.counts.fault = fmt.Sprint(r)
			w.malformed(in, badStructure)
		}
	}()
	for len(rest) > 0 {
		var line []byte
		line, rest = nextLine(rest)
		in.lines++
		w.line(b, in, line)
	}
	return rest
}

func (w *accessWorker) malformed(in *inputCounts, r reason) {
	in.malformed++
	w.counts.malformed[r]++
}

func (w *accessWorker) line(b *logBlock, in *inputCounts, line []byte) {
	if b.format != nil && b.format.kind == formatW3C && len(line) > 0 && line[0] == '#' {
		if bytes.HasPrefix(line, []byte(fieldsDirective)) {
			b.fields = parseFields(line)
		}
		if b.skip == 0 {
			in.comments++
			return
		}
	}
	switch {
	case b.skip > 0:
		b.skip--
		in.duplicates++
		return
	case isBlank(line):
		in.blank++
		return
	case len(line) > maxAccessLine:
		w.malformed(in, badStructure)
		return
	case w.a.seen != nil && !w.a.seen.add(b.input, line):
		in.duplicates++
		return
	}
	switch r := w.parser.parse(line, b.format, b.fields); r {
	case lineOK:
	case lineComment:
		in.comments++
		return
	default:
		w.malformed(in, r)
		return
	}
	e := &w.parser.e
	if e.time < w.a.since || e.time >= w.a.until {
		in.filtered++
		return
	}
	j := w.judge(e)
	// From here on nothing can fail: a line is counted whole or not at all.
	in.requests++
	w.count(e, &j)
}

// judgement is what came of one request.
type judgement struct {
	crawler  int32 // -1: no known one
	identity identity
	client   netip.Addr
	host     *hostVersions
	version  *robotsVersion // nil: unjudged, or no version
	judged   bool
	allowed  bool
	grace    bool
	verdict  targetVerdict
	sitemap  bool // not listed
	noindex  bool
	nofollow bool
}

func (w *accessWorker) judge(e *entry) judgement {
	j := judgement{crawler: w.a.as}
	if j.crawler < 0 {
		if j.crawler = w.claimed(e.agent); j.crawler < 0 {
			return j
		}
	}
	j.client = clientOf(e.peer, e.xff, w.a.trusted)
	if j.identity = w.identify(j.crawler, j.client, e.own || w.a.as >= 0); j.identity == impersonated {
		return j
	}
	j.host = w.hostOf(e.host)
	if len(e.target) > 0 {
		w.judgeTarget(e, &j)
	}
	if len(e.tag) > 0 && (!j.judged || j.allowed) {
		j.noindex, j.nofollow = w.a.crawlers.all[j.crawler].indexing(e.tag)
	}
	return j
}

func (w *accessWorker) judgeTarget(e *entry, j *judgement) {
	vs := j.host.versions
	i := at(vs, e.time)
	if i < 0 {
		j.verdict = w.target(nil, j.crawler, e.target)
		j.judged = w.a.o.NoVersion == "allowed"
		j.allowed = j.judged
	} else {
		j.judged, j.version = true, vs[i]
		j.verdict = w.target(vs[i], j.crawler, e.target)
		j.allowed = allows(vs[i], &j.verdict, e.time)
		if !j.allowed && w.a.robots.grace > 0 {
			j.grace = w.graced(vs, i, j.crawler, e)
			j.allowed = j.grace
		}
	}
	if w.a.sitemap != nil && !j.verdict.itself {
		w.normal = appendNormal(w.normal[:0], e.target)
		j.sitemap = !w.a.sitemap.has(j.host.name, w.normal)
	}
}

// allows tells whether a version allows a target at t.
func allows(v *robotsVersion, t *targetVerdict, at int64) bool {
	switch v.kind() {
	case robotsRules:
		return t.allowed
	case robotsUnreachable:
		return t.itself || at >= v.open
	default:
		return true
	}
}

// graced tells whether an earlier version, in effect at a moment after t minus grace, allows the target.
func (w *accessWorker) graced(vs []*robotsVersion, i int, crawler int32, e *entry) bool {
	for i--; i >= 0 && vs[i].next > e.time-w.a.robots.grace; i-- {
		t := w.target(vs[i], crawler, e.target)
		if allows(vs[i], &t, vs[i].next-1) {
			return true
		}
	}
	return false
}

// target looks a target up in a version, nil for none.
func (w *accessWorker) target(v *robotsVersion, crawler int32, target []byte) targetVerdict {
	index, rules := int32(-1), v != nil && v.kind() == robotsRules
	if rules {
		index = v.index
	} else {
		crawler = -1
	}
	t, ok := w.targets[targetKey{index, crawler, string(target)}]
	if ok {
		return t
	}
	group := w.a.robots.nobody
	if rules {
		group = v.group(w.a.crawlers, crawler)
	}
	text := string(target)
	m := group.Match(text)
	t = targetVerdict{allowed: m.Allowed, itself: m.Itself, line: int32(m.Line)}
	if !m.Allowed {
		t.rule = m.Rule
	}
	t.parameter, t.duplicate = spelling(target)
	if len(w.targets) >= maxTargets || w.held > targetBytes {
		clear(w.targets)
		w.held = 0
	}
	w.targets[targetKey{index, crawler, text}] = t
	w.held += len(text)
	return t
}

func (w *accessWorker) claimed(agent []byte) int32 {
	if len(agent) == 0 {
		return -1
	}
	if c, ok := w.agents[string(agent)]; ok {
		return c
	}
	c := w.a.crawlers.claimed(agent)
	if len(agent) <= 4096 {
		if len(w.agents) >= maxAgents {
			clear(w.agents)
		}
		w.agents[string(agent)] = c
	}
	return c
}

func (w *accessWorker) identify(crawler int32, client netip.Addr, asserted bool) identity {
	c := w.a.crawlers.all[crawler]
	k := clientKey{crawler, client}
	id, ok := w.clients[k]
	if !ok {
		id = w.verify(c, client)
		if len(w.clients) >= maxClients {
			clear(w.clients)
		}
		w.clients[k] = id
	}
	switch {
	case c.Category == controlToken && !asserted:
		return impersonated
	case id == impersonated && asserted:
		return unverified
	case id == unverified && w.a.o.Unverified == "impersonated" && !asserted:
		return impersonated
	}
	return id
}

// verify tells whether an address is one of a crawler's.
func (w *accessWorker) verify(c *crawler, client netip.Addr) identity {
	if !client.IsValid() {
		return unverified
	}
	if c.ranges.contains(client) {
		return verified
	}
	switch w.a.dns.confirms(w.ctx, client, c.RDNS) {
	case dnsYes:
		return verified
	case dnsNo:
		return impersonated
	default:
	}
	if c.known {
		return impersonated
	}
	return unverified
}

func (w *accessWorker) hostOf(raw []byte) *hostVersions {
	if len(raw) == 0 {
		return w.home
	}
	if h, ok := w.hosts[string(raw)]; ok {
		return h
	}
	name := hostName(raw)
	h := &hostVersions{name, w.a.robots.of(name)}
	if name == "" {
		h = w.home
	}
	if len(w.hosts) >= maxHosts {
		clear(w.hosts)
	}
	w.hosts[string(raw)] = h
	return h
}
