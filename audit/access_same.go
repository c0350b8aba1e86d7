package audit

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"hash/maphash"
	"io"
	"sync"
)

const (
	headBytes    = 64 << 10
	overlapLines = 10_000
)

// compareInputs opens every input once, so that an unreadable one is known before the work begins, and finds what
// would count double: equal files and, if asked for, overlaps of rotated ones.
func (a *auditor) compareInputs(ctx context.Context) error {
	type head = [sha256.Size]byte
	same := map[head][]*accessInput{}
	sums := map[*accessInput]head{}
	for _, in := range a.inputs {
		o, err := in.open()
		if err != nil {
			return err
		}
		in.compression = o.compression
		if in.stream {
			in.pre = o
			continue
		}
		h := sha256.New()
		n, err := io.CopyN(h, o, headBytes)
		whole := errors.Is(err, io.EOF)
		o.Close()
		if n == 0 || err != nil && !whole {
			continue // empty, or cut short: never equal to another
		}
		var k head
		h.Sum(k[:0])
		for _, other := range same[k] {
			equal := whole
			if !whole {
				x, ok1 := a.sumOf(ctx, other, sums)
				y, ok2 := a.sumOf(ctx, in, sums)
				equal = ok1 && ok2 && x == y
			}
			if equal {
				in.skipped = "duplicate of " + other.path
				break
			}
		}
		if in.skipped == "" {
			same[k] = append(same[k], in)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if a.o.Dedupe == "overlap" {
		return a.findOverlaps(ctx)
	}
	return nil
}

// sumOf hashes a whole input; ok is false when it can not be read to its end.
func (a *auditor) sumOf(ctx context.Context, in *accessInput, sums map[*accessInput][sha256.Size]byte) (sum [sha256.Size]byte, ok bool) {
	if sum, ok = sums[in]; ok {
		return sum, true
	}
	o, err := in.open()
	if err != nil {
		return sum, false
	}
	defer o.Close()
	h := sha256.New()
	if _, err := io.Copy(h, ctxReader{ctx, o}); err != nil {
		return sum, false
	}
	h.Sum(sum[:0])
	sums[in] = sum
	return sum, true
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// findOverlaps finds, for each file of a family, how many of its first lines are the last ones of the file before it
// (copytruncate).
func (a *auditor) findOverlaps(ctx context.Context) error {
	var before *accessInput
	seed := maphash.MakeSeed()
	for _, in := range a.inputs {
		if in.skipped != "" || in.stream {
			continue
		}
		if before != nil && before.family == in.family {
			tail, err := lineHashes(ctx, before, seed, false)
			if err != nil {
				return err
			}
			start, err := lineHashes(ctx, in, seed, true)
			if err != nil {
				return err
			}
			in.overlap = longestOverlap(tail, start)
		}
		before = in
	}
	return nil
}

// lineHashes hashes the first or the last lines of an input. A cut-short input gives what can be read.
func lineHashes(ctx context.Context, in *accessInput, seed maphash.Seed, first bool) ([]uint64, error) {
	o, err := in.open()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	r := bufio.NewReaderSize(ctxReader{ctx, o}, 256<<10)
	var hashes []uint64
	var h maphash.Hash
	h.SetSeed(seed)
	for {
		h.Reset()
		n, end, err := hashLine(r, &h)
		if end && n == 0 || err != nil {
			break
		}
		hashes = append(hashes, h.Sum64())
		if first && len(hashes) == overlapLines {
			break
		}
		if !first && len(hashes) >= 2*overlapLines {
			hashes = append(hashes[:0], hashes[len(hashes)-overlapLines:]...)
		}
		if end {
			break
		}
	}
	if len(hashes) > overlapLines {
		hashes = hashes[len(hashes)-overlapLines:]
	}
	return hashes, ctx.Err()
}

// hashLine hashes one line without its end, however long it is.
func hashLine(r *bufio.Reader, h *maphash.Hash) (n int, end bool, err error) {
	held := false // a CR that may belong to the line's end
	for {
		part, rerr := r.ReadSlice('\n')
		n += len(part)
		done := len(part) > 0 && part[len(part)-1] == '\n'
		if done {
			part = part[:len(part)-1]
		}
		if held && len(part) > 0 {
			_ = h.WriteByte('\r')
			held = false
		}
		if len(part) > 0 && part[len(part)-1] == '\r' {
			part, held = part[:len(part)-1], true
		}
		_, _ = h.Write(part)
		switch {
		case done:
			return n, false, nil
		case rerr == io.EOF:
			return n, true, nil
		case rerr != nil && !errors.Is(rerr, bufio.ErrBufferFull):
			return n, true, rerr
		}
	}
}

// longestOverlap is the largest n with the last n of a equal to the first n of b (Knuth, Morris, Pratt).
func longestOverlap(a, b []uint64) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	fail := make([]int, len(b))
	for i, k := 1, 0; i < len(b); i++ {
		for k > 0 && b[i] != b[k] {
			k = fail[k-1]
		}
		if b[i] == b[k] {
			k++
		}
		fail[i] = k
	}
	k := 0
	for _, x := range a {
		if k == len(b) {
			k = fail[k-1]
		}
		for k > 0 && x != b[k] {
			k = fail[k-1]
		}
		if x == b[k] {
			k++
		}
	}
	return k
}

// lineCounts counts equal lines: in all files together a line counts as often as in the one that has it most often.
// It needs memory for every distinct line.
type lineCounts struct {
	seeds  [2]maphash.Seed
	shards [64]lineShard
}

type lineShard struct {
	sync.Mutex
	lines map[[2]uint64]lineCount
}

type lineCount struct{ file, here, most int32 }

func newLineCounts() *lineCounts {
	c := &lineCounts{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	for i := range c.shards {
		c.shards[i].lines = map[[2]uint64]lineCount{}
	}
	return c
}

// add counts a line of a file; it is false when the line counted already. Files come one after the other.
func (c *lineCounts) add(file int32, line []byte) bool {
	k := [2]uint64{maphash.Bytes(c.seeds[0], line), maphash.Bytes(c.seeds[1], line)}
	s := &c.shards[k[0]%uint64(len(c.shards))]
	s.Lock()
	defer s.Unlock()
	n, seen := s.lines[k]
	if !seen || n.file != file {
		n.file, n.here = file, 0
	}
	n.here++
	fresh := n.here > n.most
	if fresh {
		n.most = n.here
	}
	s.lines[k] = n
	return fresh
}
