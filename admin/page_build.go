package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"crawlgate/configs"
	"crawlgate/pacing"
	"crawlgate/policy"
)

// PageKey is a published signing key, as the page names it.
type PageKey struct {
	Agent, Thumbprint string
}

// BuildPage says what a configuration makes the gate do. keys are the thumbprints that the directory publishes.
func BuildPage(c *configs.Config, keys []PageKey) *Page {
	b := pageBuilder{c: c, keys: keys}
	main := b.mainAgent()
	p := &Page{Title: "About " + main.ProductToken, Policy: c.Hash()}
	p.Intro = main.ProductToken + " fetches web pages" + b.operator() + ". Every request of it leaves through one gate, which keeps what this page says."
	p.Sections = []Section{b.identity(main), b.verify(main), b.slow(main), b.signals(main), b.unreadable(main), b.changes(), b.pace(main), b.statuses(main), b.weaker(main), b.never(), b.stated(main)}
	p.Sections = slices.DeleteFunc(p.Sections, func(s Section) bool { return len(s.Blocks) == 0 })
	return p
}

type pageBuilder struct {
	c    *configs.Config
	keys []PageKey
}

func say(id, format string, args ...any) Sentence { return Sentence{id, fmt.Sprintf(format, args...)} }

func (b *pageBuilder) operator() string {
	if b.c.Page.Operator == "" {
		return ""
	}
	return " for " + b.c.Page.Operator
}

// mainAgent is the agent of the first profile.
func (b *pageBuilder) mainAgent() configs.Agent {
	if len(b.c.Profiles) > 0 {
		if a, ok := b.c.Agent(b.c.Profiles[0].Agent); ok {
			return a
		}
	}
	if len(b.c.Agents) > 0 {
		return b.c.Agents[0]
	}
	return configs.Agent{ProductToken: "crawlgate (no identity configured)", UserAgent: ""}
}

// profilesOf are the agent's profiles that read robots.txt.
func (b *pageBuilder) profilesOf(a configs.Agent) (out []configs.Profile) {
	for _, p := range b.c.Profiles {
		if p.Agent == a.Name && p.Robots.Mode != policy.ModeIgnore {
			out = append(out, p)
		}
	}
	return out
}

// forProfile names the profile where there are several.
func (b *pageBuilder) forProfile(a configs.Agent, p configs.Profile) string {
	if len(b.profilesOf(a)) < 2 {
		return ""
	}
	return "Requests of the kind \"" + p.Name + "\": "
}

func (b *pageBuilder) identity(a configs.Agent) Section {
	s := Section{ID: "identity", Title: "Who we are"}
	first := Block{Sentences: []Sentence{say("identity.user-agent", "Every request carries this user agent, whatever program made it, the fetch of robots.txt too:")}, Code: a.UserAgent}
	var rest []Sentence
	rest = append(rest, say("identity.token", "In robots.txt its name is %s.", a.ProductToken))
	if !strings.HasPrefix(a.UserAgent, "Mozilla/") {
		rest = append(rest, say("identity.user-agent", "It does not claim to be a browser, and the name is never rotated or shortened."))
	}
	if a.InfoURL != "" {
		rest = append(rest, say("", "This page: %s", a.InfoURL))
	}
	s.Blocks = []Block{first, {Sentences: rest}}
	for _, p := range b.c.Profiles {
		if p.Agent == a.Name && p.IdentityLock > 0 {
			s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("identity.lock",
				"What a site refused to this name (401, 403, 407, 451, a bot check) goes out under no other name for %s.", words(p.IdentityLock))}})
			break
		}
	}
	return s
}

func (b *pageBuilder) verify(a configs.Agent) Section {
	s := Section{ID: "verify", Title: "How to verify that it is us"}
	if a.SignatureAgent != "" {
		line := []Sentence{say("verify.signature", "HTTPS requests to the sites we crawl are signed with Web Bot Auth (RFC 9421); the public keys are published for %s.", a.SignatureAgent)}
		if u, err := url.Parse(a.SignatureAgent); err == nil {
			line = append(line, say("verify.directory", "Key directory: https://%s/.well-known/http-message-signatures-directory", u.Host))
		}
		s.Blocks = append(s.Blocks, Block{Sentences: line})
		var ids []string
		for _, k := range b.keys {
			if k.Agent == a.Name {
				ids = append(ids, k.Thumbprint)
			}
		}
		if len(ids) > 0 {
			s.Blocks = append(s.Blocks, Block{Code: strings.Join(ids, "\n")})
		}
	}
	addrs := b.c.Page.Addresses
	if len(addrs) == 0 {
		addrs = b.c.Egress.SourceAddresses
	}
	if len(addrs) > 0 {
		s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("verify.addresses", "Requests come from these addresses and no others; each site always sees the same one:")}, Code: strings.Join(addrs, "\n")})
	}
	if b.c.Page.ReverseDNS != "" {
		s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("verify.dns", "The addresses resolve to %s, and that name resolves back to them.", b.c.Page.ReverseDNS)}})
	}
	if len(s.Blocks) > 0 {
		s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("", "A user agent alone proves nothing: anybody can send it.")}})
	}
	return s
}

func (b *pageBuilder) slow(a configs.Agent) Section {
	s := Section{ID: "control", Title: "How to slow it down or keep it out"}
	for _, p := range b.profilesOf(a) {
		who := b.forProfile(a, p)
		switch p.Robots.Mode {
		case policy.ModeObey:
			s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{
				say("robots.obey", "%sBefore anything else robots.txt is read (RFC 9309), and it holds for every page, file and redirect.", who),
				say("robots.group", "If a group names %s, only that group counts; otherwise the group for * does. The longest matching rule wins, * and $ work.", a.ProductToken)}})
		case policy.ModeNamed:
			s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{
				say("robots.named", "%srobots.txt is read first; a group that names %s binds these requests, a group for * does not.", who, a.ProductToken)}})
		}
	}
	if len(s.Blocks) == 0 {
		return s
	}
	if b.weaker(a).Blocks[0].Table != nil {
		s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("", "Requests under weaker rules are listed below.")}})
	}
	s.Blocks = append(s.Blocks,
		Block{Sentences: []Sentence{say("", "Keep it out of the whole site:")}, Code: "User-agent: " + a.ProductToken + "\nDisallow: /"},
		Block{Sentences: []Sentence{say("", "Keep it out of one folder, and let it come once in ten seconds:")}, Code: "User-agent: " + a.ProductToken + "\nDisallow: /private/\nCrawl-delay: 10"},
		Block{Sentences: []Sentence{say("robots.group", "With a group of its own, rules for * no longer apply to it: repeat what you want to keep."),
			say("robots.delay", "Crawl-delay and Request-rate (1/20 is one page in 20 seconds) are kept, the slower of both; more than %s counts as %s.", words(b.c.Pacing.LongestDelay), words(b.c.Pacing.LongestDelay))}})
	return s
}

func (b *pageBuilder) signals(a configs.Agent) Section {
	s := Section{ID: "signals", Title: "Content-Signal"}
	for _, p := range b.profilesOf(a) {
		stop := b.c.StopOn(p)
		who := b.forProfile(a, p)
		if len(stop) == 0 {
			s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("signals.none", "%sContent-Signal lines do not stop it.", who)}})
			continue
		}
		t := &Table{Head: []string{"line in robots.txt", "what we do"}}
		for _, v := range stop {
			t.Rows = append(t.Rows, Row{"signals.stop", []string{"Content-Signal: " + v, "like Disallow: /"}})
		}
		s.Blocks = append(s.Blocks, Block{Sentences: []Sentence{say("signals.scope", "%sIn the group that counts, or above the first User-agent line, these values keep it out; others do not:", who)}, Table: t})
	}
	return s
}

func (b *pageBuilder) unreadable(a configs.Agent) Section {
	s := Section{ID: "unreadable", Title: "When robots.txt cannot be read"}
	for _, p := range b.profilesOf(a) {
		down := "no page is fetched"
		if p.Robots.WhenUnreadable == policy.Allow {
			down = "the page is fetched all the same"
		}
		auth := "no rules"
		if p.Robots.On401403 == policy.Deny {
			auth = down
		}
		t := &Table{Head: []string{"answer", "what we do"}, Rows: []Row{
			{"unreadable.4xx", []string{"404, 410, other 4xx", "no rules"}},
			{"unreadable.auth", []string{"401, 403", auth}},
			{"unreadable.5xx", []string{"429, 5xx, no connection, no answer in time", down}},
			{"unreadable.challenge", []string{"a firewall or bot check", down}},
		}}
		blk := Block{Table: t}
		if who := b.forProfile(a, p); who != "" {
			blk.Sentences = []Sentence{say("", "%s", who)}
		}
		s.Blocks = append(s.Blocks, blk)
	}
	return s
}

func (b *pageBuilder) changes() Section {
	return Section{ID: "changes", Title: "How soon a change reaches us", Blocks: []Block{{Sentences: []Sentence{
		say("robots.age", "A copy of robots.txt is used for at most 24 hours, and shorter where the site's Cache-Control says so.")}}}}
}

func (b *pageBuilder) pace(a configs.Agent) Section {
	s := Section{ID: "pace", Title: "How fast"}
	for _, p := range b.c.Profiles {
		if p.Agent != a.Name || p.Pacing.Mode == pacing.ModeNone {
			continue
		}
		per := "host name"
		if p.Pacing.Key == pacing.KeyRegistrableDomain {
			per = "domain, subdomains included"
		}
		var line []Sentence
		who := b.forProfile(a, p)
		if p.Pacing.Parallel == 1 {
			line = append(line, say("pace.one", "%sOne page at a time for each %s, for all our programs together.", who, per))
		} else {
			line = append(line, say("pace.parallel", "%sUp to %d pages at a time for each %s.", who, p.Pacing.Parallel, per))
		}
		if p.Pacing.Gap > 0 {
			line = append(line, say("pace.gap", "The next one begins no sooner than %s after the one before has ended.", words(p.Pacing.Gap)))
		}
		if p.Pacing.Companions == pacing.CompanionsRide {
			line = append(line, say("pace.files", "Without a delay in robots.txt a page's own files load along with it, at most %d at once.", b.c.Pacing.CompanionParallel))
		}
		if p.Pacing.Redirect == pacing.RedirectFollow {
			line = append(line, say("pace.redirect", "A redirect on the same host is followed at once."))
		}
		s.Blocks = append(s.Blocks, Block{Sentences: line})
	}
	return s
}

func (b *pageBuilder) statuses(a configs.Agent) Section {
	s := Section{ID: "statuses", Title: "What we do with an answer"}
	paced := slices.ContainsFunc(b.c.Profiles, func(p configs.Profile) bool { return p.Agent == a.Name && p.Pacing.Mode != pacing.ModeNone })
	if !paced {
		return s
	}
	pc := b.c.Pacing
	redirects := 5
	for _, p := range b.c.Profiles {
		if p.Agent == a.Name {
			redirects = p.Limits.Redirects
			break
		}
	}
	s.Blocks = []Block{{Table: &Table{Head: []string{"answer", "what we do"}, Rows: append(append(b.unchanged(), b.gone(a)...), []Row{
		{"status.redirect", []string{"301, 302, 303, 307, 308", "followed, at most " + strconv.Itoa(redirects) + " in a row; each is judged like any request"}},
		{"status.refused", []string{"401, 403, 451", "taken as it is; never tried under another name or address"}},
		{"status.throttle", []string{"429, 503", fmt.Sprintf("the host is left alone as long as Retry-After says, and at least %s, doubled each time up to %s; repeated ones slow us down for longer", words(pc.Backoff.Base), words(pc.Backoff.Cap))}},
		{"status.retries", []string{"429, 503 for the same page", fmt.Sprintf("tried again %d times at that pace, then left for %s", pc.Pages.Retries, words(pc.Pages.Round))}},
		{"status.failure", []string{"other 5xx, no answer", "left alone likewise; repeated failures make us rarer, never denser"}},
		{"status.breaker", []string{fmt.Sprintf("almost only refusals (%d of %d)", int(pc.Breaker.Ratio*float64(pc.Breaker.Min)+0.5), pc.Breaker.Min), "the host is left alone for " + words(pc.Breaker.OpenFor) + " and longer"}},
	}...)}}}
	return s
}

// gone tells that a 410 is final, where it is.
func (b *pageBuilder) gone(a configs.Agent) []Row {
	if slices.ContainsFunc(b.c.Profiles, func(p configs.Profile) bool { return p.Agent == a.Name && p.On410 != configs.On410Final }) {
		return nil
	}
	return []Row{{"status.gone", []string{"404, 410", "the page is gone; one that answered 410 is never asked for again"}}}
}

// unchanged tells how a page is asked for again.
func (b *pageBuilder) unchanged() []Row {
	r := b.c.Revalidate
	if !r.Enabled {
		return nil
	}
	not := "the page is not transferred again"
	if r.FullEvery > 0 {
		not += "; after about 1 in " + strconv.Itoa(r.FullEvery) + " of these answers the page is asked for once more in full"
	}
	rows := []Row{
		{"status.kept", []string{"200 with ETag or Last-Modified", "kept for the next request, which asks whether the page has changed"}},
		{"status.unchanged", []string{"304", not}},
	}
	if r.Lastmod {
		rows = append(rows, Row{"status.lastmod", []string{"a lastmod in the sitemap that robots.txt names, older than our copy", "the page is not asked for again"}})
	}
	return rows
}

// weaker tells of every profile with weaker rules that any client may use. There is no switch to hide it.
func (b *pageBuilder) weaker(main configs.Agent) Section {
	s := Section{ID: "exceptions", Title: "Requests under weaker rules"}
	granted := map[string]bool{}
	for _, c := range b.c.Clients {
		for _, p := range c.Profiles {
			granted[p] = true
		}
	}
	t := &Table{Head: []string{"kind", "user agent", "what is different"}}
	for _, p := range b.c.Profiles {
		if len(b.c.Clients) > 0 && !granted[p.Name] {
			continue
		}
		a, _ := b.c.Agent(p.Agent)
		var diff []string
		if p.Robots.Mode == policy.ModeIgnore {
			diff = append(diff, "does not read robots.txt")
		}
		if p.Pacing.Mode == pacing.ModeNone {
			diff = append(diff, "does not wait for a turn")
		} else if p.Pacing.Gap == 0 || p.Pacing.Parallel > 1 {
			diff = append(diff, "does not keep one page at a time with a pause")
		}
		if p.IdentityLock == 0 {
			diff = append(diff, "is not held back by what a site refused to another name")
		}
		if a.UserAgent == configs.UserAgentPass {
			diff = append(diff, "carries the user agent of the person's own browser")
		} else if a.Name != main.Name {
			diff = append(diff, "carries a name of its own")
		}
		if len(diff) > 0 && p.Sites == configs.SitesAny {
			diff = append(diff, "may go to any site")
		}
		if len(diff) == 0 {
			continue
		}
		ua := a.UserAgent
		if ua == configs.UserAgentPass {
			ua = "the browser's own"
		}
		t.Rows = append(t.Rows, Row{"weaker." + weakerID(p), []string{p.Name, ua, strings.Join(diff, "; ")}})
	}
	if len(t.Rows) > 0 {
		s.Blocks = []Block{{Sentences: []Sentence{say("", "Some requests are not made by the crawler, or not under its rules. These are all of them:")}, Table: t}}
	} else {
		s.Blocks = []Block{{Sentences: []Sentence{say("weaker.none", "There are none: every request keeps the rules of this page.")}}}
	}
	return s
}

func weakerID(p configs.Profile) string {
	if p.Robots.Mode == policy.ModeIgnore {
		return "robots"
	}
	if p.Pacing.Mode == pacing.ModeNone {
		return "pace"
	}
	return "other"
}

func (b *pageBuilder) never() Section {
	s := Section{ID: "never", Title: "Where it never goes"}
	ports := make([]string, len(b.c.Egress.Ports))
	for i, p := range b.c.Egress.Ports {
		ports[i] = strconv.Itoa(p)
	}
	line := []Sentence{say("never.private", "No loopback, private, link-local or reserved address, IPv4 or IPv6; each name is checked when it is connected to, after every redirect too.")}
	if len(b.c.Egress.AllowPrivate) > 0 {
		line[0] = say("never.private", "No loopback, private, link-local or reserved address but those that the operator opened for itself.")
	}
	line = append(line, say("never.ports", "Only http and https on the ports %s.", strings.Join(ports, ", ")))
	methods := map[string]bool{}
	for _, p := range b.profilesOf(b.mainAgent()) {
		for _, m := range p.Limits.Methods {
			methods[m] = true
		}
	}
	if len(methods) > 0 && !methods["POST"] && !methods["PUT"] && !methods["DELETE"] && !methods["PATCH"] {
		line = append(line, say("never.submit", "The crawler only reads: it sends no forms."))
	}
	s.Blocks = []Block{{Sentences: line}}
	return s
}

func (b *pageBuilder) stated(a configs.Agent) Section {
	s := Section{ID: "stated", Title: "Stated by the operator, not enforced by the gate"}
	for _, st := range b.c.Page.Statements {
		text := st.Text
		if st.Title != "" {
			text = st.Title + ": " + text
		}
		s.Blocks = append(s.Blocks, Block{Stated: true, Sentences: []Sentence{{Text: text}}})
	}
	if len(a.Purposes) > 0 {
		s.Blocks = append(s.Blocks, Block{Stated: true, Sentences: []Sentence{{Text: "What is fetched is used for: " + strings.Join(a.Purposes, ", ") + "."}}})
	}
	if a.Contact != "" {
		s.Blocks = append(s.Blocks, Block{Stated: true, Sentences: []Sentence{{Text: "Contact: " + a.Contact}}})
	}
	return s
}

// words says a duration to people.
func words(d time.Duration) string {
	switch {
	case d >= 24*time.Hour && d%(24*time.Hour) == 0:
		return plural(int(d/(24*time.Hour)), "day")
	case d >= time.Hour && d%time.Hour == 0:
		return plural(int(d/time.Hour), "hour")
	case d >= time.Minute && d%time.Minute == 0:
		return plural(int(d/time.Minute), "minute")
	case d%time.Second == 0:
		return plural(int(d/time.Second), "second")
	}
	return d.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
