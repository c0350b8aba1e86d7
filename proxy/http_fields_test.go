package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"crawlgate/proxy/guard"
)

// Fields: repeated ones stay repeated and in order, long ones pass, those of one connection, of proxies and of ours do
// not, in both directions and on every pair of protocols.
func TestHTTPFields(t *testing.T) {
	long := strings.Repeat("v", 16<<10)
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h["Set-Cookie"] = []string{"a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT", "b=2"}
		h["X-Order"] = []string{"1", "2", "3"}
		h["X-Long"] = []string{long}
		h["Keep-Alive"] = []string{"timeout=5"}
		h["Alt-Svc"] = []string{`h3=":443"`}
		h["Accept-Ch"] = []string{"Sec-CH-UA-Model"}
		h["Critical-Ch"] = []string{"Sec-CH-UA-Model"}
		h["Proxy-Authenticate"] = []string{"Basic realm=x"}
		h["Proxy-Status"] = []string{`crawlgate; error=http_request_denied, cdn; error=dns_error`}
		h["Crawlgate-Reason"] = []string{"robots-disallow"}
		h["Crawlgate-Anything"] = []string{"forged"}
		h["crawlgate-lower"] = []string{"forged"}
		h["Via"] = []string{"1.1 cdn"}
		h["Etag"] = []string{`W/"1"`}
		hello(w, req)
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		req, err := http.NewRequest(http.MethodGet, o.url(s.scheme, "/p?q=%20a&b"), nil)
		must(t, err)
		req.Header = http.Header{
			"X-Long": {long}, "X-Order": {"1", "2", "3"}, "Cookie": {"a=1; b=2"}, "Accept-Encoding": {"br"}, "Range": {"bytes=0-99"}, "If-None-Match": {`"z"`},
			"Forwarded": {"for=1.2.3.4"}, "X-Forwarded-For": {"1.2.3.4"}, "X-Forwarded-Host": {"x"}, "X-Real-Ip": {"1.2.3.4"}, "Via": {"1.1 me"}, "Max-Forwards": {"3"},
			"Proxy-Authorization": {"Basic YTpi"}, "Proxy-Connection": {"keep-alive"}, "Crawlgate-Kind": {"page"}, "Crawlgate-Else": {"x"},
			"Signature": {"sig1=:AA==:"}, "Signature-Input": {"sig1=()"}, "Signature-Agent": {`"https://other"`}, "Authorization": {"Bearer t"},
			"Sec-Ch-Ua": {"x"}, "Sec-Ch-Ua-Mobile": {"?0"}, "Sec-Fetch-Mode": {"cors"}, "Accept-Language": {"de"}, "User-Agent": {"Mozilla/5.0"},
			"Transfer_Encoding": {"chunked"}, "Content_Length": {"3"},
		}
		resp, err := r.client(s.h2).Do(req)
		must(t, err)
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); string(b) != "hello" {
			t.Fatalf("got %d %q", resp.StatusCode, b)
		}
		got := o.requests()[0]
		for name, want := range map[string][]string{"X-Long": {long}, "X-Order": {"1", "2", "3"}, "Accept-Encoding": {"br"}, "Range": {"bytes=0-99"}, "If-None-Match": {`"z"`},
			"Accept-Language": {"de"}, "Sec-Fetch-Mode": {"cors"}, "User-Agent": {"ExampleBot/1.0 (+https://bot.example/about)"}} {
			if !slices.Equal(got.Header[name], want) {
				t.Errorf("the site saw %s: %.60q", name, got.Header[name])
			}
		}
		if c := strings.Join(got.Header["Cookie"], "; "); c != "a=1; b=2" {
			t.Errorf("the site saw Cookie %q", c)
		}
		if got.RequestURI != "/p?q=%20a&b" || got.Host != o.hostport() {
			t.Errorf("the site saw %s at %s", got.RequestURI, got.Host)
		}
		for name := range got.Header {
			l := strings.ToLower(name)
			for _, bad := range []string{"forwarded", "x-forwarded", "x-real-ip", "via", "max-forwards", "proxy-", "crawlgate-", "signature", "authorization", "sec-ch-ua", "transfer_", "content_"} {
				if strings.HasPrefix(l, bad) {
					t.Errorf("the site saw %s", name)
				}
			}
		}
		h := resp.Header
		if !slices.Equal(h["Set-Cookie"], []string{"a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT", "b=2"}) || !slices.Equal(h["X-Order"], []string{"1", "2", "3"}) ||
			h.Get("X-Long") != long || h.Get("Etag") != `W/"1"` || h.Get("Via") != "1.1 cdn" || h.Get("Proxy-Status") != "cdn;error=dns_error" {
			t.Errorf("the fetcher saw %.300v", h)
		}
		for _, name := range []string{"Keep-Alive", "Alt-Svc", "Accept-Ch", "Critical-Ch", "Proxy-Authenticate", "Crawlgate-Reason", "Crawlgate-Anything", "Crawlgate-Lower"} {
			if v := h.Get(name); v != "" {
				t.Errorf("the fetcher saw %s: %s", name, v)
			}
		}
	})
}

// With egress.via the gate names itself, and knows itself again.
func TestHTTPViaIsAdded(t *testing.T) {
	r := newRig(t)
	o := r.origin("via.test", true, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Via = true }})
	r.get(r.client(true), o.url("https", "/"))
	if v := o.requests()[0].Header.Get("Via"); v != "2.0 "+r.gate.pseudonym {
		t.Errorf("Via %q", v)
	}
	resp, _ := r.get(r.client(true), o.url("https", "/"), "Via", "1.0 a, 1.1 "+r.gate.pseudonym)
	if resp.StatusCode != 508 || resp.Header.Get("Crawlgate-Reason") != "loop" || !strings.Contains(resp.Header.Get("Proxy-Status"), "proxy_loop_detected") {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
}

// Trailers pass both ways, cleaned as heads are; those that may not come so late do not.
func TestHTTPTrailers(t *testing.T) {
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprintf("announced=%v", announced), func(t *testing.T) {
			onSides(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("X-Got", req.Trailer.Get("X-Sum")+req.Trailer.Get("Signature")+req.Trailer.Get("X-Forwarded-For")+
					req.Trailer.Get("User-Agent")+req.Trailer.Get("Cookie")+req.Trailer.Get("Authorization"))
				prefix := http.TrailerPrefix
				if announced {
					prefix = ""
					w.Header().Set("Trailer", "X-End, Crawlgate-Reason, Proxy-Status")
				}
				_, _ = io.WriteString(w, "hello")
				_ = http.NewResponseController(w).Flush()
				w.Header().Set(prefix+"X-End", "yes")
				w.Header().Set(prefix+"Crawlgate-Reason", "forged")
				w.Header().Set(prefix+"Proxy-Status", "crawlgate; error=dns_error")
				if !announced {
					w.Header().Set(http.TrailerPrefix+"Content-Length", "3")
					w.Header().Set(http.TrailerPrefix+"Transfer-Encoding", "chunked")
				}
			}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
				req, err := http.NewRequest(http.MethodPost, o.url(s.scheme, "/"), io.MultiReader(strings.NewReader("body")))
				must(t, err)
				req.Trailer = http.Header{
					"X-Sum": {"sum"}, "Signature": {"s"}, "X-Forwarded-For": {"1"},
					"User-Agent": {"u"}, "Cookie": {"c"},
				}
				if !s.h2 { // where such a trailer ends the stream
					req.Trailer["Authorization"] = []string{"a"}
				}
				resp, err := r.client(s.h2).Do(req)
				must(t, err)
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				must(t, err)
				if string(b) != "hello" || resp.Header.Get("X-Got") != "sum" {
					t.Errorf("got %d %q, trailers there %q", resp.StatusCode, b, resp.Header.Get("X-Got"))
				}
				if len(resp.Trailer) != 1 || resp.Trailer.Get("X-End") != "yes" {
					t.Errorf("trailers %v", resp.Trailer)
				}
			})
		})
	}
}

// A head may leave in the moment in which the trailers come; the detector of races and the map's own check look on.
func TestHTTPTrailersAsTheHeadLeaves(t *testing.T) {
	r := newRig(t)
	o := r.origin("moment.test", false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-time.After(headPatience + time.Duration(rand.IntN(400)-300)*time.Microsecond)
		w.Header().Set("X-End", "yes")
	})
	r.start(rigOptions{rules: ignoring})
	for range 100 {
		resp, _ := r.get(r.client(false), o.url("http", "/"))
		if resp.StatusCode != 200 || resp.Trailer.Get("X-End") != "yes" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Trailer)
		}
	}
}

// Names: addresses, upper case, a trailing dot, plain HTTP in a tunnel, another port in Host.
func TestHTTPNames(t *testing.T) {
	r := newRig(t)
	secure := r.origin("names.test", true, "", hello)
	plain := r.origin("namesplain.test", false, "", hello)
	r.start(rigOptions{guard: func(g *guard.Config) { g.Hosts = append(g.Hosts, "127.0.0.1 names.test.") }})
	for _, c := range []struct{ connect, host, sni string }{
		{"NAMES.Test:%d", "names.test", "names.test"},
		{"names.test.:%d", "names.test.", "names.test"},
		{"names.test:%d", "NAMES.TEST:%d", "names.test"},
		{"names.test:%d", "names.test:80", "names.test"}, // what Node sends: the tunnel's port counts
		{"127.0.0.1:%d", "127.0.0.1:%d", ""},
	} {
		authority, host := c.connect, c.host
		if strings.Contains(authority, "%d") {
			authority = fmt.Sprintf(authority, secure.port)
		}
		if strings.Contains(host, "%d") {
			host = fmt.Sprintf(host, secure.port)
		}
		name := c.sni
		if name == "" {
			name = "127.0.0.1" // no SNI is sent for an address; the leaf must carry it
		}
		tc := r.tls(authority, name)
		fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
		must(t, err)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
			t.Errorf("%s, Host %s: %d %s", authority, host, resp.StatusCode, b)
		}
		leaf := tc.ConnectionState().PeerCertificates[0]
		if c.sni == "" && (len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1))) {
			t.Errorf("leaf for %v %v", leaf.IPAddresses, leaf.DNSNames)
		}
	}
	for _, req := range secure.requests() {
		if req.Host != secure.hostport() && !strings.HasPrefix(req.Host, "127.0.0.1:") {
			t.Errorf("the site saw Host %q", req.Host)
		}
	}
	c, br := r.tunnel(plain.hostport())
	fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", plain.hostport())
	resp, err := http.ReadResponse(br, nil)
	must(t, err)
	if resp.StatusCode != 200 {
		t.Errorf("plain in a tunnel: %d", resp.StatusCode)
	}
}

// A path or query that holds a URL is a path or query: only a target that begins with a scheme is in absolute form.
func TestHTTPURLInTarget(t *testing.T) {
	onSides(t, hello, rigOptions{rules: ignoring}, func(t *testing.T, r *rig, o *origin, s side) {
		for i, path := range []string{"/?u=http://other.test/", "/web/2026/http://other.test/a?b=c", "/a?u=ftp://x", "//x/y?u=https://other.test"} {
			var status int
			if s.h2 {
				f := r.framer(o)
				f.request(1, true, "GET", o, path)
				h, err := f.answer(1)
				must(t, err)
				status, _ = strconv.Atoi(h[":status"])
			} else {
				c := r.rawConn(o, s.scheme == "https")
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.target(s.scheme == "https", path), o.hostport())
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				must(t, err)
				status = resp.StatusCode
			}
			if reqs := o.requests(); status != 200 || len(reqs) != i+1 || reqs[i].RequestURI != path {
				t.Fatalf("%s: %d, %d requests at the site", path, status, len(reqs))
			}
		}
	})
}

// An IPv6 literal is reached, and its leaf carries it.
func TestHTTPIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Log("no IPv6 loopback here; the leaf alone is looked at")
	} else {
		l.Close()
	}
	r := newRig(t)
	r.start(rigOptions{})
	c, err := r.gate.certs.leaf("[::1]")
	must(t, err)
	if len(c.Leaf.IPAddresses) != 1 || c.Leaf.IPAddresses[0].String() != "::1" || len(c.Leaf.DNSNames) != 0 {
		t.Errorf("leaf for %v %v", c.Leaf.IPAddresses, c.Leaf.DNSNames)
	}
}

// An upgrade to anything but a WebSocket goes as a plain request; TRACE and CONNECT inside are no methods here.
func TestHTTPUpgradesAndMethods(t *testing.T) {
	r := newRig(t)
	o := r.originOf("up.test", []string{"http/1.1"}, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Limits.Methods = []string{"GET", "HEAD"} }})
	c := r.rawConn(o, true)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: up.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	req := o.requests()[0]
	if resp.StatusCode != 200 || req.Header.Get("Upgrade") != "" || req.Header.Get("Http2-Settings") != "" || req.Header.Get("Connection") != "" {
		t.Errorf("%d, the site saw %v", resp.StatusCode, req.Header)
	}
	for _, method := range []string{"TRACE", "CONNECT", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "PROPFIND"} {
		c := r.rawConn(o, true)
		target := "/"
		if method == "CONNECT" {
			target = o.hostport()
		}
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, target, o.hostport())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		if resp.StatusCode != 405 || resp.Header.Get("Crawlgate-Reason") != "method-denied" || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %v", method, resp.StatusCode, resp.Header)
		}
	}
	if n := len(o.requests()); n != 1 {
		t.Errorf("the site saw %d requests", n)
	}
}
