package audit

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// opened is a log being read, decompressed.
type opened struct {
	io.Reader
	compression string
	raw         *countingReader
	closers     []func()
}

func (o *opened) Close() {
	for i := len(o.closers) - 1; i >= 0; i-- {
		o.closers[i]()
	}
	o.closers = nil
}

// countingReader counts what was read of a file as it lies on disk.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}

var magics = []struct {
	bytes       []byte
	compression string
}{
	{[]byte{0x1f, 0x8b}, "gzip"},
	{[]byte("BZh"), "bzip2"},
	{[]byte{0xfd, '7', 'z', 'X', 'Z', 0}, "xz"},
	{[]byte{0x28, 0xb5, 0x2f, 0xfd}, "zstd"},
}

// unpack reads a file that may be compressed; its first bytes tell, not its name.
func unpack(r io.Reader) (*opened, error) {
	o := &opened{raw: &countingReader{r: r}, compression: "none"}
	in := bufio.NewReaderSize(o.raw, 256<<10)
	head, err := in.Peek(6)
	if err != nil && err != io.EOF && len(head) == 0 {
		return nil, err
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, m.bytes) {
			o.compression = m.compression
		}
	}
	switch o.compression {
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			o.Reader = failingReader{err}
			return o, nil
		}
		o.Reader = z
	case "bzip2":
		o.Reader = bzip2.NewReader(in)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(256<<20))
		if err != nil {
			return nil, err
		}
		o.Reader = z
		o.closers = append(o.closers, z.Close)
	case "xz":
		if err := o.pipe(in, "xz", "-dc"); err != nil {
			return nil, err
		}
	default:
		o.Reader = in
	}
	return o, nil
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// pipe reads through a program. Its failure is a read error after the bytes it gave.
func (o *opened) pipe(in io.Reader, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("compressed with %s, and there is no program %s here: install it, or unpack the file first", name, name)
	}
	cmd := exec.Command(path, args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &programReader{cmd: cmd, out: out, said: &said}
	o.Reader = p
	o.closers = append(o.closers, p.stop)
	return nil
}

type programReader struct {
	cmd  *exec.Cmd
	out  io.ReadCloser
	said *bytes.Buffer
	err  error
}

func (p *programReader) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.out.Read(b)
	if err == nil {
		return n, nil
	}
	p.err = io.EOF
	if werr := p.cmd.Wait(); werr != nil {
		text := strings.TrimSpace(p.said.String())
		if text == "" {
			text = werr.Error()
		}
		p.err = errors.New(text)
	}
	return n, p.err
}

// stop ends a program that was not read to its end.
func (p *programReader) stop() {
	if p.err == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.err = io.EOF
	}
}

// open opens an input for one reading.
func (in *accessInput) open() (*opened, error) {
	if in.pre != nil {
		o := in.pre
		in.pre = nil
		return o, nil
	}
	if in.stdin != nil {
		o, err := unpack(in.stdin)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return o, nil
	}
	f, err := os.Open(in.path)
	if err != nil {
		return nil, err
	}
	o, err := unpack(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", in.path, err)
	}
	o.closers = append([]func(){func() { f.Close() }}, o.closers...)
	return o, nil
}
