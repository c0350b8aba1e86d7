package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

func encoded(t testing.TB, coding, page string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b)
		must(t, err)
		w = z
	default:
		return []byte(page)
	}
	_, err := io.WriteString(w, page)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

// What a page says of itself, in every spelling a page may use, however the bytes are cut and coded.
func TestHTTPIndexingScan(t *testing.T) {
	for _, c := range []struct{ name, header, page, want string }{
		{"nothing", "", "<html><head><title>x</title></head>", ""},
		{"meta", "", `<meta name="robots" content="noindex">`, "noindex"},
		{"both", "", `<META NAME=Robots CONTENT='NOINDEX, nofollow'/>`, "noindex, nofollow"},
		{"none", "", `<meta content=none name=robots>`, "noindex, nofollow"},
		{"ours", "", `<meta name="examplebot" content="nofollow">`, "nofollow"},
		{"another's", "", `<meta name="googlebot" content="noindex">`, ""},
		{"two metas", "", `<meta name=robots content=index,nofollow><meta name=ExampleBot content=noindex>`, "noindex, nofollow"},
		{"with the header", "nofollow", `<meta name=robots content=noindex>`, "noindex, nofollow"},
		{"header for another", "otherbot: noindex", `<p>`, ""},
		{"in a comment", "", `<!-- <meta name=robots content=noindex> --><p>`, ""},
		{"after a comment", "", `<!-- x --><meta name=robots content=noindex>`, "noindex"},
		{"short comment", "", `<!--><meta name=robots content=noindex>`, "noindex"},
		{"in a script", "", `<script>var s = '<meta name=robots content=noindex>'</script><p>`, ""},
		{"after a script", "", `<script>a<b</script ><meta name=robots content=noindex>`, "noindex"},
		{"in a title", "", `<title><meta name=robots content=noindex></title>`, ""},
		{"in a textarea", "", `<textarea><meta name=robots content=noindex></TextArea>`, ""},
		{"quoted >", "", `<meta name="robots" data-x="a>b" content="noindex">`, "noindex"},
		{"entities", "", `<meta name="robots" content="no&#105;ndex">`, "noindex"},
		{"first attribute counts", "", `<meta name=robots name=x content=nofollow content=noindex>`, "nofollow"},
		{"metadata is no meta", "", `<metadata name=robots content=noindex>`, ""},
		{"unfinished", "", `<meta name=robots content=noindex`, ""},
		{"in the body", "", `<body><p>x<meta name=robots content=noindex>`, "noindex"},
		{"within the first 256 KiB", "", strings.Repeat("<p>x</p>\n", 20000) + `<meta name=robots content=noindex>`, "noindex"},
		{"behind the first 256 KiB", "", strings.Repeat("<p>x</p>\n", 30000) + `<meta name=robots content=noindex>`, ""},
		{"long tag", "", `<meta name=x content="` + strings.Repeat("x", 10000) + `"><meta name=robots content=noindex>`, "noindex"},
	} {
		for _, coding := range []string{"", "gzip", "br", "zstd"} {
			for _, piece := range []int{1, 7, 4096, 1 << 20} {
				if len(c.page) > 1000 && piece < 4096 {
					continue
				}
				h := http.Header{}
				if c.header != "" {
					h.Set("X-Robots-Tag", c.header)
				}
				if coding != "" {
					h.Set("Content-Encoding", coding)
				}
				ix, known := newIndexing(h, "ExampleBot")
				if !known {
					t.Fatalf("%s is not known", coding)
				}
				for b := encoded(t, coding, c.page); len(b) > 0; {
					n := min(piece, len(b))
					_, _ = ix.Write(b[:n])
					b = b[n:]
				}
				_ = ix.Close()
				if got := ix.directives(); got != c.want {
					t.Errorf("%s, %s in pieces of %d: %q, want %q", c.name, coding, piece, got, c.want)
				}
			}
		}
	}
}

// Hostile and broken codings teach nothing and harm nothing.
func TestHTTPIndexingHostile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	bomb := encoded(t, "gzip", strings.Repeat("\x00", 4<<20))
	for _, coding := range []string{"gzip", "br", "zstd"} {
		good := encoded(t, coding, strings.Repeat("<p>hello</p>", 5000))
		for i := range 50 {
			b := bytes.Clone(good)
			for range 1 + i%5 {
				b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
			}
			ix, _ := newIndexing(http.Header{"Content-Encoding": {coding}}, "x")
			_, _ = ix.Write(b[:len(b)/2])
			_, _ = ix.Write(b[len(b)/2:])
			_ = ix.Close()
		}
		ix, _ := newIndexing(http.Header{"Content-Encoding": {coding}}, "x")
		_, _ = ix.Write(bomb)
		_ = ix.Close()
	}
}

func FuzzIndexing(f *testing.F) {
	for _, s := range []string{`<meta name=robots content=noindex>`, `<!-- <meta`, `<script>`, "<", `<meta a='`} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, page string, cut int) {
		whole, _ := newIndexing(http.Header{}, "ExampleBot")
		_, _ = whole.Write([]byte(page))
		pieces, _ := newIndexing(http.Header{}, "ExampleBot")
		n := len(page)
		at := 0
		if n > 0 {
			at = ((cut % n) + n) % n
		}
		_, _ = pieces.Write([]byte(page[:at]))
		_, _ = pieces.Write([]byte(page[at:]))
		if len(page) < metaBytes && whole.directives() != pieces.directives() {
			t.Errorf("%q cut at %d: %q and %q", page, at, whole.directives(), pieces.directives())
		}
	})
}

// On the wire: in the head when it came with it, in a trailer for who takes trailers when it came later, never held
// back; in the event always, with "unread" for an unknown coding. The body passes as it came.
func TestHTTPIndexing(t *testing.T) {
	const meta = `<html><meta name=robots content=noindex>`
	next := make(chan struct{}, 1)
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		coding := strings.TrimPrefix(req.URL.Path, "/early/")
		switch {
		case req.URL.Path == "/late":
			w.Header().Set("X-Robots-Tag", "nofollow")
			_, _ = io.WriteString(w, "<html>")
			_ = http.NewResponseController(w).Flush()
			<-next
			_, _ = io.WriteString(w, meta)
		case req.URL.Path == "/text":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, meta)
		case coding == "deflate":
			w.Header().Set("Content-Encoding", coding)
			_, _ = io.WriteString(w, meta)
		default:
			if coding != "identity" {
				w.Header().Set("Content-Encoding", coding)
			}
			_, _ = w.Write(encoded(t, coding, meta))
		}
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		c := r.client(s.h2)
		for _, coding := range []string{"identity", "gzip", "br", "zstd"} {
			resp, b := r.get(c, o.url(s.scheme, "/early/"+coding))
			// On a busy machine the bytes may come later than a head waits for them.
			for again := 0; again < 20 && resp.Header.Get("Crawlgate-Indexing") == ""; again++ {
				resp, b = r.get(c, o.url(s.scheme, "/early/"+coding))
			}
			if resp.Header.Get("Crawlgate-Indexing") != "noindex" || b != string(encoded(t, coding, meta)) {
				t.Errorf("%s: %q, %d bytes", coding, resp.Header.Get("Crawlgate-Indexing"), len(b))
			}
			if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Indexing != "noindex" {
				t.Errorf("%s: event %q", coding, ev.Indexing)
			}
		}
		for path, want := range map[string]string{"/early/deflate": unread, "/text": ""} {
			resp, _ := r.get(c, o.url(s.scheme, path))
			if got := resp.Header.Get("Crawlgate-Indexing"); got != "" {
				t.Errorf("%s: %q", path, got)
			}
			if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Indexing != want {
				t.Errorf("%s: event %q", path, ev.Indexing)
			}
		}
		for _, te := range []string{"trailers", ""} {
			req, err := http.NewRequest(http.MethodGet, o.url(s.scheme, "/late"), nil)
			must(t, err)
			if te != "" {
				req.Header["Te"] = []string{te}
			}
			resp, err := c.Do(req)
			must(t, err)
			next <- struct{}{}
			_, err = io.ReadAll(resp.Body)
			must(t, err)
			resp.Body.Close()
			trailer := resp.Trailer.Get("Crawlgate-Indexing")
			if head := resp.Header.Get("Crawlgate-Indexing"); head != "nofollow" || te != "" && trailer != "noindex, nofollow" || te == "" && trailer != "" {
				t.Errorf("TE %q: head %q, trailer %q", te, head, trailer)
			}
			if ev := r.eventOf(resp.Header.Get("Crawlgate-Request-Id")); ev.Indexing != "noindex, nofollow" || ev.RobotsTag != "nofollow" {
				t.Errorf("event %q %q", ev.Indexing, ev.RobotsTag)
			}
		}
	})
}

// A page of announced length whose body comes late is re-framed for fetchers that take trailers over HTTP/1.1, and for
// them alone; over HTTP/2 it keeps its length. The body and its head wait for nothing.
func TestHTTPIndexingOfKnownLength(t *testing.T) {
	const page = "<html><meta name=robots content=noindex>text"
	next := make(chan string, 1)
	onSides(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		switch req.URL.Path {
		case "/file":
			w.Header().Set("Content-Type", "image/png")
		case "/said":
			w.Header().Set("X-Robots-Tag", "none")
		case "/quick":
			_, _ = io.WriteString(w, page)
			return
		}
		_ = http.NewResponseController(w).Flush()
		if req.Method == http.MethodHead {
			return
		}
		switch <-next {
		case "whole":
			_, _ = io.WriteString(w, page)
		case "cut":
			_, _ = io.WriteString(w, page[:20])
			panic(http.ErrAbortHandler)
		}
	}, rigOptions{}, func(t *testing.T, r *rig, o *origin, s side) {
		length := strconv.Itoa(len(page))
		for _, c := range []struct {
			name, method, path, te string
			framed                 bool // loses its length over HTTP/1.1
			trailer                string
		}{
			{"trailers taken", "GET", "/page", "trailers", true, "noindex"},
			{"trailers among others", "GET", "/page", "gzip, trailers;q=0.5, trailers", true, "noindex"},
			{"no trailers taken", "GET", "/page", "", false, ""},
			{"no page", "GET", "/file", "trailers", false, ""},
			{"all was said in the head", "GET", "/said", "trailers", false, ""},
			{"no body", "HEAD", "/page", "trailers", false, ""},
		} {
			if s.h2 && strings.Contains(c.te, "gzip") {
				continue // HTTP/2 knows no other member of TE
			}
			req, err := http.NewRequest(c.method, o.url(s.scheme, c.path), nil)
			must(t, err)
			if c.te != "" {
				req.Header["Te"] = []string{c.te}
			}
			resp, err := r.client(s.h2).Do(req)
			must(t, err)
			if c.method == http.MethodGet {
				next <- "whole" // only now: the head came without it
			}
			b, err := io.ReadAll(resp.Body)
			must(t, err)
			resp.Body.Close()
			want := length
			if c.framed && !s.h2 {
				want = ""
			}
			if got := resp.Header.Get("Content-Length"); got != want {
				t.Errorf("%s: Content-Length %q, want %q", c.name, got, want)
			}
			if c.method == http.MethodGet && string(b) != page {
				t.Errorf("%s: body %q", c.name, b)
			}
			if got := strings.Join(resp.Trailer["Crawlgate-Indexing"], "|"); got != c.trailer {
				t.Errorf("%s: trailer %q, want %q", c.name, got, c.trailer)
			}
		}
		// What was known by the head keeps its length, and has no trailer.
		var resp *http.Response
		for range 20 {
			if resp, _ = r.get(r.client(s.h2), o.url(s.scheme, "/quick"), "Te", "trailers"); resp.Header.Get("Crawlgate-Indexing") != "" {
				break
			}
		}
		if resp.Header.Get("Crawlgate-Indexing") != "noindex" || resp.Header.Get("Content-Length") != length || len(resp.Trailer["Crawlgate-Indexing"]) != 0 {
			t.Errorf("quick: %v, trailers %v", resp.Header, resp.Trailer)
		}
		// A cut stays loud without the length.
		req, err := http.NewRequest(http.MethodGet, o.url(s.scheme, "/page"), nil)
		must(t, err)
		req.Header["Te"] = []string{"trailers"}
		resp, err = r.client(s.h2).Do(req)
		must(t, err)
		next <- "cut"
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a cut page ended cleanly after %q", b)
		}
		resp.Body.Close()
	})
}
