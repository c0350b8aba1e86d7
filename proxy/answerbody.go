package proxy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// keptAnswer is an answer that was found: its head, and its body open.
type keptAnswer struct {
	s    *Answers
	e    *answerEntry
	head *answerHead
	body *os.File
}

// verifyBefore is how large a body is read through before the site is asked; a larger one is checked as it passes.
const verifyBefore = 1 << 20

var (
	errAnswerDamaged = errors.New("a kept answer is damaged")
	errOtherAnswer   = errors.New("a kept answer to another request")
)

// readHead reads an entry's head.
func (s *Answers) readHead(e *answerEntry) (*answerHead, error) {
	head, err := readBounded(s.path(e, ".head"), maxAnswerHead)
	if err != nil {
		return nil, err
	}
	return parseAnswerHead(head)
}

// open opens an entry's files, if its head matches, and checks them.
func (s *Answers) open(e *answerEntry, matches func(*answerHead) bool) (*keptAnswer, error) {
	a := &keptAnswer{s: s, e: e}
	var err error
	if a.head, err = s.readHead(e); err != nil {
		return nil, err
	}
	if !matches(a.head) {
		return nil, errOtherAnswer
	}
	if a.body, err = os.Open(s.path(e, ".body")); err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// check compares the body with what the head says of it.
func (a *keptAnswer) check() error {
	info, err := a.body.Stat()
	if err != nil {
		return err
	}
	if info.Size() != a.head.length {
		return fmt.Errorf("%w: it has %d bytes and not %d", errAnswerDamaged, info.Size(), a.head.length)
	}
	if a.head.length > verifyBefore {
		return nil
	}
	r := a.reader()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		if _, err := r.Read(*buf); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	_, err = a.body.Seek(0, io.SeekStart)
	return err
}

func (a *keptAnswer) close() { _ = a.body.Close() }

// reader gives the body. Its last piece is held back until the whole has proved to be what was kept; else the reader
// fails there, and the fetcher sees a body that breaks off.
func (a *keptAnswer) reader() *keptReader {
	return &keptReader{a: a, left: a.head.length, sum: sha256.New()}
}

type keptReader struct {
	a    *keptAnswer
	left int64
	sum  hash.Hash
}

// Read reads on.
func (r *keptReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.a.body.Read(p[:min(int64(len(p)), r.left)])
	r.sum.Write(p[:n])
	if r.left -= int64(n); r.left == 0 && [32]byte(r.sum.Sum(nil)) != r.a.head.sum {
		return 0, r.damaged(errors.New("its digest differs"))
	}
	if err != nil && r.left > 0 {
		return 0, r.damaged(err)
	}
	return n, nil
}

func (r *keptReader) damaged(err error) error {
	r.a.s.drop(r.a.e)
	return fmt.Errorf("%w: %w", errAnswerDamaged, err)
}

// Close closes the body.
func (r *keptReader) Close() error { return r.a.body.Close() }

// checked notes on the file that the site has just confirmed the answer: a start then knows what was used last.
func (s *Answers) checked(e *answerEntry) {
	now := time.Now()
	if err := os.Chtimes(s.path(e, ".head"), now, now); err != nil && !s.replaced(e) {
		s.fault("use of a kept answer not noted", err)
	}
}

// update writes an entry's head anew, unless it is no longer kept.
func (s *Answers) update(e *answerEntry, h *answerHead) error {
	tmp, size, err := s.writeHead(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.elem == nil {
		return os.Remove(tmp)
	}
	if err := os.Rename(tmp, s.path(e, ".head")); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	size = onDisk(size) + onDisk(h.length)
	s.size += size - e.size
	e.size = size
	return nil
}

// writeHead writes a head aside.
func (s *Answers) writeHead(h *answerHead) (tmp string, size int64, err error) {
	text := h.encode()
	if len(text) > maxAnswerHead {
		return "", 0, errAnswerHead
	}
	tmp = s.aside(strconv.FormatUint(s.nextGen(), 16) + ".head")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		_ = os.Remove(tmp)
		return "", 0, err
	}
	return tmp, int64(len(text)), nil
}

// nextGen gives a number that no file has: the time, or one more than the last.
func (s *Answers) nextGen() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen = max(s.gen+1, uint64(time.Now().UnixNano()))
	return s.gen
}

// keeper writes an answer's body as it passes to the fetcher. A fault of the disk ends the keeping and nothing else.
type keeper struct {
	s    *Answers
	head *answerHead
	file *os.File // made with the first piece that does not fit the buffer
	tmp  string
	buf  *[]byte
	n    int // in the buffer
	sum  hash.Hash
	held int64 // bytes reserved
	over bool
}

// keep begins to keep an answer; length is -1 where it is not known. nil: it is too large.
func (s *Answers) keep(h *answerHead, length int64) *keeper {
	if length > s.largest {
		return nil
	}
	return &keeper{s: s, head: h, buf: buffers.Get().(*[]byte), sum: sha256.New()}
}

// write takes the next piece.
func (k *keeper) write(p []byte) {
	if k.over {
		return
	}
	if k.head.length += int64(len(p)); k.head.length > k.s.largest {
		k.abandon()
		return
	}
	k.sum.Write(p)
	for len(p) > 0 {
		if k.n == len(*k.buf) && !k.flush() {
			return
		}
		n := copy((*k.buf)[k.n:], p)
		k.n, p = k.n+n, p[n:]
	}
}

// flush writes the buffer to the file.
func (k *keeper) flush() bool {
	err := k.create()
	if err == nil {
		k.s.reserve(int64(k.n))
		k.held += int64(k.n)
		_, err = k.file.Write((*k.buf)[:k.n])
		k.n = 0
	}
	if err != nil {
		k.s.fault("answer not kept", err)
		k.abandon()
		return false
	}
	return true
}

func (k *keeper) create() (err error) {
	if k.file != nil {
		return nil
	}
	k.tmp = k.s.aside(strconv.FormatUint(k.s.nextGen(), 16) + ".body")
	k.file, err = os.OpenFile(k.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// abandon drops what was written.
func (k *keeper) abandon() {
	if k.over {
		return
	}
	k.over = true
	buffers.Put(k.buf)
	if k.file != nil {
		_ = k.file.Close()
		_ = os.Remove(k.tmp)
	}
	k.s.reserve(-k.held)
}

// done puts the answer, which came whole, into the store, and reports whether it is there.
func (k *keeper) done() bool {
	if k.over || !k.flush() {
		return false
	}
	k.over = true
	buffers.Put(k.buf)
	copy(k.head.sum[:], k.sum.Sum(nil))
	err := k.file.Close()
	if err == nil {
		err = k.s.place(k.head, k.tmp, k.held)
	}
	if err != nil {
		k.s.reserve(-k.held)
		_ = os.Remove(k.tmp)
		k.s.fault("answer not kept", err)
	}
	return err == nil
}

// place gives the files of a new answer their names and enters it, in place of the bytes that were held for it.
func (s *Answers) place(h *answerHead, body string, held int64) error {
	head, size, err := s.writeHead(h)
	if err != nil {
		return err
	}
	e := &answerEntry{url: urlKey(h.url), owner: ownerKey(h.owner), key: h.key, gen: s.nextGen(), size: onDisk(size) + onDisk(h.length)}
	to := s.path(e, ".body")
	err = os.Rename(body, to)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.Rename(body, to)
		}
	}
	if err == nil {
		err = os.Rename(head, s.path(e, ".head"))
	}
	if err != nil {
		_ = os.Remove(head)
		_ = os.Remove(to)
		return err
	}
	s.mu.Lock()
	s.size += e.size - held
	gone := append(s.add(e), s.shrink()...)
	s.mu.Unlock()
	s.unlink(gone)
	return nil
}
