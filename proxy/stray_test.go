package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// A percent sign that begins no escape, which browsers send as it is, goes out as %25 and in the query as it came
// (RFC 3986 2.4). What was sent is kept beside it.
func TestHTTPStrayPercent(t *testing.T) {
	r := newRig(t)
	secure, plain := r.originOf("stray.test", []string{"http/1.1"}, "", hello), r.origin("strayplain.test", false, "", hello)
	r.start(rigOptions{})
	for _, inside := range []bool{true, false} {
		o := secure
		if !inside {
			o = plain
		}
		c := r.rawConn(o, inside)
		br := bufio.NewReader(c)
		for path, want := range map[string]string{"/100%": "/100%25", "/%zz?a=%zz": "/%25zz?a=%zz", "/a%4": "/a%254", "/%%41": "/%25%41", "/a%2f%20": "/a%2f%20"} {
			targets := []string{o.target(inside, path)}
			if inside {
				targets = append(targets, o.url("https", path))
			}
			for _, target := range targets {
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, o.hostport())
				resp, b := h1Answer(t, br, "GET")
				if resp.StatusCode != 200 {
					t.Errorf("%s: %d %s", target, resp.StatusCode, b)
					continue
				}
				seen := o.requests()
				if got := seen[len(seen)-1].RequestURI; got != want {
					t.Errorf("%s: the site got %s, want %s", target, got, want)
				}
			}
		}
	}
}

// robots.txt judges such a path as it judges the escaped one.
func TestHTTPStrayPercentForbidden(t *testing.T) {
	r := newRig(t)
	o := r.origin("straydeny.test", false, "User-agent: *\nDisallow: /100%25\n", hello)
	r.start(rigOptions{})
	c := r.rawConn(o, false)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.url("http", "/100%"), o.hostport())
	resp, b := h1Answer(t, bufio.NewReader(c), "GET")
	problemOf(t, resp, b, 403, RobotsDisallow)
}

// A site that redirects, its robots.txt too, to such a path is followed there.
func TestHTTPStrayPercentInARedirect(t *testing.T) {
	r := newRig(t)
	o := r.origin("straymoved.test", false, "", func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/moved":
			w.Header()["Location"] = []string{"/to/100%?q=%"}
			w.WriteHeader(http.StatusFound)
		default:
			hello(w, req)
		}
	})
	robots := r.raw("strayrobots.test", func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			head, err := readHead(br)
			if err != nil {
				return
			}
			body := "hello"
			switch strings.Fields(head)[1] {
			case "/robots.txt":
				_, _ = io.WriteString(c, "HTTP/1.1 301 Moved Permanently\r\nLocation: /rules/100%\r\nContent-Length: 0\r\n\r\n")
				continue
			case "/rules/100%25":
				body = "User-agent: *\nDisallow: /closed\n"
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	r.start(rigOptions{})
	c := r.rawConn(o, false)
	br := bufio.NewReader(c)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.url("http", "/moved"), o.hostport())
	if resp, _ := h1Answer(t, br, "GET"); resp.StatusCode != 302 || resp.Header.Get("Location") != "/to/100%?q=%" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.url("http", "/to/100%?q=%"), o.hostport())
	answer, b := h1Answer(t, br, "GET")
	if answer.StatusCode != 200 {
		t.Fatalf("%d %s", answer.StatusCode, b)
	}
	if ev := r.eventOf(answer.Header.Get("Crawlgate-Request-Id")); ev.RedirectOf == "" {
		t.Error("it is no hop of the redirect")
	}
	for path, want := range map[string]int{"/open": 200, "/closed": 403} {
		if resp, b := r.get(r.client(false), robots.url("http", path)); resp.StatusCode != want {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b)
		}
	}
}

// A rule about a path with a stray percent sign is kept in whichever spelling it is written: the fetcher's, or the one in
// which the path leaves.
func TestStrayPercentIsJudgedInBothSpellings(t *testing.T) {
	r := newRig(t)
	o := r.origin("stray.test", true, "User-agent: *\nDisallow: /50%/a\nDisallow: /75%25/a\n", hello)
	r.start(rigOptions{})
	for _, c := range []struct {
		path   string
		status int
	}{{"/50%/a", 403}, {"/75%/a", 403}, {"/75%25/a", 403}, {"/50%/b", 200}, {"/100%", 200}} {
		f := r.framer(o)
		f.request(1, true, "GET", o, c.path)
		got, err := f.answer(1)
		if want := strconv.Itoa(c.status); err != nil || got[":status"] != want {
			t.Errorf("%s: %v %v, want %s", c.path, got, err, want)
		}
	}
	for path, allowed := range map[string]bool{"/50%/a": false, "/75%/a": false, "/50%/b": true} {
		if e, err := r.gate.Explain(t.Context(), Question{URL: o.url("https", path)}); err != nil || e.Allowed != allowed {
			t.Errorf("explained, %s: %+v %v", path, e, err)
		}
	}
	for _, got := range o.requests() {
		if got.RequestURI != "/50%25/b" && got.RequestURI != "/100%25" {
			t.Errorf("the site was asked for %s", got.RequestURI)
		}
	}
}
