package configs

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"crawlgate/allowlist"
	"crawlgate/policy"
)

// checker collects what is wrong with a decoded configuration. Each check is one method; all run, whatever they find.
type checker struct {
	c        *Config
	src      *Sources
	known    []Problem // found before decoding; what follows from them is not told again
	problems []Problem
}

// broken tells whether a value at or below the key could not be read.
func (v *checker) broken(key string) bool {
	for _, p := range v.known {
		if under(p.Key, key) || p.meant != "" && under(p.meant, key) {
			return true
		}
	}
	return false
}

// follows tells whether a problem only follows from one that is known: the same key, or one around or below it.
func (v *checker) follows(p Problem) bool {
	for _, k := range v.known {
		if k.File != p.File || k.Key == "" || p.Key == "" {
			continue
		}
		if under(k.Key, p.Key) || under(p.Key, k.Key) || k.meant != "" && under(k.meant, p.Key) {
			return true
		}
	}
	return false
}

// under tells whether key is at or below top.
func under(key, top string) bool {
	rest, ok := strings.CutPrefix(key, top)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (v *checker) all() {
	v.leaves()
	v.agents()
	v.profiles()
	v.clients()
	v.listeners()
	v.rest()
}

// fail reports a problem with the value of a key; say reports one whose text goes on from the key.
func (v *checker) fail(key, format string, args ...any) {
	v.add(v.at(key, fmt.Sprintf(format, args...)))
}

func (v *checker) say(key, format string, args ...any) {
	p := v.at(key, fmt.Sprintf(format, args...))
	p.sentence = true
	v.add(p)
}

func (v *checker) add(p Problem) {
	if !v.follows(p) {
		v.problems = append(v.problems, p)
	}
}

// warn tells what is allowed but seldom right. What a preset says is meant.
func (v *checker) warn(key, format string, args ...any) {
	if p := v.at(key, fmt.Sprintf(format, args...)); p.from != fromPreset {
		v.src.Warnings = append(v.src.Warnings, p)
	}
}

// at is a problem at the line of the key, or of the block around it, under the name that the key has in that file.
func (v *checker) at(key, text string) Problem { return v.src.near(key).problem(text) }

// leaf reports the errors of a leaf's Validate below a prefix.
func (v *checker) leaf(prefix string, err error) {
	for _, e := range unjoin(err) {
		key := prefix
		var k interface{ Key() string }
		if errors.As(e, &k) && k.Key() != "" {
			if key = prefix + "." + k.Key(); prefix == "" {
				key = k.Key()
			}
		}
		v.fail(key, "%s", strings.ReplaceAll(e.Error(), "\n", "; "))
	}
}

func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	j, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the join itself, not what it wraps
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range j.Unwrap() {
		out = append(out, unjoin(e)...)
	}
	return out
}

func (v *checker) leaves() {
	c := v.c
	v.leaf("egress", c.Egress.Validate())
	v.leaf("robots", c.Robots.Validate())
	v.leaf("pacing", c.Pacing.Validate())
	v.leaf("redis", c.Redis.Validate())
	v.leaf("sign", c.Sign.Validate())
	v.leaf("publish", c.Publish.Validate())
	v.leaf("audit", c.Audit.Validate())
	for i, a := range c.SignAgents() {
		v.leaf(indexed("agents", i), a.Validate())
	}
	for i, p := range c.Profiles {
		v.leaf(indexed("profiles", i)+".robots", p.Robots.Validate())
		v.leaf(indexed("profiles", i)+".pacing", p.Pacing.Validate())
		for _, w := range warningsOf(p.Pacing) {
			v.warn(indexed("profiles", i)+".pacing", "%s", w)
		}
		for _, w := range warningsOf(p.Robots) {
			v.warn(indexed("profiles", i)+".robots", "%s", strings.TrimPrefix(w, "robots."))
		}
	}
	if len(c.Clients) > 0 {
		list := c.Allowlist() // its deny_hosts are checked with egress
		for i, cl := range list.Clients {
			v.leaf(indexed("clients", i), cl.Validate())
			if v.src.place(indexed("clients", i)+".grants").from == fromDefault {
				cl.Grants = nil // nobody wrote them, so they are no mistake
			}
			one := allowlist.Config{Clients: []allowlist.ClientConfig{cl}, DenyHosts: list.DenyHosts}
			for _, w := range one.Warnings() {
				v.warn(indexed("clients", i), "%s", strings.TrimPrefix(w, "client "+cl.Name+": "))
			}
		}
	}
	for _, b := range []struct {
		key   string
		block any
	}{{"egress", c.Egress}, {"robots", c.Robots}, {"pacing", c.Pacing}, {"redis", c.Redis}, {"sign", c.Sign}, {"publish", c.Publish}, {"audit", c.Audit}} {
		for _, w := range warningsOf(b.block) {
			v.warn(b.key, "%s", strings.TrimPrefix(w, b.key+"."))
		}
	}
}

// warningsOf asks a leaf's block for its warnings, if it has any to give.
func warningsOf(block any) []string {
	if w, ok := block.(interface{ Warnings() []string }); ok {
		return w.Warnings()
	}
	return nil
}

var (
	nameForm  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	tokenForm = regexp.MustCompile(`^[A-Za-z_-]+$`)
	tokenWide = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// name checks what a user name may carry; + and : split it. An empty one has been reported.
func (v *checker) name(key, name string) {
	if name != "" && !nameForm.MatchString(name) {
		v.fail(key, "%s is not a name: letters, digits, . _ - and up to 64 of them", quote(name))
	}
}

func (v *checker) oneOf(key, value string, words ...string) {
	if !slices.Contains(words, value) {
		v.fail(key, "%s is not one of %s", quote(value), strings.Join(words, ", "))
	}
}

func (v *checker) agents() {
	for i, a := range v.c.Agents {
		at := indexed("agents", i)
		v.name(at+".name", a.Name)
		pass := a.UserAgent == UserAgentPass
		if a.UserAgent == "" {
			v.say(at+".user_agent", "is missing: sites must be able to tell who asks")
		} else if strings.ContainsFunc(a.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) || len(a.UserAgent) > 512 {
			v.fail(at+".user_agent", "only printable ASCII can be sent, up to 512 characters")
		}
		switch t := a.ProductToken; {
		case t == "" && pass && !v.obeyed(a.Name):
		case t == "":
			v.say(at+".product_token", "is missing: it names the agent in robots.txt and is never guessed")
		case !tokenWide.MatchString(t):
			v.fail(at+".product_token", "%s is not a token: letters, - and _ (RFC 9309 section 2.2.1)", quote(t))
		case !pass && a.UserAgent != "" && !strings.Contains(strings.ToLower(a.UserAgent), strings.ToLower(t)):
			v.say(at+".user_agent", "does not contain product_token %s: sites match on the token", quote(t))
		case !tokenForm.MatchString(t):
			v.warn(at+".product_token", "%s has digits, which some parsers cut off; letters, - and _ are safe", quote(t))
		}
		for j, t := range a.FallbackTokens {
			if !tokenWide.MatchString(t) {
				v.fail(indexed(at+".fallback_tokens", j), "%s is not a token: letters, - and _", quote(t))
			}
		}
		for j, p := range a.Purposes {
			v.oneOf(indexed(at+".purposes", j), p, "search", "ai-input", "ai-train")
		}
		if a.InfoURL != "" && !isWeb(a.InfoURL) {
			v.fail(at+".info_url", "%s is not an http or https URL", quote(a.InfoURL))
		}
		if strings.ContainsFunc(a.Contact, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			v.fail(at+".contact", "has control characters")
		}
		if !pass && a.InfoURL == "" && a.Contact == "" && !strings.Contains(a.UserAgent, "://") && !strings.Contains(a.UserAgent, "@") {
			v.warn(at, "has no info_url, no contact and no address in user_agent: a site owner cannot reach you")
		}
	}
}

// obeyed tells whether a profile of the agent reads robots.txt.
func (v *checker) obeyed(agent string) bool {
	return slices.ContainsFunc(v.c.Profiles, func(p Profile) bool { return p.Agent == agent && p.Robots.Mode != policy.ModeIgnore })
}

func isWeb(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil
}
