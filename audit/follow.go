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

// Follow gives the chosen events that are written to a live file from now on, also across rotation, until ctx ends (then
// nil) or f fails.
func Follow(ctx context.Context, live string, q Query, f func(Record) error) error {
	var file *os.File
	defer func() {
		if file != nil {
			file.Close()
		}
	}()
	var lines *lineReader
	fromEnd := true
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if file == nil {
			next, err := os.Open(live)
			switch {
			case err == nil:
				file, lines = next, &lineReader{r: next}
				if fromEnd {
					if _, err := file.Seek(0, io.SeekEnd); err != nil {
						return err
					}
				}
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
			fromEnd = false
		}
		if file != nil {
			// Whether the name means another file by now is asked before reading to the end, so that nothing is missed.
			moved := isMoved(file, live)
			if err := lines.each(func(line []byte) error {
				e, err := Decode(line)
				if err != nil || !q.Match(e) {
					return nil
				}
				return f(Record{Event: e, Line: bytes.Clone(line), File: live})
			}); err != nil {
				return err
			}
			if moved {
				file.Close()
				file = nil
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
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
