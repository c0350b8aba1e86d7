package allowlist

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// errTooLarge ends a read at the limit of decoded bytes.
var errTooLarge = errors.New("larger than the limit")

// zstdReaders are kept for the next body: a decoder's tables and window are a few megabytes. They hold no goroutine. The
// window is that of RFC 9659.
var zstdReaders = sync.Pool{New: newZstdReader}

func newZstdReader() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		panic(err) // only wrong options
	}
	return z
}

// decoded reads a body through its Content-Encoding (RFC 9110 section 8.4). It starts no goroutine. An unknown coding
// is an error. close frees the decoders, not r.
func decoded(r io.Reader, contentEncoding string) (body io.Reader, closeBody func(), err error) {
	closeBody = func() {}
	codings := strings.Split(contentEncoding, ",")
	if len(codings) > 3 {
		return nil, closeBody, fmt.Errorf("%d content codings", len(codings))
	}
	for i := len(codings) - 1; i >= 0; i-- {
		switch coding := strings.ToLower(strings.TrimSpace(codings[i])); coding {
		case "", "identity":
		case "gzip", "x-gzip":
			r = &lazyGzip{src: r}
		case "br":
			r = brotli.NewReader(r)
		case "zstd":
			z := zstdReaders.Get().(*zstd.Decoder)
			last := closeBody
			closeBody = func() {
				if z.Reset(nil) == nil {
					zstdReaders.Put(z)
				}
				last()
			}
			if err := z.Reset(r); err != nil {
				closeBody()
				return nil, func() {}, fmt.Errorf("zstd: %w", err)
			}
			r = z
		default:
			return nil, closeBody, fmt.Errorf("unknown content coding %.40q", coding)
		}
	}
	return r, closeBody, nil
}

// lazyGzip reads the gzip header with the first byte asked for, not before.
type lazyGzip struct {
	src io.Reader
	z   *gzip.Reader
}

func (g *lazyGzip) Read(p []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(g.src)
		if err != nil {
			return 0, err
		}
		g.z = z
	}
	return g.z.Read(p)
}

// capped gives at most n bytes, then errTooLarge.
type capped struct {
	r io.Reader
	n int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.n <= 0 {
		var one [1]byte
		n, err := c.r.Read(one[:])
		if n > 0 {
			return 0, errTooLarge
		}
		return 0, err
	}
	if int64(len(p)) > c.n {
		p = p[:c.n]
	}
	n, err := c.r.Read(p)
	c.n -= int64(n)
	return n, err
}
