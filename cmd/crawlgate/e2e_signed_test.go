package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"crawlgate/proxy"
)

// signatureFields are the values of every field whose name begins with "signature", however it is spelt.
func signatureFields(h http.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range h {
		if strings.HasPrefix(strings.ToLower(name), "signature") {
			out[name] = values
		}
	}
	return out
}

// unsigned fails when a request carried any of the fields.
func unsigned(t *testing.T, list ...arrival) {
	t.Helper()
	for _, a := range list {
		if f := signatureFields(a.Header); len(f) > 0 {
			t.Errorf("%s %s%s is signed: %v", a.Method, a.Host, a.URI, f)
		}
	}
}

// check is what Node is asked about a request as it arrived.
func (o *origin) check(id string, key botKey, a arrival) nodeCheck {
	return nodeCheck{ID: id, Now: a.At.Unix(), JWK: key.JWK, Kid: key.ID, Method: a.Method, TargetURI: o.scheme + "://" + a.Host + a.URI, Fields: a.lines()}
}

// TestSignForms: each site gets the form its verifier takes; method and path are bound and a nonce makes each signature
// its own, over both protocols on both sides. What has a query or escapes in it arrives as it was sent.
func TestSignForms(t *testing.T) {
	t.Parallel()
	origins := map[string]*origin{
		"new.test": newOrigin(t, tlsH1, nil, "new.test"), "legacy.test": newOrigin(t, tlsH2, nil, "legacy.test"), "below.legacy.test": newOrigin(t, tlsH1, nil, "below.legacy.test"),
		"shop.old.test": newOrigin(t, tlsH2, nil, "shop.old.test"), "xn--bcher-kva.test": newOrigin(t, tlsH2, nil, "xn--bcher-kva.test"),
	}
	strung := map[string]bool{"legacy.test": true, "shop.old.test": true}
	c := gateConfig{profiles: "[{name: crawl, pacing: {gap: 0s}, limits: {methods: [GET, HEAD, POST], request_body: 1kB}}]",
		more: "sign: {components: bound, nonce: true, label: bot-1, sites: [{host: Legacy.TEST, form: string}, {host: old.test, subdomains: true, form: string}]}\n"}
	for _, o := range origins {
		c.origins = append(c.origins, o)
	}
	g, key := startSigned(t, c)
	clients := []*http.Client{goClient(t, g.proxy, g.ca, false), goClient(t, g.proxy, g.ca, true)}
	targets := []string{"/", "/a%2Fb/%C3%A9/c?a=1;b=2&q=100%&%zz", "/caf%c3%a9?", "/x//y/?a=b&a=c", "/~tilde/(paren)/!$&'*+,;=:@"}
	for host, o := range origins {
		for n, target := range targets {
			for m, client := range clients {
				method := []string{"GET", "HEAD", "POST"}[(n+m)%3]
				req, err := http.NewRequestWithContext(t.Context(), method, o.url("/"), nil)
				if err != nil {
					t.Fatal(err)
				}
				path, query, _ := strings.Cut(target, "?")
				req.URL.Opaque = "" // the raw path as written
				if req.URL.Path, err = url.PathUnescape(path); err != nil {
					t.Fatal(err)
				}
				req.URL.RawPath, req.URL.RawQuery, req.URL.ForceQuery = path, query, strings.HasSuffix(target, "?")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("%s%s: %d", host, target, resp.StatusCode)
				}
			}
		}
	}
	var checks []nodeCheck
	var capture bytes.Buffer
	nonces := map[string]bool{}
	for host, o := range origins {
		list := o.arrivals()
		if len(list) != 1+len(targets)*len(clients) {
			t.Errorf("%s got %v", host, uris(list))
		}
		for n, a := range list {
			if n > 0 && a.URI != targets[(n-1)/len(clients)] {
				t.Errorf("%s: %s arrived, not %s", host, a.URI, targets[(n-1)/len(clients)])
			}
			want, agent := `bot-1="https://bot.example"`, `"signature-agent";key="bot-1"`
			if strung[host] {
				want, agent = `"https://bot.example"`, `"signature-agent"`
			}
			input := a.Header.Get("Signature-Input")
			if f := signatureFields(a.Header); len(f) != 3 || len(f["Signature"]) != 1 || len(f["Signature-Input"]) != 1 || !slices.Equal(f["Signature-Agent"], []string{want}) {
				t.Errorf("%s: %v", host, f)
			}
			if !strings.HasPrefix(input, `bot-1=("@authority" `) || !strings.Contains(input, agent) {
				t.Errorf("%s: %s", host, input)
			}
			_, nonce, _ := strings.Cut(input, `nonce="`)
			nonce, _, _ = strings.Cut(nonce, `"`)
			if len(nonce) != 88 || nonces[nonce] {
				t.Errorf("%s: nonce %q", host, nonce)
			}
			nonces[nonce] = true
			check := o.check(fmt.Sprintf("%s %d", host, n), key, a)
			check.Label, check.Components, check.Parameters = "bot-1", []string{"@method", "@path"}, []string{"nonce", "alg"}
			if strung[host] {
				check.Form = "string"
			}
			checks = append(checks, check)
			line, err := json.Marshal(map[string]any{"method": a.Method, "url": check.TargetURI, "headers": append(a.lines(), [2]string{"Host", a.Host})})
			if err != nil {
				t.Fatal(err)
			}
			capture.Write(append(line, '\n'))
		}
	}
	for id, said := range runNode(t, checks) {
		if said != "" {
			t.Errorf("%s is refused: %s", id, said)
		}
	}
	file := filepath.Join(g.dir, "capture.jsonl")
	writeFile(t, file, capture.String(), 0o600)
	keys := filepath.Join(g.dir, "key.jwk")
	writeFile(t, keys, string(key.JWK), 0o600)
	if r := g.cli(t, "verify", "--capture", file, "--keys", keys); r.code != 0 || !strings.Contains(r.err, fmt.Sprintf(" %d verified, 0 invalid, 0 unverified", len(checks))) {
		t.Errorf("verify: %+v", r)
	}
}

// TestWhatIsSigned: https requests to the client's own sites, and nothing else: not http, not the files that another
// site's page loads, not where a listed site redirects to, not under a profile that says never.
func TestWhatIsSigned(t *testing.T) {
	t.Parallel()
	var elsewhere, home string
	listed := newOrigin(t, tlsH2, func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/away":
				http.Redirect(w, r, elsewhere, http.StatusFound)
			case "/down":
				http.Redirect(w, r, "http://plain.test:"+strings.Split(home, ":")[2]+"/landed", http.StatusFound)
			default:
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<title>page</title>")
			}
		}
	}, "listed.test")
	second := newOrigin(t, tlsH1, nil, "second.test")
	other := newOrigin(t, tlsH1, func(o *origin) {
		o.rules = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, second.url("/robots.txt"), http.StatusFound)
		}
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/back" {
				http.Redirect(w, r, listed.url("/home"), http.StatusFound)
			}
		}
	}, "other.test", "cdn.test")
	plain := newOrigin(t, plainHTTP, nil, "plain.test")
	elsewhere, home = other.url("/back"), plain.url("")
	secret, hash, err := proxy.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	g, key := startSigned(t, gateConfig{origins: []*origin{listed, second, other, plain},
		profiles: "[{name: crawl, pacing: {gap: 0s}}, {name: all, sign: all, sites: any, pacing: {gap: 0s}}, {name: never, sign: never, pacing: {gap: 0s}}]",
		clients:  fmt.Sprintf("[{name: team, secret_hash: %q, profiles: [crawl, all, never], sites: [%q, %q, %q], grants: [redirects, files, subresources]}]", hash, listed.url("/"), second.url("/page"), plain.url("/"))})
	client := func(profile string) *http.Client {
		return goClient(t, strings.Replace(g.proxy, "http://", "http://team"+profile+":"+secret+"@", 1), g.ca, true)
	}
	get := func(c *http.Client, target string, status int, fields ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", target, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n+1 < len(fields); n += 2 {
			req.Header.Set(fields[n], fields[n+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %d, want %d: %s", target, resp.StatusCode, status, body)
		}
		return resp
	}
	crawl := client("")
	navigate := []string{"Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "none", "Sec-Fetch-User", "?1", "Accept", "text/html"}
	file := []string{"Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "cross-site", "Referer", listed.url("/home")}
	get(crawl, listed.url("/home"), 200, navigate...)
	get(crawl, listed.url("/own.js"), 200, "Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Site", "same-origin", "Referer", listed.url("/home"))
	get(crawl, second.url("/page/lib.js"), 200, file...) // a listed host, but loaded by another site's page
	get(crawl, other.at("cdn.test", "/font.woff2"), 200, file...)
	get(crawl, second.url("/page/itself"), 200)
	get(crawl, second.url("/elsewhere"), 403) // below the path that is listed nothing, so nothing is sent
	get(crawl, plain.url("/http"), 200)
	get(crawl, listed.url("/away"), 302)
	get(crawl, elsewhere, 302) // granted, not listed
	get(crawl, listed.url("/home?back"), 200)
	get(crawl, listed.url("/down"), 302)
	get(crawl, plain.url("/landed"), 200)
	get(client("+never"), listed.url("/never"), 200)
	all := client("+all")
	get(all, other.url("/all"), 200)
	get(all, plain.url("/all"), 200)

	signed := map[string]bool{
		"listed.test /robots.txt": true, "listed.test /home": true, "listed.test /own.js": true, "listed.test /away": true, "listed.test /home?back": true, "listed.test /down": true,
		"listed.test /never": false, "second.test /page/lib.js": false, "second.test /page/itself": true, "cdn.test /font.woff2": false, "other.test /back": false, "other.test /all": true,
		"other.test /robots.txt": false, "plain.test /robots.txt": false, "plain.test /http": false, "plain.test /landed": false, "plain.test /all": false,
	}
	var checks []nodeCheck
	got := map[string]bool{}
	for _, o := range []*origin{listed, second, other, plain} {
		for n, a := range o.arrivals() {
			host, _, _ := strings.Cut(a.Host, ":")
			name := host + " " + a.URI
			want, known := signed[name]
			if name == "second.test /robots.txt" { // its own reading is signed; the other one was led there by another host
				want, known = !got[name], true
			}
			if !known {
				t.Errorf("%s arrived", name)
			}
			got[name] = true
			if !want {
				unsigned(t, a)
				continue
			}
			checks = append(checks, o.check(fmt.Sprintf("%s %d", name, n), key, a))
		}
	}
	for name := range signed {
		if !got[name] {
			t.Errorf("%s did not arrive", name)
		}
	}
	for id, said := range runNode(t, checks) {
		if said != "" {
			t.Errorf("%s is refused: %s", id, said)
		}
	}
	states := map[string]string{}
	for _, e := range g.requests(t) {
		if e.Type == "request" && e.Sent {
			u, err := url.Parse(e.URL)
			if err != nil {
				t.Fatal(err)
			}
			states[e.Host+" "+u.RequestURI()] = e.Sig.State
		}
	}
	for name, want := range map[string]string{"second.test /page/lib.js": "cross-site", "cdn.test /font.woff2": "cross-site", "other.test /back": "not-listed", "listed.test /never": "never", "plain.test /http": "http", "plain.test /all": "http", "listed.test /home": "signed", "other.test /all": "signed"} {
		if states[name] != want {
			t.Errorf("the log says %q of %s, not %q", states[name], name, want)
		}
	}
}

// tunnelConn opens a tunnel by hand, for bytes that no client would send.
func tunnelConn(t *testing.T, g *gate, o *origin, protos ...string) io.ReadWriteCloser {
	t.Helper()
	conf := clientTLS(t, g.ca)
	conf.NextProtos = protos
	c, err := dialTunnel(t, g, conf, o.hosts[0], o.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestClientSignatures: whatever a fetcher sends under the names of signature fields never leaves, in no spelling and no
// part of a message, and none of it keeps our own from leaving.
func TestClientSignatures(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	trailers := map[string]http.Header{}
	remember := func(o *origin) {
		o.handle = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			trailers[r.URL.Path] = r.Trailer.Clone()
		}
	}
	h1, h2 := newOrigin(t, tlsH1, remember, "one.test"), newOrigin(t, tlsH2, remember, "two.test")
	plain := newOrigin(t, plainHTTP, remember, "plain.test")
	g, key := startSigned(t, gateConfig{origins: []*origin{h1, h2, plain}, profiles: "[{name: crawl, pacing: {gap: 0s}, limits: {methods: [GET, POST], request_body: 1kB}}]"})
	const forged = `sig1=("@authority");created=1;expires=9999999999;keyid="x";tag="web-bot-auth"`
	heads := map[string]struct {
		lines    []string
		stripped int
	}{
		"plainly":       {[]string{`Signature-Agent: sig1="https://evil.example"`, "Signature-Input: " + forged, "Signature: sig1=:AAAA:"}, 3},
		"lowercase":     {[]string{`signature-agent: "https://evil.example"`, "signature-input: " + forged, "signature: sig1=:AAAA:"}, 3},
		"shouted":       {[]string{`SIGNATURE-AGENT: "https://evil.example"`, "SIGNATURE-INPUT: " + forged, "SIGNATURE: sig1=:AAAA:"}, 3},
		"mixed":         {[]string{`sIgNaTuRe-aGeNt: "https://evil.example"`, "SiGnAtUrE-iNpUt: " + forged, "siGNature: sig1=:AAAA:"}, 3},
		"twice":         {[]string{"Signature: sig1=:AAAA:", "signature: sig2=:BBBB:", "Signature-Input: " + forged, "Signature-Input: sig2=()"}, 4},
		"another-label": {[]string{`Signature-Agent: sig2="https://evil.example"`, "Signature-Input: sig2=();created=1", "Signature: sig2=:AAAA:"}, 3},
		"underscores":   {[]string{`Signature_Agent: "https://evil.example"`, "signature_input: " + forged}, 2},
		"connection":    {[]string{"Connection: Signature, signature-input", "Connection: SIGNATURE-AGENT, close"}, 0},
		"alone-named":   {[]string{"Connection: signature-agent"}, 0},
		"proxy-named":   {[]string{"Proxy-Connection: Signature-Input", "Connection: keep-alive, x-mine", "X-Mine: 1", "Signature: sig1=:AAAA:"}, 1},
		"empty":         {[]string{"Signature:", "Signature-Input: ", "Signature-Agent:"}, 3},
	}
	bodies := []string{"Transfer-Encoding: chunked", "Trailer: Signature, X-Sum, signature-agent"}
	const chunked = "3\r\nabc\r\n0\r\nX-Sum: 7\r\nSignature: sig1=:AAAA:\r\nSIGNATURE-AGENT: \"https://evil.example\"\r\nSignature-Input: " + forged + "\r\n\r\n"
	want := map[string]int{}
	sent := 0
	ask := func(o *origin, name, method string, lines []string, body string) {
		t.Helper()
		sent++
		c := tunnelConn(t, g, o, "http/1.1")
		fmt.Fprintf(c, "%s /%s HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n\r\n%s", method, name, o.hosts[0], o.port, strings.Join(lines, "\r\n"), body)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		resp.Body.Close()
	}
	for _, o := range []*origin{h1, h2} {
		for name, c := range heads {
			ask(o, name, "GET", c.lines, "")
			want["/"+name] = c.stripped
		}
		ask(o, "trailers", "POST", bodies, chunked)
		want["/trailers"] = 2 // what is not announced is dropped uncounted
	}
	// Over HTTP/2 the names are lower case, and trailers a second block of fields.
	for _, o := range []*origin{h1, h2} {
		sent++
		h2Ask(t, tunnelConn(t, g, o, "h2"), fmt.Sprintf("%s:%d", o.hosts[0], o.port), "/h2",
			[]hpack.HeaderField{{Name: "signature-agent", Value: `"https://evil.example"`}, {Name: "signature-input", Value: forged}, {Name: "signature", Value: "sig1=:AAAA:"}, {Name: "trailer", Value: "signature, x-sum"}},
			[]hpack.HeaderField{{Name: "x-sum", Value: "7"}, {Name: "signature", Value: "sig1=:AAAA:"}, {Name: "signature-input", Value: forged}})
	}
	want["/h2"] = 4
	// Over plain http nothing of ours goes out, and nothing of theirs either.
	sent++
	if a := curl(t, g, plain.url("/http"), "-H", "Signature-Agent: \"https://evil.example\"", "-H", "signature: sig1=:AAAA:"); a.status != 200 {
		t.Errorf("%+v", a)
	}
	want["/http"] = 2

	var checks []nodeCheck
	for _, o := range []*origin{h1, h2} {
		list := o.pages()
		if len(list) != len(heads)+2 {
			t.Errorf("%s got %v", o.hosts[0], uris(list))
		}
		for n, a := range list {
			f := signatureFields(a.Header)
			if len(f) != 3 || len(f["Signature"]) != 1 || len(f["Signature-Input"]) != 1 || !slices.Equal(f["Signature-Agent"], []string{`sig1="https://bot.example"`}) {
				t.Errorf("%s: %v", a.URI, f)
			}
			checks = append(checks, o.check(fmt.Sprintf("%s%s %d", a.Host, a.URI, n), key, a))
			if tr := trailers[a.URI]; len(signatureFields(tr)) > 0 || (a.URI == "/trailers" || a.URI == "/h2") && tr.Get("X-Sum") != "7" {
				t.Errorf("%s: trailers %v", a.URI, tr)
			}
			if a.Header.Get("Trailer") != "" && strings.Contains(strings.ToLower(a.Header.Get("Trailer")), "signature") {
				t.Errorf("%s: %v", a.URI, a.Header["Trailer"])
			}
		}
	}
	unsigned(t, plain.arrivals()...)
	for id, said := range runNode(t, checks) {
		if said != "" {
			t.Errorf("%s is refused: %s", id, said)
		}
	}
	for _, e := range g.waitEvents(t, sent) {
		u, err := url.Parse(e.URL)
		if err != nil {
			t.Fatal(err)
		}
		if e.Sig.Stripped != want[u.Path] {
			t.Errorf("%s: %d stripped, want %d", e.URL, e.Sig.Stripped, want[u.Path])
		}
	}
}

// h2Ask sends one POST with trailers over HTTP/2 and waits for the answer's end.
func h2Ask(t *testing.T, c io.ReadWriter, authority, path string, fields, trailer []hpack.HeaderField) {
	t.Helper()
	fr := http2.NewFramer(c, c)
	block := func(fields []hpack.HeaderField) []byte {
		var b bytes.Buffer
		enc := hpack.NewEncoder(&b)
		for _, f := range fields {
			if err := enc.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	_, err := io.WriteString(c, http2.ClientPreface)
	for _, step := range []func() error{
		func() error { return err },
		func() error { return fr.WriteSettings() },
		func() error {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block(append([]hpack.HeaderField{
				{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: authority}, {Name: ":path", Value: path}}, fields...))})
		},
		func() error { return fr.WriteData(1, false, []byte("abc")) },
		func() error {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: block(trailer)})
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	dec := hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			all, err := dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil || len(all) == 0 || all[0].Value != "200" {
				t.Fatalf("%v %v", all, err)
			}
			if f.StreamEnded() {
				return
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			t.Fatalf("%v", f)
		}
	}
}

// TestFreshSignatures: what waits for its turn is signed when it leaves and not when it came, so that no wait can use up
// the signature's life; and what is asked for again after a 503 is signed again.
func TestFreshSignatures(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH2, nil, "slow.test")
	again := newOrigin(t, tlsH1, func(o *origin) {
		n := 0
		o.handle = func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}, "busy.test")
	g, key := startSigned(t, gateConfig{origins: []*origin{o, again}, profiles: "[{name: crawl, pacing: {gap: 1s, max_wait: 60s}}]"})
	if r := g.cli(t, "sites", "slow", "slow.test", "--gap", "5s", "--reason", "asked"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var wg sync.WaitGroup
	for n := range 2 { // one of them waits for five seconds, after as many for robots.txt
		wg.Go(func() {
			if a := curl(t, g, o.url(fmt.Sprintf("/%d", n))); a.status != 200 {
				t.Errorf("%+v", a)
			}
		})
	}
	if a := curl(t, g, again.url("/a"), "--retry", "2"); a.status != 200 {
		t.Errorf("%+v", a)
	}
	wg.Wait()
	var checks []nodeCheck
	for _, o := range []*origin{o, again} {
		seen := map[string]bool{}
		for n, a := range o.arrivals() {
			input := a.Header.Get("Signature-Input")
			if seen[input] {
				t.Errorf("%s twice with one signature", a.URI)
			}
			seen[input] = true
			var created, expires int64
			for p := range strings.SplitSeq(input, ";") {
				_, _ = fmt.Sscanf(p, "created=%d", &created)
				_, _ = fmt.Sscanf(p, "expires=%d", &expires)
			}
			if age := a.At.Unix() - created; age < 0 || age > 3 || expires != created+60 {
				t.Errorf("%s: created %ds before it arrived, expires %ds later", a.URI, age, expires-created)
			}
			checks = append(checks, o.check(fmt.Sprintf("%s%s %d", a.Host, a.URI, n), key, a))
		}
		if len(seen) != 3 {
			t.Errorf("%s got %v", o.hosts[0], uris(o.arrivals()))
		}
	}
	for id, said := range runNode(t, checks) {
		if said != "" {
			t.Errorf("%s is refused: %s", id, said)
		}
	}
	waited := false
	for _, e := range g.requests(t) {
		waited = waited || e.Host == "slow.test" && e.TurnWaitMS > 4_500
	}
	if !waited {
		t.Error("no request waited")
	}
}
