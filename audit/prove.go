package audit

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ProofSchema names the form of a proof.
const ProofSchema = "crawlgate.audit.proof/1"

// Checks of a proof (audit trail, B12).
const (
	CheckChain    = "chain"         // the log is whole
	CheckRules    = "rules"         // robots.txt in effect allowed it
	CheckPace     = "pace"          // the gap and the back-off that were owed passed
	CheckOne      = "one_at_a_time" // no two requests of one host overlap, beyond what rides along with a page
	CheckAddress  = "address"       // it went to a public address that the name had given
	CheckIdentity = "identity"      // under the agent's name, signed where that is promised
	CheckComplete = "complete"      // nothing is missing from the log
)

var proofChecks = []string{CheckChain, CheckRules, CheckPace, CheckOne, CheckAddress, CheckIdentity, CheckComplete}

// Why a sent request cannot be proven.
const (
	UnprovenTunnel = "opaque_tunnel"       // what went through the tunnel was not seen
	UnprovenConfig = "other_configuration" // it went out under a configuration that is not at hand
	UnprovenQuery  = "query_masked"        // a rule looks at the part of the query that was masked
	UnprovenKey    = "key_not_known"       // no key set at hand holds the key, nor was one named that should
)

// ProofOptions say what a log is proven against.
type ProofOptions struct {
	// Archive is the folder of the robots.txt archive (state_dir/robots). It is only read.
	Archive string
	// Policies are the configurations at hand, by the hash that events name (policy_sha256).
	Policies map[string]*ProofPolicy
	// Special names the special-purpose block of an address, "" for a public one.
	Special func(netip.Addr) string
	// Key says why a signature key was not valid at a time, "" if it was, [KeyNotKnown] if nobody can tell.
	Key func(id string, at time.Time) string
	// Chain is how the chain is verified.
	Chain VerifyOptions
	// Since and Until choose the requests that are judged, by the time of receipt, half-open. What came before still
	// counts for the gaps.
	Since, Until time.Time
}

// KeyNotKnown is what ProofOptions.Key answers when it can neither confirm nor deny a key.
const KeyNotKnown = "?"

// ProofPolicy is one configuration.
type ProofPolicy struct {
	Profiles map[string]*ProofProfile
	Pacing   ProofPacing
	// Exception tells whether the allow_private item of that name opens an address and port.
	Exception func(name string, a netip.Addr, port int) bool
}

// ProofPacing are the settings of back-off and slowing down (pacing, sections 2 and 7).
type ProofPacing struct {
	LongestDelay, RetryAfterCap, BackoffBase, BackoffCap, ForgetAfter time.Duration
	BackoffFactor                                                     float64
	SlowWindow, SlowDecay                                             time.Duration
	SlowLevels, SlowRecover                                           int
	Riders                                                            int // in flight per host
}

// ProofProfile is what one profile promises.
type ProofProfile struct {
	Agent        string
	UserAgent    string // as sent
	PassUA       bool   // the fetcher's own goes out
	Sign         string // sites, all, never
	SignAgent    string // URL of the agent's keys; "": nothing is signed
	SignRequired bool   // never unsigned for want of a key

	// Ignore says that robots.txt is not read: such requests are exempt, and counted.
	Ignore bool
	// Rules compiles an archived body as it binds this profile: its tokens, mode and signals.
	Rules func(body []byte) ProofRules
	// What a file that is not there, or cannot be read, means.
	AllowUnreadable, DenyForbidden, DenyRedirects bool
	StaleUse                                      time.Duration // how old a copy may become while the file cannot be read; 0: not at all
	ThirdPartyOwn                                 bool          // a page's files on other hosts need the host's own rules read first

	// Unpaced says that no turns are kept: such requests are exempt, and counted.
	Unpaced  bool
	Gap      time.Duration
	Parallel int
	// OwnRedirects, OwnCompanions: they wait like pages. FreeRobots: robots.txt keeps no gap.
	OwnRedirects, OwnCompanions, FreeRobots bool
	// Domain names the wider key that turns are kept for as well; nil: hosts alone.
	Domain func(host string) string
}

// ProofRules is a compiled robots.txt.
type ProofRules interface {
	// Judge decides about a URL as it stands in the log, at a time (delays may have hours).
	Judge(url string, at time.Time) ProofVerdict
	// Depends tells whether what is not known of a URL could change the decision. Between its parts stand masked values,
	// which hold neither & nor ; nor ?; with open anything may follow.
	Depends(parts []string, open bool, at time.Time) bool
}

// ProofVerdict is what a file says about a URL.
type ProofVerdict struct {
	Allowed bool
	Reason  string // code of a refusal
	Rule    string // the deciding line
	Line    int
	Delay   time.Duration // asked for between requests
}

// prover gathers a proof.
type prover struct {
	opt     ProofOptions
	files   []string
	archive *proofArchive
	rep     *Proof
	at      spot // of the event at hand

	hosts   map[string]int32
	names   []string // of hosts and domains
	clients map[string]bool
	sent    []*proofSent
	lives   []proofLife          // starts of the gate
	intents map[string]spot      // that have no end yet
	resumed map[int32][]int64    // by host: when the operator let it in again
	threes  map[string]string    // id of an answer 3xx: its host
	configs map[string]int       // hash: index in rep.Configurations
	exempt  map[string][2]int64  // profile: rules, pace
	gaps    map[string]*ProofGap // by host
	ruled   map[rulesKey]ProofRules
	stopped bool // the last word of the process was its stop
}

// spot is where an event stands.
type spot struct {
	seq        uint64
	file, line int32
	id         string
}

// proofLife is one start of the process; unclean when no stop came before.
type proofLife struct {
	at      int64
	unclean bool
}

// Prove replays a log, whose files are given in the order of its chain, and checks every request that was sent. Its
// memory grows with the number of requests sent (about 300 bytes each). The error is for files that cannot be read.
func Prove(ctx context.Context, files []string, opt ProofOptions) (*Proof, error) {
	p := &prover{opt: opt, files: files, rep: newProof(), hosts: map[string]int32{}, clients: map[string]bool{}, intents: map[string]spot{},
		resumed: map[int32][]int64{}, threes: map[string]string{}, configs: map[string]int{}, exempt: map[string][2]int64{}, gaps: map[string]*ProofGap{}, ruled: map[rulesKey]ProofRules{}}
	p.rep.Since, p.rep.Until = wallTime(opt.Since), wallTime(opt.Until)
	var err error
	if p.archive, err = readProofArchive(opt.Archive); err != nil {
		return nil, err
	}
	if err := p.chain(ctx); err != nil {
		return nil, err
	}
	number := map[string]int32{}
	for i, f := range files {
		number[f] = int32(i)
	}
	err = Read(ctx, files, Query{}, func(r Record) error {
		p.at = spot{seq: r.Event.Seq, file: number[r.File], line: int32(r.N), id: r.Event.ID}
		p.event(r.Event)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	p.unfinished()
	p.pace()
	p.sum()
	return p.rep, nil
}

// chain verifies the log.
func (p *prover) chain(ctx context.Context) error {
	rep, err := VerifyContext(ctx, p.files, p.opt.Chain)
	if err != nil {
		return err
	}
	p.rep.Log = rep
	p.rep.Checks[CheckChain].Checked = rep.Events
	b := rep.Broken
	if b == nil {
		return nil
	}
	f := ProofFinding{Seq: b.Seq, File: b.File, Line: b.Line, Reason: b.Kind, Text: b.Text}
	p.rep.add(CheckChain, f)
	if b.Kind == Removed || b.Kind == FileMissing || b.Kind == TailMissing {
		p.rep.add(CheckComplete, f)
	}
	return nil
}

// event takes one event in.
func (p *prover) event(e *Event) {
	in := !e.Time.Before(p.opt.Since) && (p.opt.Until.IsZero() || e.Time.Before(p.opt.Until))
	if in {
		p.rep.Checks[CheckComplete].Checked++
	}
	switch e.Type {
	case TypeStart:
		p.lives = append(p.lives, proofLife{e.Time.UnixMilli(), !p.stopped})
		p.stopped = false
		for _, id := range e.Unfinished {
			if in {
				p.finding(CheckComplete, "unfinished", "an intent to send never ended: the process stopped in between", id, "", "")
			}
			delete(p.intents, id)
		}
	case TypeStop:
		p.stopped = true
	case TypeConfig:
		if host, ok := strings.CutPrefix(e.Note, "sites resume "); ok {
			n := p.name(host)
			p.resumed[n] = append(p.resumed[n], e.Time.UnixMilli())
		}
		if in {
			p.inForce(e)
		}
	case TypeGap:
		if in {
			p.finding(CheckComplete, "gap", Group(e.Lost)+" events were lost before this one ("+Printable(e.Class, 40)+")", "", "", "")
		}
	case TypeIntent:
		if in {
			p.intents[e.ID] = p.at
		}
	case TypeRequest, TypeRobots, TypeTunnel:
		delete(p.intents, e.ID)
		if in {
			p.count(e)
		}
		p.traffic(e, in)
	}
}

// unfinished reports intents that no event ended. Those of a process that still runs may be under way.
func (p *prover) unfinished() {
	if !p.stopped && len(p.lives) > 0 {
		p.rep.InFlight = int64(len(p.intents))
		return
	}
	for _, at := range slices.SortedFunc(maps.Values(p.intents), func(a, b spot) int { return cmp.Compare(a.seq, b.seq) }) {
		p.at = at
		p.finding(CheckComplete, "unfinished", "an intent to send has no end in the log", at.id, "", "")
	}
}

// count sums up what was asked for.
func (p *prover) count(e *Event) {
	if e.Type == TypeRobots {
		p.rep.RobotsFetches++
	} else {
		p.rep.Requests++
		p.clients[e.Client.Name] = true
		if e.Decision == Refused {
			p.rep.Refused[e.Reason]++
			if e.Reason == "address-denied" {
				p.rep.denied(e)
			}
		}
	}
	if e.Host != "" {
		p.name(e.Host)
	}
}

// name numbers a host.
func (p *prover) name(host string) int32 {
	n, ok := p.hosts[host]
	if !ok {
		n = int32(len(p.names))
		p.hosts[host] = n
		p.names = append(p.names, host)
	}
	return n
}

// inForce notes a configuration.
func (p *prover) inForce(e *Event) {
	if strings.HasPrefix(e.Note, "sites ") {
		p.rep.Operator = append(p.rep.Operator, ProofNote{Time: wallTime(e.Time), Note: Printable(e.Note, 200)})
	}
	c := p.rep.Configurations
	if n := len(c); n > 0 {
		if c[n-1].SHA256 == e.PolicySHA256 {
			return
		}
		c[n-1].Until = wallTime(e.Time)
	}
	_, known := p.opt.Policies[e.PolicySHA256]
	p.rep.Configurations = append(c, ProofConfig{SHA256: e.PolicySHA256, From: wallTime(e.Time), Known: known})
}

// traffic judges one request.
func (p *prover) traffic(e *Event, judged bool) {
	s := p.note(e)
	if s == nil {
		return
	}
	s.judged = judged && e.Sent
	pol, prof := p.promises(e)
	s.promise(e, pol, prof)
	if prof != nil && prof.Domain != nil {
		if d := prof.Domain(e.Host); d != "" {
			s.domain = p.name("*." + d)
		}
	}
	if !s.judged {
		return
	}
	p.rep.Sent++
	p.bySHA(e.PolicySHA256).Sent++
	switch {
	case e.Type == TypeTunnel:
		p.unproven(s, UnprovenTunnel)
		p.address(s, e, pol)
		return
	case prof == nil:
		p.unproven(s, UnprovenConfig)
		p.address(s, e, pol)
		return
	}
	p.rules(s, e, prof)
	p.address(s, e, pol)
	p.identity(s, e, prof)
	if prof.Unpaced {
		s.exempt = true
		x := p.exempt[e.Profile]
		x[1]++
		p.exempt[e.Profile] = x
	}
}

// promises finds what was promised for an event; nil when its configuration is not at hand.
func (p *prover) promises(e *Event) (*ProofPolicy, *ProofProfile) {
	pol := p.opt.Policies[e.PolicySHA256]
	if pol == nil {
		return nil, nil
	}
	return pol, pol.Profiles[e.Profile]
}

func (p *prover) bySHA(sha string) *ProofConfig {
	for i := range p.rep.Configurations {
		if c := &p.rep.Configurations[len(p.rep.Configurations)-1-i]; c.SHA256 == sha {
			return c
		}
	}
	_, known := p.opt.Policies[sha]
	p.rep.Configurations = append(p.rep.Configurations, ProofConfig{SHA256: sha, Known: known})
	return &p.rep.Configurations[len(p.rep.Configurations)-1]
}

// unproven notes why a request cannot be proven; the first reason counts.
func (p *prover) unproven(s *proofSent, why string) {
	if !s.unprovable {
		s.unprovable = true
		s.why = why
	}
}

// finding reports a violation at the event at hand.
func (p *prover) finding(check, reason, text, id, host, url string) {
	f := ProofFinding{Seq: p.at.seq, File: p.files[p.at.file], Line: int(p.at.line), ID: id, Host: host, URL: url, Reason: reason, Text: text}
	p.rep.add(check, f)
}

// violation reports a sent request that broke a promise.
func (p *prover) violation(s *proofSent, check, reason, text string, e *Event) {
	s.violating = true
	url := ""
	if e != nil {
		url = Printable(e.URL.String(), 300)
	}
	p.at = s.spot
	p.finding(check, reason, text, s.id, p.names[s.host], url)
}

// sum counts what became of the requests.
func (p *prover) sum() {
	r := p.rep
	for _, s := range p.sent {
		switch {
		case !s.judged:
		case s.violating:
			r.Violating++
		case s.unprovable:
			r.Unprovable++
			r.UnprovableBy[s.why]++
		case s.exempt:
			r.Exempt++
		default:
			r.Proven++
		}
	}
	for name, n := range p.exempt {
		r.ExemptProfiles = append(r.ExemptProfiles, ProofExempt{Profile: name, Rules: n[0], Pace: n[1]})
	}
	slices.SortFunc(r.ExemptProfiles, func(a, b ProofExempt) int { return compareText(a.Profile, b.Profile) })
	for name, g := range p.gaps {
		g.Host = name
		r.Gaps = append(r.Gaps, *g)
	}
	slices.SortFunc(r.Gaps, func(a, b ProofGap) int {
		if d := (a.SmallestMS - a.OwedMS) - (b.SmallestMS - b.OwedMS); d != 0 {
			return int(min(max(d, -1), 1))
		}
		return compareText(a.Host, b.Host)
	})
	r.Clients = int64(len(p.clients))
	r.Hosts = 0
	for _, n := range p.names {
		if n != "" && !strings.HasPrefix(n, "*.") {
			r.Hosts++
		}
	}
	r.OK = r.Unprovable == 0 && r.violations() == 0
}
