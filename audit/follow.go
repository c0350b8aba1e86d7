package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Head is the end of a log as a file shows it.
type Head struct {
	Seq  uint64    `json:"seq"`
	Head string    `json:"head"`
	Time time.Time `json:"time"`
	File string    `json:"file"`
}

// ReadHead reads the last whole event of a log without touching it; an error that wraps fs.ErrNotExist says that there is
// no log.
func ReadHead(live string) (Head, error) {
	p, path, err := readHead(live)
	if err != nil {
		return Head{}, err
	}
	if !p.verified {
		return Head{}, fmt.Errorf("%s: the last event does not have the hash it names", path)
	}
	at, _ := time.Parse(time.RFC3339, p.time)
	return Head{Seq: p.seq, Head: p.hash, Time: at, File: path}, nil
}

func readHead(live string) (*place, string, error) {
	f, err := os.Open(live)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	if err == nil {
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return nil, "", err
		}
		tail, _, err := readTail(f, st.Size())
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", live, err)
		}
		if whole := bytes.LastIndexByte(tail, '\n'); whole >= 0 {
			p, err := placeOf(tail[bytes.LastIndexByte(tail[:whole], '\n')+1 : whole])
			if err != nil {
				return nil, "", fmt.Errorf("%s: the last line is not an event", live)
			}
			return &p, live, nil
		}
	}
	sealed, serr := sealedFiles(live)
	if serr != nil || len(sealed) == 0 {
		return nil, "", fmt.Errorf("%s: %w", live, fs.ErrNotExist)
	}
	last := sealed[len(sealed)-1].path
	p, err := lastOf(last)
	return p, last, err
}

// followEvery is how often a followed file is looked at.
const followEvery = 250 * time.Millisecond

// Follow gives the chosen events that are written to a live file after the one numbered q.After (0: from now on), also
// across rotations, until ctx ends (then nil) or f fails. q.Limit counts for nothing.
func Follow(ctx context.Context, live string, q Query, f func(Record) error) error {
	last := q.After // number of the newest event seen
	if last == 0 {
		h, _, err := readHead(live)
		switch {
		case err == nil:
			last = h.seq
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := followFile(ctx, tick, live, &last, &q, f); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		// Files that came and were sealed since: what they hold beyond the last event seen.
		sealed, err := sealedFiles(live)
		if err != nil {
			return err
		}
		for i, s := range sealed {
			if i+1 < len(sealed) && sealed[i+1].firstSeq <= last+1 {
				continue
			}
			err := eachLine(s.path, func(line []byte) error { return take(line, s.path, &last, &q, f) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // being compressed: the next round finds it
				return err
			}
		}
	}
}

// take gives one line on if it is newer than the last and chosen.
func take(line []byte, path string, last *uint64, q *Query, f func(Record) error) error {
	k, ok := parseLink(line)
	if !ok || k.seq <= *last {
		return nil
	}
	*last = k.seq
	e, err := Decode(line)
	if err != nil || !q.Match(e) {
		return nil
	}
	return f(Record{Event: e, Line: bytes.Clone(line), File: path})
}

func eachLine(path string, f func([]byte) error) error {
	r, err := openLog(path)
	if err != nil {
		return err
	}
	defer r.Close()
	return (&lineReader{r: r}).each(f)
}

// followFile reads the live file as it grows, until its name means another one.
func followFile(ctx context.Context, tick *time.Ticker, live string, last *uint64, q *Query, f func(Record) error) error {
	var file *os.File
	for file == nil {
		next, err := os.Open(live)
		switch {
		case err == nil:
			file = next
		case !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
	}
	defer file.Close()
	// Not the live one that follows the last event: files were sealed meanwhile.
	if first, err := firstLink(live); err == nil && first.seq > *last+1 {
		if sealed, err := sealedFiles(live); err == nil && len(sealed) > 0 && sealed[len(sealed)-1].firstSeq > *last {
			return nil
		}
	}
	lines := &lineReader{r: file}
	for {
		// Whether the name means another file by now is asked before reading to the end, so that nothing is missed.
		moved := isMoved(file, live)
		if err := lines.each(func(line []byte) error { return take(line, live, last, q, f) }); err != nil || moved {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// isMoved tells whether a name no longer means the open file, or the file was cut.
func isMoved(f *os.File, name string) bool {
	here, err := f.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(name)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return !os.SameFile(here, there) || err == nil && here.Size() < at
}

// lineReader gives the whole lines that a growing file has, and keeps the begun one.
type lineReader struct {
	r    io.Reader
	left []byte
}

func (l *lineReader) each(f func([]byte) error) error {
	r := bufio.NewReader(l.r)
	for {
		part, err := r.ReadSlice('\n')
		l.left = append(l.left, part...)
		switch {
		case err == nil:
			line := bytes.TrimSuffix(l.left, []byte{'\n'})
			if err := f(line); err != nil {
				return err
			}
			l.left = l.left[:0]
		case errors.Is(err, bufio.ErrBufferFull):
			if len(l.left) > 1<<20 {
				l.left = l.left[:0]
			}
		case err == io.EOF:
			return nil
		default:
			return err
		}
	}
}
