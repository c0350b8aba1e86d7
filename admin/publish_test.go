package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const testCert = `-----BEGIN CERTIFICATE-----
AQIDBA==
-----END CERTIFICATE-----
`

func TestPAC(t *testing.T) {
	s := newServer(t, nil)
	w := get(s, "/proxy.pac")
	if ct := w.Header().Get("Content-Type"); w.Code != 200 || ct != "application/x-ns-proxy-autoconfig" {
		t.Fatalf("%d, %s", w.Code, ct)
	}
	golden(t, "proxy.pac", w.Body.Bytes())
}

func TestPACAddress(t *testing.T) {
	tests := []struct{ listener, host, want string }{
		{"0.0.0.0:3128", "127.0.0.1:3129", "PROXY 127.0.0.1:3128"},
		{"[::]:3128", "localhost:3129", "PROXY localhost:3128"},
		{":3128", "[::1]:3129", "PROXY [::1]:3128"},
		{"gate.example:3128", "127.0.0.1:3129", "PROXY gate.example:3128"},
		{"[fe80::1%eth0]:3128", "127.0.0.1:3129", "PROXY [fe80::1]:3128"},
		{`a"; alert(1); ":3128`, "127.0.0.1:3129", ""},
		{"a\nb:3128", "127.0.0.1:3129", ""},
		{"gate.example:31x8", "127.0.0.1:3129", ""},
		{"gate.example:", "127.0.0.1:3129", ""},
		{"gate.example", "127.0.0.1:3129", ""},
		{"", "127.0.0.1:3129", ""},
	}
	for _, tt := range tests {
		s := newServer(t, func(o *Options) { o.ProxyAddr = func() string { return tt.listener } })
		w := ask(s.Handler(), "GET", "/proxy.pac", tt.host, "")
		if tt.want == "" {
			if w.Code != 404 {
				t.Errorf("%q: %d %s", tt.listener, w.Code, w.Body)
			}
			continue
		}
		if !strings.Contains(w.Body.String(), `return "`+tt.want+`";`) {
			t.Errorf("%q asked by %s: %s", tt.listener, tt.host, w.Body)
		}
	}
}

// RL-6: the addresses are published in the form other crawlers use.
func TestIPRanges(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.IPRanges = func() []netip.Addr {
			return []netip.Addr{
				netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("192.0.2.9"),
			}
		}
	})
	w := get(s, "/ip-ranges.json")
	var got struct {
		Created  string              `json:"creationTime"`
		Prefixes []map[string]string `json:"prefixes"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000000", got.Created); err != nil {
		t.Error(err)
	}
	want := []map[string]string{{"ipv4Prefix": "192.0.2.7/32"}, {"ipv4Prefix": "192.0.2.9/32"}, {"ipv6Prefix": "2001:db8::7/128"}}
	if len(got.Prefixes) != len(want) {
		t.Fatalf("got %v", got.Prefixes)
	}
	for i := range want {
		for k, v := range want[i] {
			if got.Prefixes[i][k] != v || len(got.Prefixes[i]) != 1 {
				t.Errorf("prefix %d: %v, want %v", i, got.Prefixes[i], want[i])
			}
		}
	}
	if w := get(newServer(t, nil), "/ip-ranges.json"); w.Code != 404 {
		t.Errorf("with no addresses: %d", w.Code)
	}
}

// The key of the CA is never given out, even if it lies in the same file.
func TestCAWithoutKey(t *testing.T) {
	both := "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n" + testCert + "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n"
	s := newServer(t, func(o *Options) { o.CAPEM = func() []byte { return []byte(both) } })
	if w := get(s, "/ca.pem"); w.Code != 200 || w.Body.String() != testCert {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s = newServer(t, func(o *Options) {
		o.CAPEM = func() []byte { return []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n") }
	})
	if w := get(s, "/ca.pem"); w.Code != 404 || strings.Contains(w.Body.String(), "c2VjcmV0") {
		t.Errorf("a key alone: %d %s", w.Code, w.Body)
	}
}

// published is a server with all that can be published.
func published(t *testing.T, change func(*Options)) *Server {
	return newServer(t, func(o *Options) {
		o.Authorities = func() []string { return []string{"bot.example", "second.example:8443"} }
		o.Directory = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Cache-Control", "public, max-age=3600, no-transform")
			w.Header().Set("Content-Type", "application/http-message-signatures-directory+json")
			_, _ = io.WriteString(w, "{\"keys\":[]}")
		})
		o.Card = func(string) ([]byte, bool) { return []byte(`{"client_name":"ExampleBot"}`), true }
		o.About = func() ([]byte, bool) { return []byte("<!doctype html><title>About</title>"), true }
		o.IPRanges = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.7")} }
		if change != nil {
			change(o)
		}
	})
}

var publishedPaths = []string{pathDirectory, pathCard, pathIPRanges, pathAbout}

func TestPublishedPathsAnswerToTheirHost(t *testing.T) {
	s := published(t, nil)
	for _, path := range publishedPaths {
		for host, want := range map[string]int{
			ownHost: 200, "bot.example": 200, "bot.example:443": 200, "BOT.example.": 200, "second.example:8443": 200,
			"second.example": 403, "bot.example:8443": 403, "evil.example": 403,
		} {
			if w := ask(s.Handler(), "GET", path, host, ""); w.Code != want {
				t.Errorf("%s under %s: %d, want %d", path, host, w.Code, want)
			}
		}
		// Everybody may link to them from anywhere, but only under the public name.
		if w := ask(s.Handler(), "GET", path, "bot.example", "", "Sec-Fetch-Site: cross-site", "Referer: https://news.example/"); w.Code != 200 {
			t.Errorf("%s linked from another site: %d", path, w.Code)
		}
		if w := ask(s.Handler(), "GET", path, ownHost, "", "Sec-Fetch-Site: cross-site"); w.Code != 403 {
			t.Errorf("%s of the admin host from another site: %d", path, w.Code)
		}
		if w := ask(s.Handler(), "POST", path, "bot.example", "{}"); w.Code != 405 {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/", "/metrics", "/api/status", "/healthz", "/ca.pem", "/api/decisions"} {
		if w := ask(s.Handler(), "GET", path, "bot.example", ""); w.Code != 403 {
			t.Errorf("%s under the published host: %d", path, w.Code)
		}
	}
	if w := ask(s.Handler(), "GET", pathDirectory, "bot.example", ""); w.Header().Get("Access-Control-Allow-Origin") != "*" || w.Header().Get("Cache-Control") != "public, max-age=3600, no-transform" {
		t.Errorf("the directory's own fields: %v", w.Header())
	}
}

func TestPublishListener(t *testing.T) {
	s := published(t, nil)
	for _, path := range publishedPaths {
		for host, want := range map[string]int{"bot.example": 200, "evil.example": 404, ownHost: 404} {
			if w := ask(s.PublishHandler(), "GET", path, host, ""); w.Code != want {
				t.Errorf("%s under %s: %d, want %d", path, host, w.Code, want)
			}
		}
	}
	for path := range s.routes() {
		if s.routes()[path].publish {
			continue
		}
		if w := ask(s.PublishHandler(), "GET", path, "bot.example", ""); w.Code != 404 {
			t.Errorf("%s on the publish listener: %d", path, w.Code)
		}
	}
	s = published(t, func(o *Options) { o.IgnoreHost = true })
	for _, h := range []http.Handler{s.PublishHandler(), s.Handler()} {
		if w := ask(h, "GET", pathAbout, "rewritten.internal", ""); w.Code != 200 {
			t.Errorf("with ignore_host: %d", w.Code)
		}
	}
	if w := ask(s.Handler(), "GET", "/metrics", "rewritten.internal", ""); w.Code != 403 {
		t.Errorf("ignore_host opens more than the published paths: %d", w.Code)
	}
}

func TestServeRoot(t *testing.T) {
	s := published(t, func(o *Options) { o.ServeRoot = true })
	for _, h := range []http.Handler{s.Handler(), s.PublishHandler()} {
		if w := ask(h, "GET", "/", "bot.example", ""); w.Code != 200 || w.Body.String() != `{"keys":[]}` {
			t.Errorf("/ under the authority: %d %.40s", w.Code, w.Body)
		}
	}
	if w := get(s, "/"); w.Code != 200 || !strings.Contains(w.Body.String(), "<title>crawlgate") {
		t.Errorf("/ under the admin host: %d %.40s", w.Code, w.Body)
	}
}

func TestNothingPublished(t *testing.T) {
	s := newServer(t, nil)
	for _, path := range append(publishedPaths, "/ca.pem", "/api/ledger", "/api/jobs", "/api/jobs/x", "/api/audit", "/api/explain?url=http://a.example/", "/api/robots/"+strings.Repeat("0", 64)) {
		if w := get(s, path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
