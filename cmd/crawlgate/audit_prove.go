package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"crawlgate/audit"
	"crawlgate/configs"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"

	"github.com/spf13/cobra"
)

// proveFlags are the flags of audit prove.
type proveFlags struct {
	place         logPlace
	id            identityFlags
	archive       string
	policyDir     string
	keys, earlier []string
	head, signers string
	saved         []string
	since, until  string
	unprovable    int64
	findings      int
	asJSON        bool
	save          bool
}

func newAuditProveCmd(a *app) *cobra.Command {
	f := &proveFlags{}
	cmd := &cobra.Command{
		Use:   "prove [LOG...]",
		Short: "prove from the log that every request kept the rules",
		Long: `Replays the gate's own log against the archived robots.txt files and the
configuration, and checks each request that was sent:

  chain          no line of the log was altered, removed or moved
  rules          the robots.txt recorded is in the archive, was the newest one
                 read when the request left, was not too old, and allows it
  pace           the gap owed had passed: as recorded, and worked out again from
                 robots.txt, the profile, 429, 5xx and Retry-After
  one_at_a_time  no two requests of a host overlap, but for files that ride along
  address        it went to a public address that the name had given
  identity       user agent and, where promised, the signature: key and time
  complete       no event is missing, no intent to send without an end

A request is proven, exempt (its profile reads no robots.txt or keeps no turns),
unprovable, or a violation. Unprovable are: opaque tunnels; requests whose masked
query a rule looks at (audit.query, audit.full_for); requests under another
configuration than those at hand; signatures by a key that nobody here knows.

What was promised stands in the configuration, and every event names the one it
was judged by (policy_sha256). A gate keeps each that was in force, without
secrets and named by that hash, in audit/policies of its state folder; --policies
names another such folder, and --earlier single files of yours. Signature keys are
those of this machine's key folder; name published sets, retired keys among them,
with --keys. Files of LOG are put in order, compressed or not. With Redis each
instance has a log of its own, and only the gaps within one log are seen.

The result is kept in the state folder, where the admin page of a running gate
shows it; not with LOG or --file, which may be another gate's, unless --save
says so.

Exit code 0 proven, 1 not, 2 the log could not be read.`,
		Example: "  crawlgate audit prove --since 24h\n" +
			"  crawlgate audit prove --archive /backup/robots --keys keys.json --earlier crawlgate-2026-01.yaml --json /backup/audit/*.jsonl.gz",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(a, cmd, args) },
	}
	f.place.flags(cmd)
	f.id.register(cmd)
	l := cmd.Flags()
	l.StringVar(&f.archive, "archive", "", "`DIR` of the robots.txt archive (default: robots in the state folder)")
	l.StringArrayVar(&f.keys, "keys", nil, "published signature keys, `FILE|URL` (repeat; default: this machine's keys)")
	l.StringVar(&f.policyDir, "policies", "", "`DIR` of configurations that were in force (default: audit/policies in the state folder)")
	l.StringArrayVar(&f.earlier, "earlier", nil, "configuration `FILE` that was in force before (repeat)")
	l.StringVar(&f.head, "head", "", "`HASH` that the chain must reach, as `audit head` printed it")
	l.StringArrayVar(&f.saved, "checkpoints", nil, "`FILE` of another machine with signed heads, as for `audit verify`; - for standard input (repeat)")
	l.StringVar(&f.signers, "checkpoint-keys", "", "public checkpoint keys `FILE` (default: those beside this machine's log)")
	l.StringVar(&f.since, "since", "", "requests from `T` on: RFC 3339, a date, or an age like 24h or 7d")
	l.StringVar(&f.until, "until", "", "requests before `T`")
	l.Int64Var(&f.unprovable, "allow-unprovable", 0, "exit 0 although `N` requests can't be proven")
	l.IntVar(&f.findings, "findings", 10, "list at most `N` violations of each check")
	l.BoolVar(&f.save, "save", false, "keep the result for the admin page (default: unless LOG or --file is given)")
	l.BoolVar(&f.asJSON, "json", false, "print JSON (crawlgate.audit.proof/1)")
	return cmd
}

func (f *proveFlags) run(a *app, cmd *cobra.Command, args []string) error {
	now := time.Now()
	opt := audit.ProofOptions{Policies: map[string]*audit.ProofPolicy{}, Special: specialBlock, Chain: audit.VerifyOptions{Head: strings.ToLower(f.head)}}
	var err error
	switch {
	case f.head != "" && !isHex64(f.head):
		return usage("--head %q is not a hash of 64 hex digits, as `crawlgate audit head` prints it", f.head)
	case f.unprovable < 0:
		return usage("--allow-unprovable %d is negative", f.unprovable)
	case f.findings < 0:
		return usage("--findings %d is negative", f.findings)
	}
	if opt.Since, err = parseWhen(f.since, now); err != nil {
		return usage("--since: %v", err)
	}
	if opt.Until, err = parseWhen(f.until, now); err != nil {
		return usage("--until: %v", err)
	}
	cfg, _, err := a.loader(f.id, nil)()
	if err != nil {
		return err
	}
	if err := f.place.find(a); err != nil {
		return err
	}
	files, err := f.files(a, args, &opt)
	if err != nil {
		return err
	}
	if opt.Chain.Saved, err = a.savedHeads(f.saved); err != nil {
		return err
	}
	if opt.Archive = f.archive; opt.Archive == "" {
		opt.Archive = filepath.Join(f.place.stateDir, "robots")
	} else if st, err := os.Stat(opt.Archive); err != nil || !st.IsDir() {
		return usage("--archive: %s is not a folder", opt.Archive)
	}
	if err := f.policies(a, cfg, &opt); err != nil {
		return err
	}
	if opt.Key, err = f.keyCheck(a, cmd, cfg, now); err != nil {
		return err
	}
	proof, err := audit.Prove(cmd.Context(), files, opt)
	if err != nil {
		return usage("read the log: %v", err)
	}
	save := f.save
	if !cmd.Flags().Changed("save") {
		save = len(args) == 0 && !cmd.Flags().Changed("file")
	}
	if save {
		// The answer on the command line stands without it: whoever may read the log need not be who may write there.
		if err := audit.SaveProof(f.place.stateDir, proof, now, buildVersion(), f.unprovable); err != nil {
			fmt.Fprintf(a.stderr, "crawlgate: the admin page will not show this proof: %v (--save=false keeps none)\n", err)
		}
	}
	if f.asJSON {
		err = proof.WriteJSON(a.stdout)
	} else {
		err = proof.WriteText(a.stdout, f.findings, now)
	}
	if err != nil {
		return fail("write the proof: %v", err)
	}
	if !proof.Passed(f.unprovable) {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// files finds the log and the keys of its checkpoints.
func (f *proveFlags) files(a *app, args []string, opt *audit.ProofOptions) ([]string, error) {
	files, err := expandLogs(args)
	if err != nil {
		return nil, err
	}
	signers := f.signers
	if len(args) == 0 {
		if files, err = f.place.files(a); err != nil {
			return nil, err
		}
		if signers == "" {
			signers = f.place.signers()
		}
	}
	if signers != "" {
		if opt.Chain.Keys, err = audit.LoadKeys(signers); err != nil {
			return nil, usage("--checkpoint-keys: %v", err)
		}
	}
	if files, err = audit.Order(files); err != nil {
		return nil, usage("read the log: %v", err)
	}
	return files, nil
}

// policies makes the configurations at hand ready.
func (f *proveFlags) policies(a *app, cfg *configs.Config, opt *audit.ProofOptions) error {
	all := []*configs.Config{cfg}
	for _, file := range f.earlier {
		b := *a
		b.configFile = file
		c, _, err := b.loader(f.id, nil)()
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	kept, err := f.kept(a)
	if err != nil {
		return err
	}
	for _, c := range append(all, kept...) {
		hash := c.Hash()
		c.Egress.RootCAFile = "" // not needed here, and perhaps gone
		rules, err := compileRules(c)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		opt.Policies[hash] = proofPolicy(c, rules)
	}
	return nil
}

// kept reads the configurations that a gate kept. One that cannot be read is told, and its events stay unprovable.
func (f *proveFlags) kept(a *app) (all []*configs.Config, err error) {
	dir := f.policyDir
	if dir == "" {
		dir = policiesDir(f.place.stateDir)
	} else if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, usage("--policies: %s is not a folder", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, usage("--policies: %v", err)
	}
	for _, file := range files {
		c, err := readPolicy(file)
		if err != nil {
			fmt.Fprintf(a.stderr, "crawlgate: configuration %s cannot be used: %v\n", filepath.Base(file), err)
			continue
		}
		all = append(all, c)
	}
	return all, nil
}

// proofPolicy says what a configuration promises.
func proofPolicy(c *configs.Config, r *proxy.Rules) *audit.ProofPolicy {
	p := c.Pacing
	out := &audit.ProofPolicy{
		Profiles: map[string]*audit.ProofProfile{},
		Pacing: audit.ProofPacing{
			LongestDelay: p.LongestDelay, RetryAfterCap: p.Backoff.RetryAfterCap, BackoffBase: p.Backoff.Base, BackoffCap: p.Backoff.Cap,
			BackoffFactor: p.Backoff.Factor, ForgetAfter: p.Backoff.ForgetAfter, SlowWindow: p.Slow.Window, SlowDecay: p.Slow.Decay,
			SlowLevels: p.Slow.MaxLevel, SlowRecover: p.Slow.RecoverAfter, Riders: p.CompanionParallel,
		},
		Exception: func(name string, a netip.Addr, port int) bool {
			return opensAddress(c.Egress.AllowPrivate, name, a, port)
		},
	}
	for name, rp := range r.Profiles {
		ag, pc, ro := rp.Agent, rp.Pacing, rp.Robots
		prof := &audit.ProofProfile{
			Agent: ag.Name, UserAgent: ag.UserAgent, PassUA: ag.Pass, Sign: rp.Sign, SignRequired: c.Sign.Required,
			Ignore: ro.Mode == policy.ModeIgnore, Rules: proofRules(rp),
			AllowUnreadable: ro.WhenUnreadable == policy.Allow, DenyForbidden: ro.On401403 == policy.Deny, DenyRedirects: ro.TooManyRedirects == policy.Deny,
			ThirdPartyOwn: ro.ThirdParty == policy.Own,
			Unpaced:       pc.Mode == pacing.ModeNone, Gap: pc.Gap, Parallel: pc.Parallel, OwnRedirects: pc.Redirect == pacing.OwnTurn,
			OwnCompanions: pc.Companions == pacing.OwnTurn, FreeRobots: pc.Robots == pacing.RobotsFree,
		}
		if ro.StaleOnError != policy.Deny {
			prof.StaleUse = max(ro.StaleUse, 24*time.Hour)
		}
		if pc.Key == pacing.KeyRegistrableDomain {
			prof.Domain = pacing.DomainKey
		}
		if a, ok := c.Agent(ag.Name); ok {
			prof.SignAgent = a.SignatureAgent
		}
		out.Profiles[name] = prof
	}
	return out
}

// proofRules compiles archived files as they bind a profile.
func proofRules(p *proxy.Profile) func([]byte) audit.ProofRules {
	o := policy.Options{StopOn: p.Robots.StopOn, NamedGroupStopsAll: p.Robots.NamedGroupStopsAll, EnforceVisitTime: p.Robots.VisitTime == policy.Enforce}
	if o.StopOn == nil {
		o.StopOn = p.Agent.StopOn
	}
	return func(body []byte) audit.ProofRules {
		rs := policy.Parse(body)
		if p.Robots.Mode == policy.ModeNamed {
			return &archivedRules{rs.NamedGroup(p.Agent.Token, p.Agent.Fallback...), o}
		}
		return &archivedRules{rs.Group(p.Agent.Token, p.Agent.Fallback...), o}
	}
}

// archivedRules is one archived robots.txt as it binds one profile: the gate's own matcher, since another one would prove
// something else.
type archivedRules struct {
	group *policy.Group
	o     policy.Options
}

// Judge decides about a URL at a time.
func (r *archivedRules) Judge(url string, at time.Time) audit.ProofVerdict {
	o := r.o
	o.At = at
	v := r.group.DecideString(url, o)
	out := audit.ProofVerdict{Allowed: v.Allowed, Reason: v.Reason, Rule: v.Rule, Line: v.Line, Delay: v.Delay}
	if v.Signal != "" {
		out.Rule = v.Signal
	}
	return out
}

// Depends tells whether what is not known of a URL could change the decision.
func (r *archivedRules) Depends(parts []string, open bool, at time.Time) bool {
	o := r.o
	o.At = at
	return r.group.Depends(parts, open, o)
}

// specialBlock names the special-purpose block of an address by the gate's own table.
func specialBlock(a netip.Addr) string {
	if c := guard.Classify(a); c != guard.Public {
		return c
	}
	return ""
}

// opensAddress tells whether the exception of that name (its prefix, and a comment) opens an address and port.
func opensAddress(list []guard.Exception, name string, a netip.Addr, port int) bool {
	prefix, _, _ := strings.Cut(name, " ")
	for _, e := range list {
		p, err := netip.ParsePrefix(e.Prefix)
		if err != nil {
			one, err := netip.ParseAddr(e.Prefix)
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(one, one.BitLen())
		}
		if p.Masked().String() == prefix && p.Contains(a) && (len(e.Ports) == 0 || slices.Contains(e.Ports, port)) {
			return true
		}
	}
	return false
}

// keyCheck answers for signature keys: by the sets of --keys, else by this machine's own keys, which forget retired ones.
func (f *proveFlags) keyCheck(a *app, cmd *cobra.Command, cfg *configs.Config, now time.Time) (func(string, time.Time) string, error) {
	if len(f.keys) > 0 {
		var sets []*sign.KeySet
		for _, name := range f.keys {
			one := &verifyFlags{keys: name, skew: sign.DefaultSkew}
			set, err := one.readKeys(a, cmd, now)
			if err != nil {
				return nil, err
			}
			sets = append(sets, set)
		}
		return func(id string, _ time.Time) string {
			if slices.ContainsFunc(sets, func(s *sign.KeySet) bool { return s.Has(id) }) {
				return ""
			}
			return "it was signed by a key that is in none of the key sets"
		}, nil
	}
	ring := sign.Keyring{StateDir: f.place.stateDir, Config: cfg.Sign, Publish: cfg.Publish, Agents: cfg.SignAgents()}
	list, err := ring.List()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, usage("keys of this machine: %w (--keys names another set)", err)
	}
	return func(id string, at time.Time) string {
		for _, k := range list {
			switch {
			case k.ID != id:
			case k.Created.After(at.Add(time.Second)):
				return "it was signed by a key that was made later"
			default:
				return ""
			}
		}
		return audit.KeyNotKnown
	}, nil
}
