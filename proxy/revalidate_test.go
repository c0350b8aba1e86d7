package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crawlgate/audit"
)

// versioned is a site whose pages have a version: an entity tag that is asked for by If-None-Match gets a 304.
type versioned struct {
	mu      sync.Mutex
	version int
	fields  [][2]string // on every answer
	body    string
	tagless bool // Last-Modified alone
	also304 [][2]string
	n200    atomic.Int64
	n304    atomic.Int64
}

func (v *versioned) set(fn func(*versioned)) { v.mu.Lock(); defer v.mu.Unlock(); fn(v) }

var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (v *versioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.fields {
		w.Header().Add(f[0], f[1])
	}
	modified := longAgo.Add(time.Duration(v.version) * time.Hour).Format(http.TimeFormat)
	tag := `"v` + strconv.Itoa(v.version) + `"`
	w.Header().Set("Last-Modified", modified)
	same := r.Header.Get("If-Modified-Since") == modified
	if !v.tagless {
		w.Header().Set("ETag", tag)
		same = r.Header.Get("If-None-Match") == tag
	}
	if same && r.Method == http.MethodGet {
		v.n304.Add(1)
		for _, f := range v.also304 {
			w.Header().Set(f[0], f[1])
		}
		w.WriteHeader(http.StatusNotModified)
		return
	}
	v.n200.Add(1)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, v.text())
}

func (v *versioned) text() string { return fmt.Sprintf("version %d %s", v.version, v.body) }

// keeping is a rig with a store.
func keeping(t testing.TB, every int, max int64) (*rig, rigOptions) {
	t.Helper()
	r := newRig(t)
	s, err := OpenAnswers(filepath.Join(r.dir, "answers"), AnswersConfig{MaxSize: max, FullEvery: every, Lastmod: true}, testLog(t))
	must(t, err)
	return r, rigOptions{answers: s}
}

// stored is what a fetcher is told of an answer's coming from the store.
func stored(resp *http.Response) string { return resp.Header.Get(storedField) }

func TestRevalidated(t *testing.T) {
	for _, s := range sides {
		for _, protos := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}} {
			if s.scheme == "http" && protos[0] == "h2" {
				continue
			}
			t.Run(s.name+" to "+protos[0], func(t *testing.T) {
				v := &versioned{body: strings.Repeat("x", 100_000)}
				r, opt := keeping(t, 0, 64<<20)
				if s.scheme == "http" {
					protos = nil
				}
				o := r.originOf("site.test", protos, "", v.ServeHTTP)
				r.start(opt)
				c, u := r.client(s.h2), o.url(s.scheme, "/a")
				first, body := r.get(c, u)
				if first.StatusCode != 200 || body != v.text() || stored(first) != "" {
					t.Fatalf("first: %d %q %v", first.StatusCode, body[:10], first.Header)
				}
				if ev := r.eventOf(first.Header.Get("Crawlgate-Request-Id")); !ev.Kept || ev.Revalidation != "" {
					t.Errorf("first event: kept %v, %q", ev.Kept, ev.Revalidation)
				}
				r.noTurnsLeft()
				again, body := r.get(c, u)
				if again.StatusCode != 200 || body != v.text() || stored(again) != "unchanged" {
					t.Fatalf("again: %d %.20q %v", again.StatusCode, body, again.Header)
				}
				if again.Header.Get("Age") != "0" || again.Header.Get("Content-Length") != strconv.Itoa(len(body)) || again.Header.Get("Content-Type") != "text/plain" || again.Header.Get("Etag") != `"v0"` {
					t.Errorf("again: %v", again.Header)
				}
				ev := r.eventOf(again.Header.Get("Crawlgate-Request-Id"))
				if ev.Status != 304 || ev.Answered != 200 || ev.Revalidation != audit.Unchanged || ev.BytesStored != int64(len(body)) || ev.BytesIn != 0 || !ev.Sent || ev.Decision != "forwarded" || ev.Kept {
					t.Errorf("again event: %+v", ev)
				}
				last := o.requests()[1].Header
				if last.Get("If-None-Match") != `"v0"` || last.Get("If-Modified-Since") == "" {
					t.Errorf("the site was asked with %v", last)
				}
				r.noTurnsLeft()
				v.set(func(v *versioned) { v.version++ })
				changed, body := r.get(c, u)
				if changed.StatusCode != 200 || body != v.text() || stored(changed) != "" {
					t.Errorf("changed: %d %.20q %v", changed.StatusCode, body, changed.Header)
				}
				if ev := r.eventOf(changed.Header.Get("Crawlgate-Request-Id")); ev.Revalidation != audit.AskedWhether || !ev.Kept || ev.BytesStored != 0 {
					t.Errorf("changed event: %+v", ev)
				}
				r.noTurnsLeft()
				if _, body := r.get(c, u); body != v.text() {
					t.Errorf("after: %.20q", body)
				}
				if v.n200.Load() != 2 || v.n304.Load() != 2 {
					t.Errorf("the site sent %d pages and %d 304s", v.n200.Load(), v.n304.Load())
				}
			})
		}
	}
}

// TestNotKept: what RFC 9111 forbids to keep, and what is no whole answer to a plain GET, is asked for again in full.
func TestNotKept(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  []string
		request []string
		keep    bool
	}{
		{name: "plain", keep: true},
		{name: "max-age", answer: []string{"Cache-Control", "max-age=60"}, keep: true},
		{name: "no-cache", answer: []string{"Cache-Control", "no-cache"}, keep: true},
		{name: "no-store", answer: []string{"Cache-Control", "No-Store"}},
		{name: "no-store second", answer: []string{"Cache-Control", `max-age=1, x="a,b", no-store`}},
		{name: "private", answer: []string{"Cache-Control", "private"}},
		{name: "private field", answer: []string{"Cache-Control", `private="x"`}},
		{name: "malformed", answer: []string{"Cache-Control", "max-age=60; public"}},
		{name: "open quote", answer: []string{"Cache-Control", `ext="no-store`}},
		{name: "set-cookie", answer: []string{"Set-Cookie", "a=b"}},
		{name: "vary all", answer: []string{"Vary", "*"}},
		{name: "vary", answer: []string{"Vary", "Accept-Encoding, User-Agent"}, keep: true},
		{name: "vary by signature", answer: []string{"Vary", "Signature-Input"}},
		{name: "cookie", request: []string{"Cookie", "a=b"}},
		{name: "fetcher's no-store", request: []string{"Cache-Control", "no-store"}},
		{name: "fetcher's no-cache", request: []string{"Cache-Control", "no-cache"}, keep: true},
		{name: "authorization", request: []string{"Authorization", "Basic eDp5"}},
		{name: "authorization public", request: []string{"Authorization", "Basic eDp5"}, answer: []string{"Cache-Control", "public"}, keep: true},
		{name: "authorization s-maxage", request: []string{"Authorization", "Basic eDp5"}, answer: []string{"Cache-Control", "s-maxage=0"}, keep: true},
		{name: "range", request: []string{"Range", "bytes=0-1"}},
		{name: "stream", answer: []string{"Content-Type", "text/event-stream"}},
		{name: "tag without quotes", answer: []string{"Etag", "abc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, opt := keeping(t, 0, 64<<20)
			opt.rules = func(ru *Rules) { ru.Default.Limits.Authorization = "pass" }
			asked := atomic.Int64{}
			o := r.origin("site.test", true, "", func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("If-None-Match") != "" {
					asked.Add(1)
				}
				w.Header().Set("Etag", `W/"1"`)
				w.Header().Set("Content-Type", "text/plain")
				for i := 0; i+1 < len(c.answer); i += 2 {
					w.Header().Set(c.answer[i], c.answer[i+1])
				}
				_, _ = io.WriteString(w, "page")
			})
			r.start(opt)
			h := r.client(true)
			for range 2 {
				if resp, body := r.get(h, o.url("https", "/"), c.request...); resp.StatusCode != 200 || body != "page" {
					t.Fatalf("%d %q", resp.StatusCode, body)
				}
				r.noTurnsLeft()
			}
			if got := asked.Load() == 1; got != c.keep {
				t.Errorf("kept: %v", got)
			}
			if n, _ := r.gate.Answers().Size(); (n == 1) != c.keep {
				t.Errorf("%d are kept", n)
			}
		})
	}
}

// TestOwnConditions: a fetcher's own conditional and range requests pass as they are, and so do their answers.
func TestOwnConditions(t *testing.T) {
	v := &versioned{}
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", true, "", v.ServeHTTP)
	r.start(opt)
	c, u := r.client(false), o.url("https", "/")
	r.get(c, u)
	r.noTurnsLeft()
	resp, body := r.get(c, u, "If-None-Match", `"v0"`)
	if resp.StatusCode != 304 || body != "" || stored(resp) != "" {
		t.Errorf("own: %d %q %v", resp.StatusCode, body, resp.Header)
	}
	if h := o.requests()[1].Header; h.Get("If-None-Match") != `"v0"` || h.Get("If-Modified-Since") != "" {
		t.Errorf("sent %v", h)
	}
	if resp, _ := r.get(c, u, "If-None-Match", `"other"`); resp.StatusCode != 200 || stored(resp) != "" {
		t.Errorf("own, other: %d", resp.StatusCode)
	}
	r.noTurnsLeft()
	if resp, _ := r.get(c, u, "Range", "bytes=0-3"); stored(resp) != "" || o.requests()[3].Header.Get("If-None-Match") != "" {
		t.Errorf("range: %v", resp.Header)
	}
}

// TestFreshened: a 304's fields are kept and given (RFC 9111 3.2), those of the bytes are not, and cookies go to the
// fetcher alone.
func TestFreshened(t *testing.T) {
	v := &versioned{fields: [][2]string{{"X-Robots-Tag", "noindex"}}}
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", false, "", v.ServeHTTP)
	r.start(opt)
	c, u := r.client(false), o.url("http", "/")
	r.get(c, u)
	r.noTurnsLeft()
	v.set(func(v *versioned) {
		v.fields = nil
		v.also304 = [][2]string{{"X-Robots-Tag", "nofollow"}, {"Content-Type", "image/png"}, {"Set-Cookie", "seen=1"}, {"Age", "7"}, {"Crawlgate-Reason", "forged"}}
	})
	resp, _ := r.get(c, u)
	if h := resp.Header; h.Get("X-Robots-Tag") != "nofollow" || h.Get("Content-Type") != "text/plain" || h.Get("Set-Cookie") != "seen=1" || h.Get("Age") != "7" ||
		h.Get("Crawlgate-Indexing") != "nofollow" || h.Get("Crawlgate-Reason") != "" {
		t.Errorf("%v", h)
	}
	r.noTurnsLeft()
	v.set(func(v *versioned) { v.also304 = nil })
	resp, _ = r.get(c, u)
	if h := resp.Header; h.Get("X-Robots-Tag") != "nofollow" || h.Get("Set-Cookie") != "" || h.Get("Age") != "0" {
		t.Errorf("%v", h)
	}
	r.noTurnsLeft()
	v.set(func(v *versioned) { v.also304 = [][2]string{{"Cache-Control", "no-store"}} })
	if resp, body := r.get(c, u); stored(resp) != "unchanged" || body != v.text() {
		t.Errorf("%v", resp.Header)
	}
	if n, _ := r.gate.Answers().Size(); n != 0 {
		t.Errorf("%d kept after no-store", n)
	}
}

// TestByDateAlone: a page without an entity tag is asked about by its date, unless that is too young to mean anything.
func TestByDateAlone(t *testing.T) {
	v := &versioned{tagless: true}
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", false, "", v.ServeHTTP)
	young := r.origin("young.test", false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = io.WriteString(w, "young")
	})
	r.start(opt)
	c := r.client(false)
	for _, want := range []string{"", "unchanged"} {
		if resp, body := r.get(c, o.url("http", "/")); stored(resp) != want || body != v.text() {
			t.Errorf("%q %q", stored(resp), body)
		}
		r.get(c, young.url("http", "/"))
		r.noTurnsLeft()
	}
	if h := young.requests()[1].Header; h.Get("If-Modified-Since") != "" {
		t.Errorf("asked by %q", h.Get("If-Modified-Since"))
	}
}

// TestOtherVersion304: a 304 that names another version than was asked about confirms nothing, and the site is not asked
// that way again.
func TestOtherVersion304(t *testing.T) {
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("If-None-Match") != "" {
			w.Header().Set("Etag", `"other"`)
			w.WriteHeader(304)
			return
		}
		w.Header().Set("Etag", `"this"`)
		_, _ = io.WriteString(w, "page")
	})
	r.start(opt)
	c, u := r.client(false), o.url("https", "/")
	r.get(c, u)
	r.noTurnsLeft()
	resp, _ := r.get(c, u)
	if resp.StatusCode != 502 || resp.Header.Get("Crawlgate-Reason") != "upstream-failed" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Class != "validator_mismatch" || ev.Status != 0 && ev.Status != 304 {
		t.Errorf("%+v", ev)
	}
	for range 3 {
		r.noTurnsLeft()
		if resp, body := r.get(c, u); resp.StatusCode != 200 || body != "page" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
}

// TestVariants: each request gets the answer to its own fields.
func TestVariants(t *testing.T) {
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		lang := req.Header.Get("Accept-Language")
		tag := `"` + lang + `"`
		w.Header().Set("Vary", "Accept-Language")
		w.Header().Set("Etag", tag)
		if req.Header.Get("If-None-Match") == tag {
			w.WriteHeader(304)
			return
		}
		_, _ = io.WriteString(w, "in "+lang)
	})
	r.start(opt)
	c := r.client(true)
	for round := range 3 {
		for _, lang := range []string{"de", "en", "fr"} {
			resp, body := r.get(c, o.url("https", "/"), "Accept-Language", lang)
			if body != "in "+lang || (stored(resp) != "") != (round > 0) {
				t.Errorf("round %d: %s: %q %q", round, lang, body, stored(resp))
			}
			r.noTurnsLeft()
		}
	}
}

// TestChangedByPost: an unsafe method removes what is kept of its URL and of what the answer names (RFC 9111 4.4).
func TestChangedByPost(t *testing.T) {
	v := &versioned{}
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", false, "", func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method == http.MethodPost && req.URL.Path == "/bad":
			w.WriteHeader(500)
		case req.Method == http.MethodPost:
			w.Header().Set("Location", "/b")
			w.Header().Set("Content-Location", "http://elsewhere.test/c")
			w.WriteHeader(201)
		default:
			v.ServeHTTP(w, req)
		}
	})
	r.start(opt)
	c := r.client(false)
	paths := []string{"/a", "/b", "/c", "/bad"}
	for _, p := range paths {
		r.get(c, o.url("http", p))
	}
	r.noTurnsLeft()
	for _, p := range []string{"/a", "/bad"} {
		resp, err := c.Post(o.url("http", p), "text/plain", strings.NewReader("x"))
		must(t, err)
		resp.Body.Close()
	}
	r.noTurnsLeft()
	want := []string{"", "", "unchanged", "unchanged"}
	for i, p := range paths {
		if resp, _ := r.get(c, o.url("http", p)); stored(resp) != want[i] {
			t.Errorf("%s: %q", p, stored(resp))
		}
	}
}

// TestOutdated: a page that is gone or moved is not kept, one that fails for now is.
func TestOutdated(t *testing.T) {
	for status, kept := range map[int]int{404: 0, 410: 0, 301: 0, 302: 0, 500: 1, 503: 1, 429: 1, 403: 1} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			var now atomic.Int64
			v := &versioned{}
			r, opt := keeping(t, 0, 64<<20)
			o := r.origin("site.test", false, "", func(w http.ResponseWriter, req *http.Request) {
				if s := now.Load(); s != 0 {
					w.WriteHeader(int(s))
					return
				}
				v.ServeHTTP(w, req)
			})
			r.start(opt)
			c := r.client(false)
			r.get(c, o.url("http", "/"))
			r.noTurnsLeft()
			now.Store(int64(status))
			if resp, _ := r.get(c, o.url("http", "/")); resp.StatusCode != status {
				t.Errorf("got %d", resp.StatusCode)
			}
			r.noTurnsLeft()
			if n, _ := r.gate.Answers().Size(); n != kept {
				t.Errorf("%d kept", n)
			}
		})
	}
}

// TestBrokenBodiesAreNotKept: of a body that the site cut or that was too large nothing stays.
func TestBrokenBodiesAreNotKept(t *testing.T) {
	r, opt := keeping(t, 0, 8<<20)
	o := r.origin("site.test", false, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Etag", `"1"`)
		switch req.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(make([]byte, 90_000))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/large": // more than its share, of unknown length
			for range 20 {
				_, _ = w.Write(make([]byte, 64<<10))
				_ = http.NewResponseController(w).Flush()
			}
		case "/named":
			w.Header().Set("Content-Length", strconv.Itoa(2<<20))
			_, _ = w.Write(make([]byte, 2<<20))
		}
	})
	r.start(opt)
	c := r.client(false)
	for _, p := range []string{"/cut", "/large", "/named"} {
		resp, err := c.Get(o.url("http", p))
		must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		if (err != nil) != (p == "/cut") {
			t.Errorf("%s: %v", p, err)
		}
		resp.Body.Close()
	}
	r.noTurnsLeft()
	if n, size := r.gate.Answers().Size(); n != 0 || size != 0 {
		t.Errorf("%d kept, %d bytes", n, size)
	}
	left, err := filepath.Glob(filepath.Join(r.dir, "answers", "*", "*"))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

// TestFetcherLeft: the copy of a body whose fetcher leaves is dropped.
func TestFetcherLeft(t *testing.T) {
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", true, "", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Etag", `"1"`)
		for req.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	r.start(opt)
	resp, err := r.client(false).Get(o.url("https", "/"))
	must(t, err)
	_, _ = io.ReadFull(resp.Body, make([]byte, 100_000))
	resp.Body.Close()
	r.noTurnsLeft()
	r.until("the copy to go", func() bool { n, size := r.gate.Answers().Size(); return n == 0 && size == 0 })
}

// TestDamagedCopy: a small copy that is damaged on the disk makes an unconditional request; a large one, whose damage
// shows as it passes, breaks the answer off loudly.
func TestDamagedCopy(t *testing.T) {
	for name, size := range map[string]int{"small": 10_000, "large": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			v := &versioned{body: strings.Repeat("y", size)}
			r, opt := keeping(t, 0, 64<<20)
			o := r.origin("site.test", true, "", v.ServeHTTP)
			r.start(opt)
			c, u := r.client(false), o.url("https", "/")
			r.get(c, u)
			r.noTurnsLeft()
			files, err := filepath.Glob(filepath.Join(r.dir, "answers", "??", "*.body"))
			must(t, err)
			f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("!"), int64(size/2))
			must(t, err)
			f.Close()
			resp, err := c.Get(u)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if name == "small" {
				if err != nil || string(body) != v.text() || stored(resp) != "" || v.n304.Load() != 0 {
					t.Errorf("%v, %d bytes, %v", err, len(body), resp.Header)
				}
			} else {
				if err == nil || len(body) >= len(v.text()) {
					t.Errorf("a damaged body ended well: %d bytes", len(body))
				}
				if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Reason != "internal" || ev.Class != "stored_damaged" || ev.Decision != "failed" {
					t.Errorf("%+v", ev)
				}
			}
			r.noTurnsLeft()
			if resp, body := r.get(c, u); resp.StatusCode != 200 || body != v.text() {
				t.Errorf("after: %d", resp.StatusCode)
			}
		})
	}
}

// TestStoreThatFails: a folder that cannot be written or read makes unconditional requests, and nothing worse.
func TestStoreThatFails(t *testing.T) {
	v := &versioned{body: strings.Repeat("z", 70_000)}
	r, opt := keeping(t, 0, 64<<20)
	o := r.origin("site.test", true, "", v.ServeHTTP)
	r.start(opt)
	c := r.client(false)
	r.get(c, o.url("https", "/a"))
	r.noTurnsLeft()
	must(t, os.RemoveAll(filepath.Join(r.dir, "answers")))
	for range 2 {
		for _, p := range []string{"/a", "/b"} {
			if resp, body := r.get(c, o.url("https", p)); resp.StatusCode != 200 || body != v.text() || stored(resp) != "" {
				t.Errorf("%s: %d %v", p, resp.StatusCode, resp.Header)
			}
			r.noTurnsLeft()
		}
	}
	if n, size := r.gate.Answers().Size(); n != 0 || size != 0 || v.n304.Load() != 0 {
		t.Errorf("%d kept, %d bytes, %d 304s", n, size, v.n304.Load())
	}
}

// TestAskedInFull: of 304s one in so many is followed by a request in full (RL-19), and the event says so.
func TestAskedInFull(t *testing.T) {
	v := &versioned{}
	r, opt := keeping(t, 5, 64<<20)
	o := r.origin("site.test", false, "", v.ServeHTTP)
	r.start(opt)
	c := r.client(false)
	const pages = 10
	for range 11 { // one round to keep, ten more
		for p := range pages {
			r.get(c, o.url("http", "/"+strconv.Itoa(p)))
			r.noTurnsLeft()
		}
	}
	n304, full := int(v.n304.Load()), int(v.n200.Load())-pages
	if n304+full != 10*pages || full < (n304-pages)/5-1 || full > n304/5+1 {
		t.Errorf("%d 304s, %d in full", n304, full)
	}
	seen := 0
	r.mu.Lock()
	for _, e := range r.events {
		if e.Revalidation == audit.AskedInFull {
			seen++
			if e.Status != 200 || !e.Kept || e.BytesStored != 0 {
				t.Errorf("%+v", e)
			}
		}
	}
	r.mu.Unlock()
	if seen != full {
		t.Errorf("%d events say so, %d were", seen, full)
	}
}

// TestManyAtOnce: fetchers of one page at the same time all get it whole, from the site or from the store.
func TestManyAtOnce(t *testing.T) {
	v := &versioned{body: strings.Repeat("w", 200_000)}
	r, opt := keeping(t, 3, 1<<20)
	o := r.origin("site.test", true, "", v.ServeHTTP)
	r.start(opt)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			c := r.client(n%2 == 0)
			for i := range 20 {
				resp, err := c.Get(o.url("https", "/"+strconv.Itoa((n+i)%9)))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(body) != v.text() || resp.StatusCode != 200 {
					t.Errorf("%v %d, %d bytes", err, resp.StatusCode, len(body))
				}
			}
		})
	}
	wg.Wait()
	r.noTurnsLeft()
	r.until("the store to be within its size", func() bool { _, size := r.gate.Answers().Size(); return size <= 1<<20 })
}

// TestSpared: what a sitemap that robots.txt names says has not changed comes from the store without the site being asked;
// whatever is not certain is asked.
func TestSpared(t *testing.T) {
	var o *origin
	day := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339) }
	asked := func(path string) (n int) {
		for _, r := range o.requests() {
			if r.URL.Path == path {
				n++
			}
		}
		return n
	}
	r, opt := keeping(t, 0, 64<<20)
	v := &versioned{body: strings.Repeat("s", 50_000)}
	list := [][2]string{{"/old", day(48 * time.Hour)}, {"/vary", day(48 * time.Hour)}, {"/now", day(0)}, {"/today", time.Now().UTC().Format(time.DateOnly)}, {"/must", day(48 * time.Hour)}, {"/aged", day(48 * time.Hour)}}
	o = r.origin("site.test", true, "Sitemap: /map.xml\nUser-agent: *\nDisallow: /no/\n", func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/map.xml":
			w.Header().Set("Content-Type", "text/xml")
			_, _ = io.WriteString(w, "<urlset>")
			for _, e := range list {
				fmt.Fprintf(w, "<url><loc>%s</loc><lastmod>%s</lastmod></url>", o.url("https", e[0]), e[1])
			}
			_, _ = io.WriteString(w, "</urlset>")
			return
		case "/must":
			w.Header().Set("Cache-Control", "max-age=60, must-revalidate")
		case "/vary":
			w.Header().Set("Vary", "User-Agent, Accept-Language")
		case "/aged":
			w.Header().Set("Age", "200000")
		}
		v.ServeHTTP(w, req)
	})
	r.start(opt)
	c := r.client(true)
	paths := []string{"/old", "/vary", "/now", "/today", "/must", "/aged", "/unlisted"}
	for _, p := range paths {
		if resp, _ := r.get(c, o.url("https", p)); stored(resp) != "" {
			t.Errorf("%s: new, and %q", p, stored(resp))
		}
	}
	r.until("the sitemap to be read", func() bool {
		u, err := url.Parse(o.url("https", "/old"))
		must(t, err)
		_, ok := r.gate.list.ChangedBy("default", u, []string{"/map.xml"})
		return ok
	})
	r.noTurnsLeft()
	want := map[string]string{"/old": "lastmod", "/vary": "lastmod"}
	for _, p := range paths {
		before := asked(p)
		resp, body := r.get(c, o.url("https", p))
		w := want[p]
		if w == "" {
			w = "unchanged"
		}
		if resp.StatusCode != 200 || body != v.text() || stored(resp) != w || (asked(p) > before) != (w == "unchanged") {
			t.Errorf("%s: %d %q, asked %d times", p, resp.StatusCode, stored(resp), asked(p)-before)
		}
		ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id"))
		if w == "lastmod" && (ev.Sent || ev.Status != 0 || ev.Answered != 200 || ev.BytesStored != int64(len(body)) || ev.Revalidation != audit.Spared || ev.Decision != "forwarded" || resp.Header.Get("Age") == "") {
			t.Errorf("%s: %+v", p, ev)
		}
	}
	r.noTurnsLeft()
	for _, fields := range [][]string{{"Cache-Control", "no-cache"}, {"Cache-Control", "max-age=5"}, {"Pragma", "no-cache"}, {"If-None-Match", `"other"`}, {"Cookie", "a=b"}, {"Range", "bytes=0-1"}} {
		before := asked("/old")
		if resp, _ := r.get(c, o.url("https", "/old"), fields...); stored(resp) == "lastmod" || asked("/old") == before {
			t.Errorf("%v: %q", fields, stored(resp))
		}
	}
	if resp, _ := r.get(c, o.url("https", "/vary"), "Accept-Language", "de"); stored(resp) != "" {
		t.Errorf("another language: %q", stored(resp))
	}
	r.noTurnsLeft()
}
