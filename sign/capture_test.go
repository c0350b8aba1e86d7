package sign

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadCaptures(t *testing.T) {
	host := [][2]string{{"Host", "example.com"}, {"Accept", "*/*"}}
	for _, c := range []struct {
		name, data string
		want       []Capture
		err        string
	}{
		{name: "JSON with url and pairs", data: `{"method":"GET","url":"https://example.com/","headers":[["Host","example.com"],["Accept","*/*"]]}`,
			want: []Capture{{"GET", "s", "https://example.com/", host}}},
		{name: "JSON lines, target and flat list", data: "\n" + `{"method":"GET","scheme":"http","target":"/a","headers":["Host","example.com","Accept","*/*"]}` + "\n" +
			`{"method":"HEAD","target":"/b","rawHeaders":["Host","example.com","Accept","*/*"]}` + "\n",
			want: []Capture{{"GET", "http", "/a", host}, {"HEAD", "s", "/b", host}}},
		{name: "JSON over several lines", data: "{\n \"method\": \"GET\",\n \"url\": \"/\",\n \"headers\": []\n}",
			want: []Capture{{"GET", "s", "/", [][2]string{}}}},
		{name: "HTTP/2 pseudo fields", data: `{"headers":[":method","GET",":scheme","https",":authority","example.com",":path","/p"]}`,
			want: []Capture{{"GET", "https", "/p", [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", "/p"}}}}},
		{name: "raw head", data: "GET /x?y HTTP/1.1\r\nHost: example.com\r\nAccept:  */* \r\n\r\n",
			want: []Capture{{"GET", "s", "/x?y", host}}},
		{name: "raw heads, bare LF, no empty line at the end", data: "GET /1 HTTP/1.1\nHost: example.com\nAccept: */*\n\n\nGET /2 HTTP/1.1\nHost: example.com\nAccept: */*",
			want: []Capture{{"GET", "s", "/1", host}, {"GET", "s", "/2", host}}},
		{name: "empty", data: " \n", err: "empty"},
		{name: "no method", data: `{"url":"/","headers":[]}`, err: "no method"},
		{name: "no target", data: `{"method":"GET","headers":[]}`, err: "neither url nor target"},
		{name: "no headers", data: `{"method":"GET","url":"/"}`, err: "headers"},
		{name: "odd flat list", data: `{"method":"GET","url":"/","headers":["a"]}`, err: "headers"},
		{name: "triple", data: `{"method":"GET","url":"/","headers":[["a","b","c"]]}`, err: "pair"},
		{name: "bad field name", data: `{"method":"GET","url":"/","headers":[["a b","c"]]}`, err: "not a field name"},
		{name: "line break in a value", data: `{"method":"GET","url":"/","headers":[["a","b\nc"]]}`, err: "line break"},
		{name: "broken JSON after a good one", data: `{"method":"GET","url":"/","headers":[]}{`, want: []Capture{{"GET", "s", "/", [][2]string{}}}, err: "request 2"},
		{name: "not a request line", data: "HTTP/1.1 200 OK\r\n\r\n", err: "not a request line"},
		{name: "two spaces", data: "GET  / HTTP/1.1\r\n\r\n", err: "not a request line"},
		{name: "folded line", data: "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", err: "not a header line"},
		{name: "space before colon", data: "GET / HTTP/1.1\r\nA : b\r\n\r\n", err: "not a header line"},
		{name: "long line", data: "GET /" + strings.Repeat("a", maxHeadLine) + " HTTP/1.1\r\n\r\n", err: "longer than"},
		{name: "many fields", data: "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxFields+1), err: "more than 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []Capture
			err := ReadCaptures(strings.NewReader(c.data), "s", func(one Capture) error { got = append(got, one); return nil })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%v, want %q", err, c.err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReadCapturesStops(t *testing.T) {
	stop := errors.New("stop")
	for _, data := range []string{`{"method":"GET","url":"/","headers":[]}{"method":"GET","url":"/","headers":[]}`, "GET / HTTP/1.1\n\nGET / HTTP/1.1\n\n"} {
		n := 0
		if err := ReadCaptures(strings.NewReader(data), "", func(Capture) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
			t.Errorf("%v after %d", err, n)
		}
	}
}

func TestNormalAuthority(t *testing.T) {
	for raw, want := range map[string]string{
		"example.com": "example.com", "EXAMPLE.com:443": "example.com", "example.com.": "example.com", "example.com.:8443": "example.com:8443",
		"example.com:80": "example.com:80", "b\u00fccher.example": "xn--bcher-kva.example", "B\u00dcCHER.example:443": "xn--bcher-kva.example",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "192.0.2.1": "192.0.2.1", "[2001:DB8:0:0::1]:443": "[2001:db8::1]", "[2001:db8::1]:8443": "[2001:db8::1]:8443",
		"a_b.example": "a_b.example", "example.com:": "example.com",
		"": "", ".": "", "a..b": "", ".a": "", "a b": "", "a/b": "", "u@a": "", "a:0": "", "a:65536": "", "a:+1": "", "a:01": "", "a:b": "", "::1": "", "[::1": "", "[::1]x": "",
		"[fe80::1%25eth0]": "", "[192.0.2.1]": "", "a%2eb": "", strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 130) + "a": "",
	} {
		got, err := normalAuthority(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", raw, got, err, want)
		}
		if want != "" {
			if again, err := normalAuthority(got); again != got || err != nil {
				t.Errorf("%q is not stable: %q", got, again)
			}
			if !isNormalAuthority(got) {
				t.Errorf("%q is not taken as normal", got)
			}
		}
		if raw != want && isNormalAuthority(raw) {
			t.Errorf("%q is taken as normal", raw)
		}
	}
}
