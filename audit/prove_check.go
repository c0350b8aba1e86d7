package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// address checks where a request went: a public address, or one that the configuration opens, and one of those that the
// name gave.
func (p *prover) address(s *proofSent, e *Event, pol *ProofPolicy) {
	c := p.rep.Checks[CheckAddress]
	c.Checked++
	a, err := netip.ParseAddr(e.Upstream.IP)
	if err != nil {
		p.violation(s, CheckAddress, "not_recorded", "the address it went to is not in the log", e)
		return
	}
	if class := p.opt.Special(a.Unmap()); class != "" {
		switch {
		case pol != nil && e.Exception != "" && pol.Exception(e.Exception, a.Unmap(), e.Upstream.Port):
			p.rep.Exceptions++
		case pol == nil && e.Exception != "": // no word about it without the configuration; it is unprovable already
		default:
			p.violation(s, CheckAddress, "special_use", fmt.Sprintf("it went to %s (%s)", a, class), e)
			return
		}
	}
	if !slices.Contains(e.Upstream.Resolved, e.Upstream.IP) && !slices.Contains(e.Cut, "upstream.resolved") {
		p.violation(s, CheckAddress, "not_resolved", fmt.Sprintf("it went to %s, which the name had not given (%s)", a, strings.Join(e.Upstream.Resolved, ", ")), e)
	}
}

// identity checks the name a request went out under, and its signature.
func (p *prover) identity(s *proofSent, e *Event, prof *ProofProfile) {
	p.rep.Checks[CheckIdentity].Checked++
	if e.Sig.State != "" {
		p.rep.Signatures[e.Sig.State]++
	}
	if reason, text := p.identityFault(s, e, prof); reason != "" {
		p.violation(s, CheckIdentity, reason, text, e)
	}
}

func (p *prover) identityFault(s *proofSent, e *Event, prof *ProofProfile) (reason, text string) {
	want := prof.UserAgent
	if prof.PassUA {
		want = e.UserAgent
		if e.Type == TypeRobots {
			want = "" // no fetcher's name is the gate's own
		}
	}
	if e.UserAgent != want && !slices.Contains(e.Cut, "user_agent") {
		return "user_agent", fmt.Sprintf("it went out as %q, not as %q", Printable(e.UserAgent, 100), want)
	}
	if e.Agent != prof.Agent {
		return "agent", fmt.Sprintf("it is recorded for the agent %q, not %q", Printable(e.Agent, 60), prof.Agent)
	}
	if e.Sig.State == "signed" {
		return p.signature(s, e, prof)
	}
	if e.Scheme != "https" || prof.Sign == "never" || prof.SignAgent == "" {
		return "", ""
	}
	// Signed by promise, but for what is excepted from it.
	switch e.Sig.State {
	case "cross-site":
		if e.Kind == "subresource" {
			return "", ""
		}
	case "not-listed":
		if prof.Sign == "sites" {
			return "", ""
		}
	case "disabled":
		if !prof.SignRequired {
			return "", ""
		}
	}
	return "unsigned", fmt.Sprintf("it was not signed (%s)", Printable(e.Sig.State, 40))
}

// signature checks what the log says of a signature: whose key, and a time span around the sending.
func (p *prover) signature(s *proofSent, e *Event, prof *ProofProfile) (reason, text string) {
	g := &e.Sig
	if g.Agent != prof.SignAgent {
		return "signature_agent", fmt.Sprintf("it was signed for %q, not for %q", Printable(g.Agent, 100), prof.SignAgent)
	}
	sent := e.SentAt.Unix()
	if g.Created > sent+1 || g.Expires < sent || g.Created >= g.Expires {
		return "signature_time", fmt.Sprintf("its signature is good from %d to %d, and it was sent at %d", g.Created, g.Expires, sent)
	}
	switch why := p.opt.Key(g.KeyID, e.SentAt); why {
	case "":
		return "", ""
	case KeyNotKnown:
		p.unproven(s, UnprovenKey)
		return "", ""
	default:
		return "key", why + " (" + Printable(g.KeyID, 60) + ")"
	}
}
