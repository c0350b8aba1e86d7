package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"crawlgate/proxy/guard"
)

const browserHead = "GET /some/path/page.html?x=1&y=2 HTTP/1.1\r\nHost: www.example.test\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n" +
	"Connection: keep-alive\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nCookie: a=b; c=d\r\n\r\n"

// A head may come in any pieces, and be as long as the limit and no longer.
func TestH1HeadInPieces(t *testing.T) {
	long := "GET / HTTP/1.1\r\nhOST: a\r\nx-long: " + strings.Repeat("x", 20<<10) + "\r\nX-Long:\ty z \t\r\n\r\n"
	for _, head := range []string{browserHead, long, "\r\n" + browserHead} {
		n := len(strings.TrimPrefix(head, "\r\n"))
		for name, in := range map[string]io.Reader{"whole": strings.NewReader(head), "byte by byte": iotest.OneByteReader(strings.NewReader(head))} {
			r, begun, err := readH1(bufio.NewReaderSize(in, 4<<10), n)
			if err != nil || !begun {
				t.Fatalf("%s, %.20q: %v", name, head, err)
			}
			if head == long && (r.Host != "a" || len(r.Header["X-Long"]) != 2 || len(r.Header["X-Long"][0]) != 20<<10 || r.Header["X-Long"][1] != "y z") {
				t.Errorf("%s: %q %d", name, r.Host, len(r.Header["X-Long"]))
			}
		}
		if _, _, err := readH1(bufio.NewReaderSize(strings.NewReader(head), 4<<10), n-1); err != headTooLarge {
			t.Errorf("%.20q past the limit: %v", head, err)
		}
	}
}

// A line that is none is not waited past.
func TestH1HeadGivenUpAtOnce(t *testing.T) {
	for _, in := range []string{"GET / HTTP/1.1\n", "GET /\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: y\n", "GET / HTTP/1.1\r\n X: y\r\n", "GET / HTTP/1.1\r\nX : y\r\n"} {
		_, begun, err := readH1(bufio.NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(errors.New("waited")))), 1000)
		if err != headMalformed || !begun {
			t.Errorf("%q: %v", in, err)
		}
	}
	for in, begun := range map[string]bool{"": false, "\r\n": false, "\r\nG": true, "GET": true, "GET / HTTP/1.1\r\nHost: a\r\n": true} {
		if _, got, err := readH1(bufio.NewReader(strings.NewReader(in)), 1000); err != io.EOF || got != begun {
			t.Errorf("%q: begun %v, %v", in, got, err)
		}
	}
}

// Trailers are read as heads are.
func TestH1Trailers(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\n"
	for trailer, want := range map[string]bool{
		"\r\n": true, "X-Sum: 1\r\n\r\n": true, "x-sum:1\r\nY: 2\r\n\r\n": true,
		"X-Sum: 1\n\r\n": false, "X-Sum: 1\r\n folded\r\n\r\n": false, "X-Sum : 1\r\n\r\n": false, "X-Sum: \x00\r\n\r\n": false, "X-Sum: 1\r\n\n": false,
		"X-Sum: 1\r\n": false, "": false, "X: " + strings.Repeat("x", trailerBytes) + "\r\n\r\n": false,
	} {
		r, _, err := readH1(bufio.NewReader(strings.NewReader(head+trailer)), 1000)
		must(t, err)
		b, err := io.ReadAll(r.Body)
		if (err == nil) != want || want && string(b) != "hello" {
			t.Errorf("%.40q: %q %v", trailer, b, err)
		}
		if want && trailer != "\r\n" && r.Trailer.Get("X-Sum") != "1" {
			t.Errorf("%.40q: %v", trailer, r.Trailer)
		}
		if _, again := r.Body.Read(make([]byte, 1)); err != nil && again != err {
			t.Errorf("%.40q: then %v", trailer, again)
		}
	}
}

// FuzzH1Head: what readH1 accepts http.ReadRequest accepts too and takes in the same way, body and trailer as well, but for a
// percent sign that begins no escape.
func FuzzH1Head(f *testing.F) {
	for _, c := range ambiguous {
		f.Add([]byte(strings.NewReplacer("TARGET", "/", "HOST", "fuzz.test").Replace(c.request)))
		f.Add([]byte(strings.NewReplacer("TARGET", "http://fuzz.test:80/a?b", "HOST", "fuzz.test").Replace(c.request)))
	}
	for _, s := range []string{
		browserHead, "CONNECT a.test:443 HTTP/1.1\r\n\r\n", "CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /100% HTTP/1.1\r\nHost: a\r\n\r\n",
		"\r\nGET http://a%zz/ HTTP/1.0\r\nPragma: no-cache\r\nConnection: x, keep-alive\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\nTrailer: x, y\r\n\r\n2;a=b\r\nab\r\n0\r\nX: y\r\nZ: 1\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		ours, _, err := readH1(bufio.NewReader(bytes.NewReader(in)), 1<<20)
		if err != nil {
			return
		}
		body, err := io.ReadAll(ours.Body)
		text := bytes.TrimPrefix(in, []byte("\r\n"))
		stray := guard.EscapeStray(ours.RequestURI)
		text = bytes.Replace(text, []byte(ours.RequestURI), []byte(stray), 1)
		theirs, err2 := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err2 != nil {
			t.Fatalf("%q is accepted: %v", in, err2)
		}
		theirs.RequestURI = ours.RequestURI
		body2, err2 := io.ReadAll(theirs.Body)
		if (err == nil) != (err2 == nil) && err != headMalformed && err != headTooLarge {
			t.Fatalf("%q: the body ends %v, theirs %v", in, err, err2)
		}
		if err == nil && !bytes.Equal(body, body2) {
			t.Fatalf("%q: body %q, theirs %q", in, body, body2)
		}
		type shape struct {
			Method, URI, URL, Proto, Host string
			Major, Minor                  int
			Header, Trailer               http.Header
			Length                        int64
			Coding                        []string
			Close                         bool
		}
		of := func(r *http.Request) shape {
			s := shape{r.Method, r.RequestURI, r.URL.String(), r.Proto, r.Host, r.ProtoMajor, r.ProtoMinor, r.Header, nil, r.ContentLength, r.TransferEncoding, r.Close}
			if err == nil {
				s.Trailer = r.Trailer
			}
			return s
		}
		if d := cmp.Diff(of(theirs), of(ours)); d != "" {
			t.Fatalf("%q: %s", in, d)
		}
	})
}

func BenchmarkReadHead(b *testing.B) {
	for name, read := range map[string]func(*bufio.Reader) error{
		"ours":     func(br *bufio.Reader) error { _, _, err := readH1(br, 64<<10); return err },
		"standard": func(br *bufio.Reader) error { _, err := http.ReadRequest(br); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in := strings.NewReader(browserHead)
			br := bufio.NewReader(in)
			for b.Loop() {
				in.Reset(browserHead)
				br.Reset(in)
				if err := read(br); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
