package admin

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Whatever the proxy's address is, the file stays one string in one function.
func FuzzPAC(f *testing.F) {
	for _, s := range []string{"127.0.0.1:3128", "[::1]:3128", "gate.example:3128", `a";x:1`, "a\n:1", "[fe80::1%25eth0]:1", ":3128", "a:b:c", "\u2028:80"} {
		f.Add(s)
	}
	const shape = "function FindProxyForURL(url, host) {\n  return \"PROXY "
	f.Fuzz(func(t *testing.T, proxy string) {
		text, ok := pac(proxy)
		if !ok {
			if text != "" {
				t.Errorf("text without ok: %q", text)
			}
			return
		}
		_, rest, found := strings.Cut(text, shape)
		addr, tail, closed := strings.Cut(rest, `"`)
		if !found || !closed || tail != ";\n}\n" {
			t.Fatalf("%q breaks out: %q", proxy, text)
		}
		for _, c := range addr {
			if !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:[]-_", c) {
				t.Errorf("%q: %q in the address", proxy, c)
			}
		}
	})
}

// Whatever strangers write, the page has one script and leads nowhere else.
func FuzzLivePage(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if len(v) > 4096 {
			return
		}
		w := get(hostileServer(t, v), "/?hosts=all")
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		checkPage(t, w.Body.String())
	})
}

// Whatever the dots are, the picture is well-formed XML without script.
func FuzzTurnsSVG(f *testing.F) {
	f.Add("team-a", "GET / 200", int64(0), int64(1e9), int64(1e9))
	for _, s := range hostile {
		f.Add(s, s, int64(-1), int64(-5), int64(1)<<62)
	}
	f.Fuzz(func(t *testing.T, client, label string, start, end, owed int64) {
		var b bytes.Buffer
		dots := []Dot{
			{Client: client, Label: label, Start: time.Unix(0, start), End: time.Unix(0, end), Mark: DotSent, Owed: time.Duration(owed)},
			{Client: client + "2", Label: label, Start: time.Unix(0, end), End: time.Unix(0, start), Mark: label, Owed: time.Duration(owed)},
			{Client: client, Label: label, Start: time.Unix(0, start), Mark: DotRefused},
		}
		if err := TurnsSVG(&b, dots, TurnsOptions{Title: label, Standalone: true, Gap: time.Duration(owed), Compare: dots, CompareTitle: client}); err != nil {
			t.Fatal(err)
		}
		n := wellFormed(t, b.Bytes())
		if n["script"] > 0 || n["a"] > 0 || n["foreignObject"] > 0 {
			t.Errorf("elements %v", n)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Error("a place that is no number")
		}
	})
}
