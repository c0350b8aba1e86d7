package sign

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkEd25519 is the floor: one signature over as many bytes as a signature base has.
func BenchmarkEd25519(b *testing.B) {
	k, base := testKey(1), make([]byte, 320)
	b.ReportAllocs()
	for b.Loop() {
		ed25519.Sign(k.private, base)
	}
}

func benchSign(b *testing.B, c Config) {
	s := openTest(b, c, example())
	h := http.Header{"User-Agent": {"x"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Cookie": {"a=b"}}
	r := testRequest()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Sign(r, h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) { benchSign(b, Defaults()) }

func BenchmarkSignNonce(b *testing.B) {
	c := Defaults()
	c.Nonce = true
	benchSign(b, c)
}

func BenchmarkSignBound(b *testing.B) {
	c := Defaults()
	c.Components = ComponentsBound
	benchSign(b, c)
}

func BenchmarkVerify(b *testing.B) {
	s := openTest(b, Defaults(), example())
	h := http.Header{}
	if _, err := s.Sign(testRequest(), h); err != nil {
		b.Fatal(err)
	}
	c, v := captureOf("https://example.com/", h), testVerifierNow(testKey(1))
	v.Skew, v.MaxLifetime = DefaultSkew, 0
	b.ReportAllocs()
	for b.Loop() {
		if r := v.Verify(c); r.Outcome != Verified {
			b.Fatal(r)
		}
	}
}

func BenchmarkDirectoryServe(b *testing.B) {
	s := openTest(b, Defaults(), example())
	r := httptest.NewRequest("GET", DirectoryPath, nil)
	r.Host = "bot.example.com"
	b.ReportAllocs()
	for b.Loop() {
		s.ServeDirectory(httptest.NewRecorder(), r)
	}
}

func BenchmarkDirectoryBuild(b *testing.B) {
	ks := []key{testKey(1), testKey(2)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildDirectory("bot.example.com", ks, PublishDefaults()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStrip(b *testing.B) {
	h := http.Header{"User-Agent": {"x"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Cookie": {"a=b"}, "Connection": {"keep-alive"}, "Sec-Fetch-Dest": {"document"}}
	b.ReportAllocs()
	for b.Loop() {
		Strip(h)
	}
}
