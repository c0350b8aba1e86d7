package policy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// load reads the index from the start.
func (a *Archive) load() error {
	a.last, a.lines, a.size, a.bodies = make(map[uint64]int64), 0, 0, 0
	seen := make(map[string]bool)
	end, err := eachLine(a.index, func(line []byte, off int64) {
		b, ok := glance(line)
		if !ok {
			return
		}
		a.last[hashKey(b.url, b.agent)] = off
		a.lines++
		if b.sha != "" && !seen[b.sha] {
			seen[b.sha] = true
			a.bodies += b.bytes
		}
	})
	if err != nil {
		return err
	}
	if err := a.index.Truncate(end); err != nil {
		return err
	}
	a.size = end
	return nil
}

// brief is what load needs of a line.
type brief struct {
	url, agent, sha string
	bytes           int64
}

// glance reads a line as store writes it, in a tenth of the time that JSON takes: a start must not wait for an index of
// 100,000 lines. A line that looks otherwise is read as JSON. Whoever uses a line reads all of it, and checks it.
func glance(line []byte) (b brief, ok bool) {
	if i := bytes.Index(line, []byte(`,"good":`)); i >= 0 {
		line = line[:i]
	}
	text := func(key string) (string, bool) {
		i := bytes.Index(line, []byte(key))
		if i < 0 {
			return "", false
		}
		rest := line[i+len(key):]
		j := bytes.IndexByte(rest, '"')
		if j < 0 || bytes.IndexByte(rest[:j], '\\') >= 0 {
			return "", false
		}
		return string(rest[:j]), true
	}
	var ok1, ok2, ok3 bool
	b.url, ok1 = text(`"url":"`)
	b.agent, ok2 = text(`"agent":"`)
	b.sha, ok3 = text(`"sha256":"`)
	if !ok1 || !ok2 || !ok3 || !bytes.HasPrefix(line, []byte(`{"host":"`)) {
		var v Version
		if json.Unmarshal(line, &v) != nil || !v.valid() {
			return b, false
		}
		return brief{v.URL, v.Agent, v.SHA256, v.Bytes}, true
	}
	if i := bytes.Index(line, []byte(`"bytes":`)); i >= 0 {
		for _, c := range line[i+len(`"bytes":`):] {
			if c < '0' || c > '9' || b.bytes > 1<<40 {
				break
			}
			b.bytes = b.bytes*10 + int64(c-'0')
		}
	}
	return b, true
}

// eachLine calls f for each whole line, and returns where the last whole line ends. f must not keep the line.
func eachLine(r io.ReaderAt, f func(line []byte, off int64)) (end int64, err error) {
	br := bufio.NewReaderSize(io.NewSectionReader(r, 0, 1<<62), 64<<10)
	var long []byte
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		f(line, end)
		end += int64(len(line))
		long = long[:0]
	}
}

// scanIndex calls f for each whole line that is a version, and returns where the last whole line ends. Lines that are
// no version are passed over: a disk may have damaged them, and the others are still good.
func scanIndex(r io.ReaderAt, f func(v *Version, off int64, n int)) (end int64, err error) {
	return eachLine(r, func(line []byte, off int64) {
		var v Version
		if json.Unmarshal(line, &v) == nil && v.valid() {
			f(&v, off, len(line))
		}
	})
}

// hashKey is FNV-1a; a collision is noticed when the line is read.
func hashKey(url, agent string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{url, "\n", agent} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	return h
}
