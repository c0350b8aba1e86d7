package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"crawlgate/configs"
	"crawlgate/sign"
)

// identity looks at who the agents say they are.
func (d *doctor) identity(ctx context.Context) {
	if len(d.cfg.Agents) == 0 {
		d.fail("identity", "%s", strings.SplitN(identityHint, ";", 2)[0])
	}
	for _, ag := range d.cfg.Agents {
		what := "agent " + ag.Name
		if ag.UserAgent == configs.UserAgentPass {
			d.ok(what, "leaves the fetcher's own user agent")
		}
		if ag.InfoURL == "" {
			if ag.UserAgent != configs.UserAgentPass {
				d.warn(what, "has no info_url: site owners find nobody to ask")
			}
			continue
		}
		status, location, err := d.get(ctx, ag.InfoURL)
		switch {
		case err != nil:
			d.fail(what, "the info page %s cannot be read: %v", ag.InfoURL, reason(err))
		case status >= 300 && status < 400 && location != "":
			d.warn(what, "the info page %s leads to %s; name that one in info_url and user_agent", ag.InfoURL, location)
		case status != http.StatusOK:
			d.fail(what, "the info page %s answers %d", ag.InfoURL, status)
		default:
			d.ok(what, "the info page %s answers", ag.InfoURL)
		}
	}
}

// get fetches a URL as an outsider; location is where a redirect leads.
func (d *doctor) get(ctx context.Context, u string) (status int, location string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	resp.Body.Close()
	if to, err := resp.Location(); err == nil {
		location = to.String()
	}
	return resp.StatusCode, location, nil
}

// reason leaves out what the line says already: the method and the URL.
func reason(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil || !strings.HasPrefix(err.Error(), "Get \"") && !strings.HasPrefix(err.Error(), "key set ") {
			return err
		}
		err = inner
	}
}

// keys looks at the signing keys and at what verifiers find of them.
func (d *doctor) keys(ctx context.Context) {
	agents := d.cfg.SignAgents()
	s, err := sign.Open(d.cfg.Sign, d.cfg.StateDir, agents, nil)
	if err != nil {
		d.fail("keys", "%v", err)
		return
	}
	ring := sign.Keyring{StateDir: d.cfg.StateDir, Config: d.cfg.Sign, Publish: d.cfg.Publish, Agents: agents}
	all, err := ring.List()
	if err != nil {
		d.fail("keys", "%v", err)
	}
	for _, ag := range agents {
		what := "agent " + ag.Name
		state, why := s.State(ag.Name)
		if state != sign.Ready {
			if ag.SignatureAgent != "" {
				d.fail(what, "requests go out unsigned: %s", why)
			} else {
				d.warn(what, "requests go out unsigned: %s", why)
			}
			continue
		}
		var own []sign.KeyInfo
		for _, k := range all {
			if k.Agent == ag.Name {
				own = append(own, k)
				d.age(what, k)
			}
		}
		d.directory(ctx, what, ag.SignatureAgent, s.ActiveKey(ag.Name), own)
	}
}

// age tells of keys whose next step is overdue.
func (d *doctor) age(what string, k sign.KeyInfo) {
	switch {
	case k.State == sign.StateActive && !k.Since.IsZero() && time.Since(k.Since) > keyIsOld:
		d.warn(what, "the key %s has signed for %d days; make the next one with `crawlgate keys new --agent %s`, and rotate to it", k.ID, int(time.Since(k.Since).Hours()/24), k.Agent)
	case k.State == sign.StateRetiring && time.Now().After(k.NextAt):
		d.warn(what, "the key %s signs nothing any more; drop it with `crawlgate keys retire --agent %s %s`", k.ID, k.Agent, k.ID)
	}
}

// directory tries each URL at which a generation of verifiers looks for the keys, and sums up whom the value serves.
func (d *doctor) directory(ctx context.Context, what, agentURL, active string, own []sign.KeyInfo) {
	type outcome struct {
		set *sign.KeySet
		err error
	}
	tried := map[string]outcome{}
	var found, not []string
	hint := "; the bare origin of a host of its own with publish.serve_root serves all"
	missing := map[string]string{} // key: where it is not
	for _, r := range sign.Resolutions(agentURL, d.cfg.Publish) {
		o, seen := tried[r.URL]
		if !seen {
			f := sign.KeyFetcher{Client: d.client, RequireProof: true, Skew: sign.DefaultSkew}
			o.set, _, o.err = f.Fetch(ctx, r.URL)
			if o.err == nil && !o.set.Has(active) {
				o.err = fmt.Errorf("the active key %s is not in it", active)
			}
			tried[r.URL] = o
		}
		switch {
		case o.err == nil:
			found = append(found, r.Generation)
			d.ok(what, "%s find the active key at %s, proven", r.Generation, r.URL)
			for _, k := range own {
				if !o.set.Has(k.ID) {
					missing[k.ID] = r.URL
				}
			}
			continue
		case r.Served:
			hint = "" // it would serve them, if what it publishes were there
			d.fail(what, "%s find no key at %s: %v", r.Generation, r.URL, reason(o.err))
		default:
			d.warn(what, "%s find no key at %s, where this configuration publishes none: %v", r.Generation, r.URL, reason(o.err))
		}
		not = append(not, r.Generation)
	}
	for _, k := range own {
		if where := missing[k.ID]; where != "" {
			d.fail(what, "the %s key %s is not at %s, or has no proof there; is an older copy served?", k.State, k.ID, where)
		}
	}
	switch {
	case len(found) == 0:
		d.fail(what, "signature_agent %s serves no verifier, so signed requests count as unsigned or worse", agentURL)
	case len(not) == 0:
		d.ok(what, "signature_agent %s serves every generation of verifiers", agentURL)
	default:
		d.warn(what, "signature_agent %s serves %s, but not %s%s", agentURL, strings.Join(found, " and "), strings.Join(not, " and "), hint)
	}
}

// addresses resolves the published addresses back and forth.
func (d *doctor) addresses(ctx context.Context) {
	list := d.cfg.Page.Addresses
	if len(list) == 0 {
		list = d.cfg.Egress.SourceAddresses
	}
	if len(list) == 0 {
		d.warn("addresses", "none are published, so site owners cannot tell the crawler by them (egress.source_addresses, page.addresses)")
		return
	}
	for _, s := range list {
		addr, err := netip.ParseAddr(s)
		if p, perr := netip.ParsePrefix(s); err != nil && perr == nil && p.IsSingleIP() {
			addr, err = p.Addr(), nil
		}
		if err != nil {
			d.ok("addresses", "%s is a range, of which no single name is looked up", s)
			continue
		}
		d.address(ctx, addr.Unmap())
	}
}

func (d *doctor) address(ctx context.Context, addr netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, doctorLookup)
	defer cancel()
	names, err := d.dns.LookupAddr(ctx, addr.String())
	var dns *net.DNSError
	if err != nil && (!errors.As(err, &dns) || !dns.IsNotFound) {
		d.fail("addresses", "the name of %s cannot be looked up: %v", addr, reason(err))
		return
	}
	if len(names) == 0 {
		d.fail("addresses", "%s has no reverse name, by which site owners tell a crawler from one that only says so", addr)
		return
	}
	slices.Sort(names)
	for n := range names {
		names[n] = strings.TrimSuffix(names[n], ".")
	}
	name, err := d.confirmed(ctx, addr, names)
	switch {
	case err != nil:
		d.fail("addresses", "%s resolves to %s, which cannot be looked up: %v", addr, strings.Join(names, ", "), reason(err))
	case name == "":
		d.fail("addresses", "%s resolves to %s, which does not resolve back to it", addr, strings.Join(names, ", "))
	case d.cfg.Page.ReverseDNS != "" && !underPattern(name, d.cfg.Page.ReverseDNS):
		d.fail("addresses", "%s resolves to %s, which is not under %s (page.reverse_dns)", addr, name, d.cfg.Page.ReverseDNS)
	default:
		d.ok("addresses", "%s resolves to %s and back", addr, name)
	}
}

// confirmed finds a name that resolves back; the error is of the last look-up that gave no answer at all.
func (d *doctor) confirmed(ctx context.Context, addr netip.Addr, names []string) (name string, err error) {
	for _, n := range names {
		back, lerr := d.dns.LookupNetIP(ctx, "ip", n+".")
		var dns *net.DNSError
		if lerr != nil && (!errors.As(lerr, &dns) || !dns.IsNotFound) {
			err = lerr
		}
		for _, b := range back {
			if b.Unmap() == addr {
				return n, nil
			}
		}
	}
	return "", err
}

func underPattern(name, pattern string) bool {
	name, pattern = strings.ToLower(name), strings.ToLower(pattern)
	if rest, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(name, "."+rest)
	}
	return name == pattern
}

// time compares the clock with what the running gate heard from sites, or with what the sites above said.
func (d *doctor) time() {
	offset, hosts := d.clock.Estimate()
	with := "the one site's that answered"
	switch {
	case d.gateClock != nil:
		offset, with = time.Duration(*d.gateClock*float64(time.Second)), "the sites' that the running gate asks"
	case hosts == 0:
		d.warn("clock", "no site answered, so it was not compared; verifiers refuse signatures from the future")
		return
	case hosts > 1:
		with = fmt.Sprintf("that of %d sites", hosts)
	}
	off := offset.Abs().Round(100 * time.Millisecond)
	way := "behind"
	if offset > 0 {
		way = "ahead of"
	}
	switch {
	case offset.Abs() <= clockTolerance:
		d.ok("clock", "within %s of %s", max(off, time.Second), with)
	case d.gateClock == nil && hosts == 1:
		d.warn("clock", "%s %s %s; one of the two is wrong, and verifiers refuse signatures from the future", off, way, with)
	default:
		d.fail("clock", "%s %s %s; verifiers refuse signatures from the future and old ones (synchronise it with NTP)", off, way, with)
	}
}
