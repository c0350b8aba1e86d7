package admin

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A name that resolves to loopback must not reach the page (DNS rebinding).
func TestHostCheck(t *testing.T) {
	tests := []struct {
		listener, host string
		want           int
	}{
		{"127.0.0.1:3129", "127.0.0.1:3129", 200},
		{"127.0.0.1:3129", "localhost:3129", 200},
		{"127.0.0.1:3129", "LOCALHOST:3129", 200},
		{"127.0.0.1:3129", "localhost.:3129", 200},
		{"127.0.0.1:3129", "[::1]:3129", 200},
		{"127.0.0.1:3129", "127.0.0.1:9000", 200}, // through a forwarded port
		{"127.0.0.1:3129", "127.0.0.1", 200},
		{"127.0.0.1:3129", "[::ffff:127.0.0.1]:3129", 200},
		{"127.0.0.1:3129", "gate.example:3129", 200}, // in Hosts
		{"127.0.0.1:3129", "pinned.example:8443", 200},
		{"127.0.0.1:3129", "pinned.example:8444", 403},
		{"127.0.0.1:3129", "evil.example:3129", 403},
		{"127.0.0.1:3129", "127.0.0.1.evil.example:3129", 403},
		{"127.0.0.1:3129", "localhost.evil.example", 403},
		{"127.0.0.1:3129", "evil.example:3129@127.0.0.1:3129", 403},
		{"127.0.0.1:3129", "192.0.2.1:3129", 403},
		{"127.0.0.1:3129", "0x7f.1:3129", 403},
		{"127.0.0.1:3129", "2130706433", 403},
		{"127.0.0.1:3129", "", 403},
		{"127.0.0.1:3129", "bot.example", 403}, // an authority answers for published paths only
		{"192.0.2.9:3129", "192.0.2.9:3129", 200},
		{"192.0.2.9:3129", "localhost:3129", 403},
		{"192.0.2.9:3129", "192.0.2.8:3129", 403},
		{"0.0.0.0:3129", "192.0.2.9:3129", 200},
		{"0.0.0.0:3129", "[2001:db8::9]:3129", 200},
		{"0.0.0.0:3129", "evil.example:3129", 403},
		{"[::1]:3129", "127.0.0.1:3129", 200},
	}
	for _, tt := range tests {
		t.Run(tt.listener+" "+tt.host, func(t *testing.T) {
			s := newServer(t, func(o *Options) {
				o.Addr = addrOf(tt.listener)
				o.Hosts = []string{"gate.example", "pinned.example:8443"}
				o.Authorities = func() []string { return []string{"bot.example"} }
			})
			for _, path := range []string{"/", "/healthz", "/metrics", "/api/status", "/nothing"} {
				want := tt.want
				if path == "/nothing" && want == 200 {
					want = 404
				}
				if got := ask(s.Handler(), "GET", path, tt.host, ""); got.Code != want {
					t.Errorf("GET %s: %d, want %d: %s", path, got.Code, want, got.Body)
				}
			}
		})
	}
}

func TestHostCheckUnixSocket(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Addr = func() net.Addr { return &net.UnixAddr{Name: "admin.sock", Net: "unix"} }
	})
	if w := ask(s.Handler(), "GET", "/healthz", "gate", ""); w.Code != 200 {
		t.Errorf("over a socket file: %d", w.Code)
	}
}

func TestUsedAsProxy(t *testing.T) {
	s := newServer(t, nil)
	r := httptest.NewRequest("GET", "http://127.0.0.1:3129/", nil)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code != 403 || !strings.Contains(w.Body.String(), "not its proxy port") {
		t.Errorf("absolute form: %d %s", w.Code, w.Body)
	}
	r = httptest.NewRequest("CONNECT", "127.0.0.1:3129", nil)
	w = httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("CONNECT: %d", w.Code)
	}
}

func TestCrossSite(t *testing.T) {
	tests := []struct {
		name   string
		header []string
		want   int
	}{
		{"no browser", nil, 200},
		{"typed", []string{"Sec-Fetch-Site: none"}, 200},
		{"own page", []string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:3129", "Referer: http://127.0.0.1:3129/?host=a"}, 200},
		{"other site", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"other port of this machine", []string{"Sec-Fetch-Site: same-site"}, 403},
		{"unknown word", []string{"Sec-Fetch-Site: maybe"}, 403},
		{"foreign origin", []string{"Origin: https://evil.example"}, 403},
		{"origin on another port", []string{"Origin: http://127.0.0.1:8080"}, 403},
		{"hidden origin", []string{"Origin: null"}, 403},
		{"empty origin", []string{"Origin: "}, 403},
		{"two origins", []string{"Origin: http://127.0.0.1:3129", "Origin: https://evil.example"}, 403},
		{"foreign referer", []string{"Referer: https://evil.example/page"}, 403},
		{"own name in a foreign referer", []string{"Referer: https://evil.example/127.0.0.1:3129"}, 403},
	}
	s := newServer(t, func(o *Options) {
		o.CAPEM = func() []byte { return nil }
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/", "/api/status", "/metrics", "/proxy.pac", "/healthz"} {
				if w := get(s, path, tt.header...); w.Code != tt.want {
					t.Errorf("GET %s: %d, want %d", path, w.Code, tt.want)
				}
			}
		})
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
	tests := []struct {
		name, header string
		noToken      bool
		want         int
	}{
		{"none", "", false, 401},
		{"right", "Authorization: Bearer " + token, false, 200},
		{"scheme in lower case", "Authorization: bearer " + token, false, 200},
		{"wrong", "Authorization: Bearer " + token + "x", false, 401},
		{"shorter", "Authorization: Bearer " + token[:10], false, 401},
		{"empty", "Authorization: Bearer ", false, 401},
		{"as a password", basic, false, 401}, // a browser sends that by itself
		{"no token configured", "Authorization: Bearer ", true, 403},
		{"no token configured, some given", "Authorization: Bearer x", true, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			led := new(fakeLedger)
			s := newServer(t, func(o *Options) {
				o.Ledger = led
				o.Jobs = &fakeJobs{jobs: []Job{{ID: "j1", Client: "team-a"}}}
				if tt.noToken {
					o.Token = ""
				}
			})
			header := []string{"Content-Type: application/json"}
			if tt.header != "" {
				header = append(header, tt.header)
			}
			calls := []struct{ method, path, body string }{
				{"POST", "/api/ledger", `{"host":"example.com","action":"stop"}`},
				{"DELETE", "/api/ledger?host=example.com", ""},
				{"POST", "/api/jobs/j1", `{"max_pages":5}`},
				{"DELETE", "/api/jobs/j1", ""},
			}
			for _, c := range calls {
				w := ask(s.Handler(), c.method, c.path, ownHost, c.body, header...)
				want := tt.want
				if want == 200 && c.method == "DELETE" && strings.HasPrefix(c.path, "/api/jobs") {
					want = 204
				}
				if w.Code != want {
					t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, want, w.Body)
				}
				if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s: a 401 without a challenge", c.method, c.path)
				}
			}
			if changed := len(led.calls) > 0; changed != (tt.want == 200) {
				t.Errorf("the ledger was changed: %v", led.calls)
			}
		})
	}
}

// The token does not open a foreign Host or a cross-site request.
func TestTokenOpensNoOtherFence(t *testing.T) {
	led := new(fakeLedger)
	s := newServer(t, func(o *Options) { o.Ledger = led })
	auth := []string{"Authorization: Bearer " + token, "Content-Type: application/json"}
	body := `{"host":"example.com","action":"stop"}`
	if w := ask(s.Handler(), "POST", "/api/ledger", "evil.example", body, auth...); w.Code != 403 {
		t.Errorf("foreign Host: %d", w.Code)
	}
	if w := ask(s.Handler(), "POST", "/api/ledger", ownHost, body, append(auth, "Origin: https://evil.example")...); w.Code != 403 {
		t.Errorf("foreign Origin: %d", w.Code)
	}
	if len(led.calls) > 0 {
		t.Errorf("the ledger was changed: %v", led.calls)
	}
}

func TestReadToken(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.ReadToken = true
		o.CAPEM = func() []byte { return []byte(testCert) }
		o.IPRanges = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.7")} }
		o.Ready = func() []Check { return []Check{{Name: "redis", Detail: "10.0.0.3 does not answer"}} }
	})
	for path, want := range map[string]int{
		"/": 401, "/metrics": 401, "/api/status": 401, "/api/hosts": 401, "/api/decisions": 401, "/live.svg": 401,
		"/api/explain?url=x": 401, "/api/ledger": 401, "/api/audit": 401,
		"/healthz": 200, "/readyz": 503, "/ca.pem": 200, "/proxy.pac": 200, "/ip-ranges.json": 200, "/live.css": 200,
	} {
		w := get(s, path)
		if w.Code != want {
			t.Errorf("GET %s without the token: %d, want %d", path, w.Code, want)
		}
		if strings.Contains(w.Body.String(), "10.0.0.3") {
			t.Errorf("GET %s tells details without the token", path)
		}
	}
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
	for _, h := range []string{"Authorization: Bearer " + token, basic} {
		for _, path := range []string{"/", "/metrics", "/api/status"} {
			if w := get(s, path, h); w.Code != 200 {
				t.Errorf("GET %s with %s: %d", path, h[:20], w.Code)
			}
		}
	}
	if w := get(s, "/", "Authorization: Bearer wrong"); w.Code != 401 {
		t.Errorf("wrong token: %d", w.Code)
	}
}

// Every path refuses the methods it does not know and says which it does.
func TestMethods(t *testing.T) {
	s := newServer(t, nil)
	for path, rt := range s.routes() {
		if strings.HasSuffix(path, "/") && path != "/" {
			path += "x"
		}
		for _, method := range []string{"PUT", "PATCH", "OPTIONS", "TRACE", "POST", "DELETE"} {
			w := ask(s.Handler(), method, path, ownHost, "", "Authorization: Bearer "+token)
			if rt.handler(method) != nil {
				continue
			}
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != rt.methods() {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

// Every answer carries the security fields; none has a CORS field.
func TestSecurityHeaders(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.CAPEM = func() []byte { return []byte(testCert) }
		o.IPRanges = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.7")} }
		o.About = func() ([]byte, bool) { return []byte("<!doctype html>"), true }
		o.Card = func(string) ([]byte, bool) { return []byte("{}"), true }
		o.Ledger = new(fakeLedger)
		o.Explain = func(context.Context, string, string, string, time.Time) (any, error) { return "ok", nil }
		o.RobotsFile = func(string) ([]byte, bool) { return []byte("User-agent: *"), true }
	})
	paths := []string{"/nothing", "/api/robots/" + strings.Repeat("0a", 32)}
	for p := range s.routes() {
		if p != "/api/decisions" && p != "/api/jobs/" && p != "/api/robots/" {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		for _, host := range []string{ownHost, "evil.example"} {
			w := ask(s.Handler(), "GET", p, host, "", "Origin: http://"+host)
			h := w.Header()
			if h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: no nosniff", p)
			}
			csp := h.Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("%s: policy %q", p, csp)
			}
			if strings.Contains(csp, "script-src") && strings.Contains(csp, "unsafe") {
				t.Errorf("%s: scripts of strangers could run: %q", p, csp)
			}
			for name := range h {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: has %s", p, name)
				}
			}
			published := w.Code == 200 && s.routes()[p].publish
			if cc := h.Get("Cache-Control"); cc != "no-store" && !published {
				t.Errorf("%s: Cache-Control %q", p, cc)
			}
			if w.Code == 200 && h.Get("Content-Type") == "" {
				t.Errorf("%s: no Content-Type", p)
			}
		}
	}
}

func TestBodyLimit(t *testing.T) {
	led := new(fakeLedger)
	s := newServer(t, func(o *Options) { o.Ledger = led })
	body := `{"host":"example.com","action":"stop","reason":"` + strings.Repeat("x", maxBody) + `"}`
	w := ask(s.Handler(), "POST", "/api/ledger", ownHost, body, "Authorization: Bearer "+token, "Content-Type: application/json")
	if w.Code != http.StatusRequestEntityTooLarge || len(led.calls) > 0 {
		t.Errorf("a large body: %d %s", w.Code, w.Body)
	}
}
