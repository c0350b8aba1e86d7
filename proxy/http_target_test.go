package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"crawlgate/audit"
)

// A server name of another host than the CONNECT's is refused inside, by a leaf that the fetcher trusts for that name, so
// that it can read why.
func TestHTTPServerNameOfAnotherHost(t *testing.T) {
	r := newRig(t)
	o := r.origin("named.test", true, "", hello)
	r.start(rigOptions{})
	tc := r.tls(o.hostport(), "other.test")
	for range 2 {
		fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", o.hostport())
		resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		if p := problemOf(t, resp, string(b), http.StatusMisdirectedRequest, HostMismatch); p.Class != "sni_mismatch" {
			t.Errorf("class %q", p.Class)
		}
	}
	f := r.tls(o.hostport(), "other.test", "h2")
	if p := f.ConnectionState().NegotiatedProtocol; p != "h2" {
		t.Errorf("spoke %q", p)
	}
	f.Close()
	ev := r.waitEvent("the tunnel that was not used", func(e *audit.Event) bool { return e.Method == http.MethodConnect && e.Class == "sni_mismatch" })
	if ev.Decision != audit.Refused || ev.Reason != string(HostMismatch) || ev.Host != "named.test" {
		t.Errorf("event %+v", ev)
	}
	if got := o.requests(); len(got) != 0 {
		t.Errorf("the site saw %d requests", len(got))
	}
}

// Who is refused before the target is judged is told for what, and the event says so; of one who is not known the log
// takes the host alone.
func TestHTTPRefusedBeforeTheTarget(t *testing.T) {
	r := newRig(t)
	o := r.origin("early.test", true, "", hello)
	plain := r.origin("earlyplain.test", false, "", hello)
	r.start(rigOptions{rules: func(ru *Rules) { ru.Default.Job.Required = true }})
	resp, body := r.get(r.client(false), o.url("https", "/a?b=c"))
	p := problemOf(t, resp, body, 403, JobRequired)
	ev := r.waitEvent("the event", func(e *audit.Event) bool { return e.ID == p.RequestID })
	if want := o.url("https", "/a?b=c"); p.URL != want || ev.URL.String() != want || ev.Host != o.name {
		t.Errorf("body %q, event %q %q, want %q", p.URL, ev.URL, ev.Host, want)
	}
	conn := r.rawConn(plain, false)
	fmt.Fprintf(conn, "GET https://early.test/x HTTP/1.1\r\nHost: early.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	b, _ := io.ReadAll(resp.Body)
	if p := problemOf(t, resp, string(b), 403, JobRequired); p.URL != "https://early.test/x" {
		t.Errorf("url %q", p.URL)
	}
	// The open gate takes no credentials; who sends what is no name is not known.
	conn = r.rawConn(plain, false)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic bm8gbmFtZSE6eA==\r\n\r\n", plain.url("http", "/y"))
	resp, err = http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	b, _ = io.ReadAll(resp.Body)
	p = problemOf(t, resp, string(b), 407, AuthFailed)
	ev = r.waitEvent("the event", func(e *audit.Event) bool { return e.ID == p.RequestID })
	if p.URL != plain.url("http", "/y") || ev.URL.String() != "" || ev.Host != plain.name || ev.Port != plain.port {
		t.Errorf("body %q, event %q %q %d", p.URL, ev.URL, ev.Host, ev.Port)
	}
}

// A spelling that is refused for itself is told and recorded as it was sent, without a user's name and password.
func TestHTTPRefusedSpelling(t *testing.T) {
	r := newRig(t)
	o := r.origin("spelling.test", false, "", hello)
	r.start(rigOptions{})
	for _, c := range []struct{ target, url, event, host, class string }{
		{"http://127.1/x?y", "http://127.1/x?y", "http://127.1/x?y", "127.1", "host_ambiguous_ipv4"},
		{"http://[fe80::1%25lo]/", "http://[fe80::1%25lo]/", "http://[fe80::1%lo]/", "[fe80::1%lo]", "addr_zone"},
		{"http://me:hunter2@spelling.test/", "http://spelling.test/", "http://spelling.test/", "spelling.test", "target_userinfo"},
	} {
		conn := r.rawConn(o, false)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", c.target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		var p problem
		must(t, json.Unmarshal(b, &p))
		ev := r.waitEvent("the event", func(e *audit.Event) bool { return e.ID == p.RequestID })
		if p.Class != c.class || p.URL != c.url || ev.URL.String() != c.event || ev.Host != c.host {
			t.Errorf("%s: body %s, event %q %q", c.target, b, ev.URL, ev.Host)
		}
		if strings.Contains(string(b), "hunter2") {
			t.Errorf("%s", b)
		}
	}
}
