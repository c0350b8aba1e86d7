package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"crawlgate/proxy/guard/dnstest"
)

// twoAgents are two identities of one operator.
const twoAgents = `[{name: example, product_token: ExampleBot, user_agent: "` + agentUA + `", purposes: [search]}, {name: second, product_token: SecondBot, user_agent: "SecondBot/1.0", purposes: [search]}]`

// TestIdentityLock: what a site refused to one agent goes out under no other, also after a restart; the same agent may
// ask again, and a person's profile is exempt.
func TestIdentityLock(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/401":
				w.Header().Set("WWW-Authenticate", `Basic realm="site"`)
				w.WriteHeader(http.StatusUnauthorized)
			case "/403":
				w.WriteHeader(http.StatusForbidden)
			case "/451":
				w.WriteHeader(http.StatusUnavailableForLegalReasons)
			case "/404":
				w.WriteHeader(http.StatusNotFound)
			}
		}
	}, "site.test")
	g := startGate(t, gateConfig{origins: []*origin{o}, agents: twoAgents,
		profiles: `[{name: crawl, agent: example, ` + fast + `}, {name: second, agent: second, ` + fast + `}, {name: person, agent: second, identity_lock: 0s, ` + fast + `}]`,
		clients:  fmt.Sprintf(`[{name: team, secret_hash: %q, profiles: [crawl, second, person], sites: [%q]}, {name: else, secret_hash: %q, profiles: [second], sites: [%q]}]`, accessHash, o.url("/"), accessHash, o.url("/"))})
	locked := func(when string) {
		t.Helper()
		for _, code := range []string{"401", "403", "451"} {
			for _, user := range []string{"team+second", "else"} { // for all clients together
				refusedAs(t, when+": "+user+" "+code, g.get(t, user, o.url("/"+code)), 403, "identity-switch", "answered "+code+" to the agent example at 20")
			}
			if a := g.get(t, "team+second", o.url("/"+code), "--head"); a.status != 403 || a.header.Get("Crawlgate-Reason") != "identity-switch" {
				t.Errorf("%s: HEAD: %+v", when, a)
			}
		}
	}
	for _, code := range []int{401, 403, 451, 404} {
		passed(t, "first", g.get(t, "team", o.url("/"+itoa(code))), code)
	}
	locked("running")
	passed(t, "404 is no refusal", g.get(t, "team+second", o.url("/404")), 404)
	passed(t, "another page", g.get(t, "team+second", o.url("/open")), 200)
	passed(t, "the same agent again", g.get(t, "team", o.url("/401")), 401)
	passed(t, "a person", g.get(t, "team+person", o.url("/403")), 403)
	r := g.cli(t, "check", "--client", "team", "--profile", "second", o.url("/451"))
	if r.code != 3 || !strings.Contains(r.out, "refused   identity-switch") || !strings.Contains(r.out, "answered 451 to the agent example") {
		t.Errorf("check: %+v", r)
	}
	g.restart(t)
	locked("after a restart")
	passed(t, "the same agent after a restart", g.get(t, "team", o.url("/403")), 403)
	for _, a := range o.pages() {
		if a.Header.Get("User-Agent") == "SecondBot/1.0" && a.URI != "/404" && a.URI != "/open" && a.URI != "/403" {
			t.Errorf("%s arrived under the second name", a.URI)
		}
	}
}

// TestReportOnly: enforce: false, for all or for one client, forwards what would be refused and records it; identity, ports,
// addresses and stops hold.
func TestReportOnly(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"all", "client"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, tlsH1, func(o *origin) {
				o.robots = "User-agent: *\nDisallow: /no\n"
				o.handle = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/refuses" {
						w.WriteHeader(http.StatusForbidden)
					}
				}
			}, "site.test", "off.test", "stopped.test")
			c := gateConfig{origins: []*origin{o}, agents: twoAgents, hosts: []string{"10.1.2.3 lan.test"},
				profiles: `[{name: crawl, agent: example, ` + fast + `}, {name: second, agent: second, ` + fast + `}, {name: errand, agent: example, ` + fast + `, job: {max_pages: 1}}]`}
			mild := ""
			if how == "all" {
				c.more = "enforce: false\n"
			} else {
				mild = ", enforce: false"
			}
			profiles := fmt.Sprintf("profiles: [crawl, second, errand], sites: [%q, %q]", o.url("/"), o.at("stopped.test", "/"))
			c.clients = fmt.Sprintf(`[{name: mild, secret_hash: %q, %s%s}, {name: strict, secret_hash: %q, %s}]`, accessHash, profiles, mild, accessHash, profiles)
			g := startGate(t, c)
			if r := g.cli(t, "sites", "stop", "stopped.test", "--reason", "asked by mail"); r.code != 0 {
				t.Fatalf("%+v", r)
			}
			passed(t, "robots.txt forbids", g.get(t, "mild", o.url("/no")), 200)
			passed(t, "not on the list", g.get(t, "mild", o.at("off.test", "/")), 200)
			passed(t, "job's page", g.get(t, "mild+errand+j", o.url("/one")), 200)
			passed(t, "past the job's budget", g.get(t, "mild+errand+j", o.url("/two")), 200)
			passed(t, "the site refuses", g.get(t, "mild", o.url("/refuses")), 403)
			refusedAs(t, "identity", g.get(t, "mild+second", o.url("/refuses")), 403, "identity-switch")
			refusedAs(t, "port", g.get(t, "mild", "http://site.test:1/"), 403, "port-denied")
			refusedAs(t, "address", g.get(t, "mild", "https://10.1.2.3/"), 403, "address-denied")
			refusedAs(t, "name of an address", g.get(t, "mild", "https://lan.test/"), 403, "address-denied")
			refusedAs(t, "stop", g.get(t, "mild", o.at("stopped.test", "/")), 403, "site-stopped", "asked by mail")
			refusedAs(t, "method", g.get(t, "mild", o.url("/"), "-X", "DELETE"), 405, "method-denied")
			if a := curl(t, g, o.url("/")); a.connect != 407 {
				t.Errorf("without credentials: %+v", a)
			}
			if how == "client" {
				refusedAs(t, "another client", g.get(t, "strict", o.url("/no")), 403, "robots-disallow")
				refusedAs(t, "another client", g.get(t, "strict", o.at("off.test", "/")), 403, "site-denied")
			}
			for url, want := range map[string]string{o.url("/no"): "robots-disallow", o.at("off.test", "/"): "site-denied"} {
				r := g.cli(t, "check", "--client", "mild", url)
				if r.code != 0 || !strings.HasPrefix(r.out, "allowed   now\n") || !strings.Contains(r.out, "it is sent, and recorded as refused by "+want) {
					t.Errorf("check %s: %+v", url, r)
				}
			}
			would := map[string]string{o.url("/no"): "robots-disallow", o.at("off.test", "/"): "site-denied", o.url("/two"): "job-exhausted", o.url("/one"): ""}
			for _, e := range g.requests(t) {
				if want, ok := would[e.URL]; ok && e.Client.Name == "mild" && e.Method == "GET" {
					delete(would, e.URL)
					if e.WouldDeny != want || e.Decision != "forwarded" && e.Decision != "would_deny" || !e.Sent {
						t.Errorf("recorded as %+v, would be %q", e, want)
					}
				}
			}
			if len(would) > 0 {
				t.Errorf("not recorded: %v", would)
			}
		})
	}
}

// TestNames: a name that changes its address between two questions, aliases of private addresses, and answers of which one
// is not to be reached. The exception for 127.0.0.1 stands for the public address; 127.0.0.2 has a listener that must
// hear nothing.
func TestNames(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	addr := netip.MustParseAddr
	dns := dnstest.New(t, func(q dnstest.Question) dnstest.Reply {
		if q.Type != dnsmessage.TypeA && !strings.HasPrefix(q.Name, "six") {
			return dnstest.Reply{}
		}
		n, _ := asked.LoadOrStore(q.Name, new(atomic.Int64))
		times := n.(*atomic.Int64).Add(1)
		switch q.Name {
		case "rebind.test":
			if times > 1 {
				return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.2")}}
			}
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "steady.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "alias.test":
			return dnstest.Reply{CNAME: []string{"www.alias.test"}, Addrs: []netip.Addr{addr("127.0.0.1")}}
		case "alias-lan.test":
			return dnstest.Reply{CNAME: []string{"a.test", "b.test"}, Addrs: []netip.Addr{addr("10.1.2.3")}}
		case "alias-canary.test":
			return dnstest.Reply{CNAME: []string{"steady.test"}, Addrs: []netip.Addr{addr("127.0.0.2")}}
		case "mixed.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("10.1.2.3")}}
		case "mixed-canary.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("127.0.0.2")}}
		case "six.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("::ffff:127.0.0.2")}}
		case "six-local.test":
			return dnstest.Reply{Addrs: []netip.Addr{addr("127.0.0.1"), addr("::1")}}
		case "none.test":
			return dnstest.Reply{}
		}
		return dnstest.Reply{RCode: dnsmessage.RCodeNameError}
	})
	o := newOrigin(t, plainHTTP, func(o *origin) {
		o.rules = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close") // the page needs a connection of its own, and so another look-up
			_, _ = io.WriteString(w, "User-agent: *\nAllow: /\n")
		}
	}, "static.test")
	canary, err := net.Listen("tcp", "127.0.0.2:"+itoa(o.port))
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	go func() {
		for {
			c, err := canary.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { canary.Close() })
	g := startGate(t, gateConfig{origins: []*origin{o}, profiles: `[{name: crawl, ` + fast + `}]`, egress: []string{"dns: [" + dns.Addr + "]", "ports: [" + itoa(o.port) + "]"}})
	var refused []string
	for _, c := range []struct {
		host   string
		status int
		reason string
		class  string
	}{
		{"static.test", 200, "", ""}, {"steady.test", 200, "", ""}, {"alias.test", 200, "", ""},
		{"rebind.test", 403, "address-denied", "addr_loopback"}, {"alias-lan.test", 403, "address-denied", "addr_private"}, {"alias-canary.test", 403, "address-denied", "addr_loopback"},
		{"mixed.test", 403, "address-denied", "addr_private"}, {"mixed-canary.test", 403, "address-denied", "addr_loopback"}, {"six.test", 403, "address-denied", ""}, {"six-local.test", 403, "address-denied", "addr_loopback"},
		{"none.test", 502, "dns-failed", ""}, {"nowhere.test", 502, "dns-failed", ""},
	} {
		url := o.at(c.host, "/x")
		a := curl(t, g, url)
		if c.reason == "" {
			passed(t, c.host, a, c.status)
			continue
		}
		refusedAs(t, c.host, a, c.status, c.reason)
		if c.reason == "address-denied" {
			refused = append(refused, url)
			if strings.Contains(a.body, "127.0.0.2") || strings.Contains(a.body, "10.1.2.3") {
				t.Errorf("%s: the refusal names an address that the request did not: %s", c.host, a.body)
			}
			if p := readProblem(t, a.body); c.class != "" && p.Class != c.class {
				t.Errorf("%s: class %s, not %s", c.host, p.Class, c.class)
			}
		}
	}
	r := g.cli(t, append([]string{"check"}, refused...)...)
	if r.code != 3 || strings.Count(r.out, "refused   address-denied") != len(refused) || !strings.Contains(r.out, "10.1.2.3 addr_private") {
		t.Errorf("check: %+v", r)
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("%d connections to an address that must not be reached", n)
	}
	for _, a := range o.arrivals() {
		if !strings.HasPrefix(a.Host, "st") && !strings.HasPrefix(a.Host, "alias.test") && !(strings.HasPrefix(a.Host, "rebind.") && a.URI == "/robots.txt") {
			t.Errorf("%s %s arrived", a.Host, a.URI)
		}
	}
}

// TestOwnPorts: no spelling of an address and no exception leads to crawlgate's own listeners; and variables that name a
// proxy mean nothing to serve itself.
func TestOwnPorts(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "site.test")
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { trap.Close() })
	proxy, admin := freePort(t), freePort(t)
	to := "http://" + trap.Addr().String()
	g := startGate(t, gateConfig{origins: []*origin{o}, ports: []int{proxy, admin}, listen: "127.0.0.1:" + itoa(proxy), admin: "127.0.0.1:" + itoa(admin),
		hosts: []string{"127.0.0.1 me.test"}, profiles: `[{name: crawl, ` + fast + `}]`,
		env: []string{"http_proxy=" + to, "https_proxy=" + to, "HTTP_PROXY=" + to, "HTTPS_PROXY=" + to, "all_proxy=" + to, "ALL_PROXY=" + to}})
	passed(t, "past the environment's proxy", curl(t, g, o.url("/")), 200)
	if heard.Load() != 0 {
		t.Error("serve used a proxy of its environment")
	}
	for _, port := range []int{proxy, admin} {
		for _, host := range []string{"127.0.0.1", "me.test"} {
			for _, scheme := range []string{"http", "https"} {
				url := fmt.Sprintf("%s://%s:%d/metrics", scheme, host, port)
				refusedAs(t, url, curl(t, g, url), 508, "loop")
			}
		}
		for _, host := range []string{"localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001"} {
			// curl itself turns some of these into 127.0.0.1; whatever it sends, nothing is answered from our ports.
			a := curl(t, g, fmt.Sprintf("http://%s:%d/metrics", host, port))
			if a.header.Get("Crawlgate-Reason") == "" || a.status < 400 {
				t.Errorf("%s: %+v", host, a)
			}
		}
		if r := g.cli(t, "check", fmt.Sprintf("http://me.test:%d/", port)); r.code != 3 || !strings.Contains(r.out, "refused   loop") {
			t.Errorf("check: %+v", r)
		}
	}
}
