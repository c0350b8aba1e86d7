package allowlist

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// opened is a list whose client c has just been answered with the page u.
func opened(t *testing.T, c ClientConfig, u string) *List {
	t.Helper()
	c.Name = "c"
	l := newList(t, nil, c)
	open(t, l, u, "s")
	return l
}

func open(t *testing.T, l *List, u, session string) {
	t.Helper()
	r := Request{Client: "c", URL: mustParse(u), Method: "GET", Dest: "document", Document: true, Session: session}
	a, err := l.Check(r)
	if err != nil {
		t.Fatal(err)
	}
	if w := l.ObserveHTML(r, a, ""); w != nil {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func part(u, dest, referer string) Request {
	r := Request{Client: "c", URL: mustParse(u), Method: "GET", Dest: dest, Session: "s"}
	if referer != "" {
		r.Referer = mustParse(referer)
	}
	return r
}

func TestPageWindow(t *testing.T) {
	with := ClientConfig{Sites: sites("https://a.example/docs/", "https://two.example/"), Grants: []string{"subresources"}}
	post := with
	post.SubresourcesPost = true
	without := ClientConfig{Sites: with.Sites, Grants: []string{"files"}}
	method := func(r Request, m string) Request { r.Method = m; return r }
	session := func(r Request, s string) Request { r.Session = s; return r }
	doc := func(r Request) Request { r.Document = true; return r }
	for _, c := range []struct {
		name  string
		c     ClientConfig
		r     Request
		class string
	}{
		{"image", with, part("https://cdn.example/i.png", "image", "https://a.example/"), ""},
		{"full referer", with, part("https://cdn.example/i.png", "image", "https://a.example/docs/1?x"), ""},
		{"no referer", with, part("https://cdn.example/i.png", "image", ""), ""},
		{"no Sec-Fetch-Dest", with, part("https://cdn.example/i.png", "", "https://a.example/"), ""},
		{"HEAD", with, method(part("https://cdn.example/i.png", "image", ""), "HEAD"), ""},
		{"plain http", with, part("http://cdn.example/i.png", "", ""), ""},
		{"another referer", with, part("https://cdn.example/i.png", "image", "https://evil.example/"), PageNotOpen},
		{"referer's scheme counts", with, part("https://cdn.example/i.png", "image", "http://a.example/"), PageNotOpen},
		{"odd referer", with, part("https://cdn.example/i.png", "image", "null"), PageNotOpen},
		{"listed but not open", with, part("https://cdn.example/i.png", "image", "https://two.example/"), PageNotOpen},
		{"another session", with, session(part("https://cdn.example/i.png", "image", ""), "t"), PageNotOpen},
		{"document", with, part("https://cdn.example/", "document", "https://a.example/"), PageNotOpen},
		{"iframe", with, part("https://cdn.example/", "iframe", "https://a.example/"), PageNotOpen},
		{"frame", with, part("https://cdn.example/", "frame", ""), PageNotOpen},
		{"embed", with, part("https://cdn.example/", "embed", ""), PageNotOpen},
		{"object", with, part("https://cdn.example/", "object", ""), PageNotOpen},
		{"classified as a page", with, doc(part("https://cdn.example/", "", "")), PageNotOpen},
		{"POST", with, method(part("https://api.example/", "empty", "https://a.example/"), "POST"), SiteNotAllowed},
		{"POST allowed", post, method(part("https://api.example/", "empty", "https://a.example/"), "POST"), ""},
		{"same host, other path", with, part("https://a.example/static/x.css", "style", "https://a.example/"), PathNotAllowed},
		{"without the grant", without, part("https://cdn.example/i.png", "image", "https://a.example/"), SiteNotAllowed},
		{"listed", with, part("https://two.example/i.png", "image", "https://a.example/"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := opened(t, c.c, "https://a.example/docs/1")
			a, err := l.Check(c.r)
			if classOf(err) != c.class {
				t.Fatalf("got %+v, %v", a, err)
			}
			if err == nil && !a.Listed && (a.Grant != GrantSubresources || a.Entry == "") {
				t.Errorf("got %+v", a)
			}
			if d, ok := AsDenied(err); ok && d.Hint == "" {
				t.Error("no hint")
			}
		})
	}
	l := opened(t, without, "https://a.example/docs/1")
	_, err := l.Check(part("https://cdn.example/i.png", "image", "https://a.example/"))
	if d, ok := AsDenied(err); !ok || d.Hint != "cdn.example is another host than its page's, a.example; add subresources to the grants of client c to load such files" {
		t.Errorf("the refusal of a file does not name the setting: %v", err)
	}
}

func TestPageWindowTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, ClientConfig{Sites: sites("https://a.example/"), Grants: []string{"subresources"}}, "https://a.example/1")
		img := part("https://cdn.example/i.png", "image", "https://a.example/")
		for range 5 { // each request of the page keeps it open
			time.Sleep(50 * time.Second)
			if _, err := l.Check(img); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		if _, err := l.Check(part("https://a.example/own.css", "style", "https://a.example/1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		peek := img
		peek.Peek = true
		if _, err := l.Check(peek); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := l.Check(img); classOf(err) != PageNotOpen {
			t.Errorf("a window outlived its page: %v", err)
		}
	})
}

// A font named by another host's style sheet has that sheet as its Referer; a client that says nothing gets it as well.
func TestPageWindowHelpers(t *testing.T) {
	l := opened(t, ClientConfig{Sites: sites("https://a.example/"), Grants: []string{"subresources"}}, "https://a.example/1")
	font := part("https://fonts.example/f.woff2", "font", "https://css.example/")
	if _, err := l.Check(font); classOf(err) != PageNotOpen {
		t.Fatalf("a sheet that was not loaded: %v", err)
	}
	if _, err := l.Check(part("https://css.example/s.css", "style", "https://a.example/")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Check(font); err != nil {
		t.Fatal(err)
	}
}

func TestPageWindowDoesNotSpread(t *testing.T) {
	l := opened(t, ClientConfig{Sites: sites("https://a.example/"), Grants: []string{"subresources", "redirects", "files"}}, "https://a.example/1")
	r := part("https://cdn.example/data", "empty", "https://a.example/")
	a, err := l.Check(r)
	if err != nil {
		t.Fatal(err)
	}
	if w := l.ObserveHTML(r, a, ""); w != nil {
		t.Error("a part of a page teaches links")
	}
	if _, err := l.Check(part("https://x.example/", "image", "https://cdn.example/")); classOf(err) != PageNotOpen {
		t.Errorf("a part of a page opened a window: %v", err)
	}
	// Where a part redirects, a part may follow, a page may not.
	l.ObserveRedirect(r, a, mustParse("https://y.example/z"))
	if _, err := l.Check(part("https://y.example/z", "empty", "https://elsewhere.example/")); err != nil {
		t.Error(err)
	}
	d := part("https://y.example/z", "document", "")
	d.Session = "t"
	if _, err := l.Check(d); classOf(err) != SiteNotAllowed {
		t.Errorf("a page followed a part's redirect: %v", err)
	}
}

func TestPageWindowBounds(t *testing.T) {
	l := newList(t, nil, ClientConfig{Name: "c", Sites: sites("https://*.a.example/"), Grants: []string{"subresources"}})
	for i := range maxPages + 5 {
		open(t, l, fmt.Sprintf("https://h%d.a.example/", i), "s")
	}
	if _, err := l.Check(part("https://cdn.example/", "image", "https://h4.a.example/")); classOf(err) != PageNotOpen {
		t.Error(err)
	}
	if _, err := l.Check(part("https://cdn.example/", "image", "https://h5.a.example/")); err != nil {
		t.Error(err)
	}
	for i := range maxSessions + 5 {
		open(t, l, "https://h.a.example/", fmt.Sprint(i))
	}
	if n := len(l.windows.sessions.byKey); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
}
