package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// end is where a log ended, and so where its chain goes on.
type end struct {
	seq  uint64 // 0: a new chain
	head string

	size      int64 // of the live file
	firstSeq  uint64
	firstTime time.Time

	torn       string // file with what was moved aside
	tornBytes  int64
	unfinished []string
}

// findEnd finishes what a crash interrupted (compressing, the last line) and reads the last whole event: of the live file,
// or of the newest sealed one if the crash came between two files.
func findEnd(live string, intents bool) (end, error) {
	e := end{head: zeroHash}
	if err := tidy(live); err != nil {
		return e, err
	}
	last, err := mendTail(live, &e)
	if err != nil {
		return e, err
	}
	if e.size > 0 {
		first, err := firstLink(live)
		if err != nil {
			return e, fmt.Errorf("%s: %w", live, err)
		}
		e.firstSeq = first.seq
		e.firstTime, _ = time.Parse(time.RFC3339, first.time)
	}
	if last == nil {
		sealed, err := sealedFiles(live)
		if err != nil {
			return e, err
		}
		if len(sealed) == 0 {
			return e, nil
		}
		if last, err = lastOf(sealed[len(sealed)-1].path); err != nil {
			return e, err
		}
	}
	e.seq, e.head = last.seq, last.hash
	if intents && e.size > 0 {
		if e.unfinished, err = unfinished(live); err != nil {
			return e, err
		}
	}
	return e, nil
}

// tidy removes half-written compressed files, and plain files whose compressed form is whole.
func tidy(live string) error {
	dir, prefix := filepath.Dir(live), sealedPrefix(live)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		remove := ""
		if name, ok := strings.CutSuffix(d.Name(), tempMark); ok && sealedSeq(name, prefix) != 0 {
			remove = d.Name()
		} else if name, ok := strings.CutSuffix(d.Name(), ".gz"); ok && sealedSeq(name, prefix) != 0 {
			// The compressed file got its name only after it was whole and on the disk.
			remove = name
		}
		if remove == "" {
			continue
		}
		if err := os.Remove(filepath.Join(dir, remove)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Reading backwards.
const (
	tailChunk = 64 << 10
	tailMost  = 64 << 20 // a torn end longer than that is not ours
)

// mendTail looks at the live file's end. A last line without its end is completed if it is a whole event, and otherwise
// moved to a file of its own. It returns the last event's place, nil if the file holds none.
func mendTail(live string, e *end) (*place, error) {
	f, err := os.OpenFile(live, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	tail, start, err := readTail(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", live, err)
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	if torn := tail[whole:]; len(torn) > 0 {
		if p, err := placeOf(torn); err == nil && p.verified {
			if _, err := f.WriteAt([]byte{'\n'}, size); err != nil {
				return nil, err
			}
			e.size = size + 1
			return &p, f.Sync()
		}
		e.tornBytes = int64(len(torn))
		if e.torn, err = saveTorn(filepath.Dir(live), torn); err != nil {
			return nil, err
		}
		if err := f.Truncate(start + int64(whole)); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
	}
	e.size = start + int64(whole)
	if whole == 0 {
		return nil, nil
	}
	lines := bytes.TrimSuffix(tail[:whole], []byte{'\n'})
	p, err := placeOf(lines[bytes.LastIndexByte(lines, '\n')+1:])
	if err != nil {
		return nil, fmt.Errorf("%s: the last line is not an event: look at it with `crawlgate audit verify`, then move the file away to begin a new chain", live)
	}
	return &p, nil
}

// readTail reads backwards until it holds a whole last line (two line ends) or the file's beginning.
func readTail(f io.ReaderAt, size int64) (tail []byte, start int64, err error) {
	for n := int64(tailChunk); ; n *= 4 {
		start = max(size-n, 0)
		tail = make([]byte, size-start)
		if _, err := f.ReadAt(tail, start); err != nil && err != io.EOF {
			return nil, 0, err
		}
		if start == 0 || bytes.Count(tail, []byte{'\n'}) >= 2 {
			return tail, start, nil
		}
		if n >= tailMost {
			return nil, 0, errors.New("no line ends in its last 64 MiB: not a log of this gate")
		}
	}
}

// saveTorn keeps an unfinished last line under a name of its own.
func saveTorn(dir string, torn []byte) (string, error) {
	name := "audit-torn-" + time.Now().UTC().Format(sealedTime)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(torn)
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = syncDir(dir)
	}
	return name, err
}

// lastOf reads the last event of a sealed file.
func lastOf(path string) (*place, error) {
	r, err := openLog(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var last []byte
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), tailMost)
	for lines.Scan() {
		last = append(last[:0], lines.Bytes()...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p, err := placeOf(last)
	if err != nil {
		return nil, fmt.Errorf("%s: the last line is not an event", path)
	}
	return &p, nil
}

// unfinished lists the ids of intents in a file whose request did not end, oldest first.
func unfinished(path string) ([]string, error) {
	r, err := openLog(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	open := map[string]bool{}
	var order []string
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), tailMost)
	for lines.Scan() {
		line := lines.Bytes()
		switch typ := string(valueOf(line, `"type":"`, '"')); typ {
		case TypeIntent:
			id := string(valueOf(line, `"id":"`, '"'))
			open[id] = true
			order = append(order, id)
		case TypeRequest, TypeRobots, TypeTunnel:
			delete(open, string(valueOf(line, `"id":"`, '"')))
		case TypeStart:
			// What an earlier start reported is not reported again.
			clear(open)
			order = order[:0]
		}
	}
	var ids []string
	for _, id := range order {
		if open[id] {
			ids = append(ids, id)
		}
	}
	return ids, lines.Err()
}

// newestCheckpoint finds the last checkpoint of a log: in the live file, read from its end, or in the newest sealed one,
// whose last line is one. Nil: there is none.
func newestCheckpoint(live string) (*signedHead, error) {
	line, err := lastCheckpointLine(live)
	if err != nil {
		return nil, err
	}
	if line == nil {
		sealed, err := sealedFiles(live)
		if err != nil || len(sealed) == 0 {
			return nil, err
		}
		if line, err = sealedCheckpointLine(sealed[len(sealed)-1].path); line == nil || err != nil {
			return nil, err
		}
	}
	e, err := Decode(line)
	if err != nil {
		return nil, err
	}
	return &signedHead{Head{Seq: e.Checkpoint.Seq, Head: e.Checkpoint.Head, Time: e.Time}, line}, nil
}

// checkpointStart is what the line of a checkpoint begins with.
const checkpointStart = `{"schema":"` + Schema + `","type":"` + TypeCheckpoint + `",`

func lastCheckpointLine(live string) ([]byte, error) {
	f, err := os.Open(live)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	for n := int64(tailChunk); ; n *= 4 {
		start := max(size-n, 0)
		tail := make([]byte, size-start)
		if _, err := f.ReadAt(tail, start); err != nil && err != io.EOF {
			return nil, err
		}
		// Quotes inside a string are escaped, so this is never part of another event.
		if i := bytes.LastIndex(tail, []byte(checkpointStart)); i >= 0 {
			line, _, _ := bytes.Cut(tail[i:], []byte{'\n'})
			return line, nil
		}
		if start == 0 || n >= tailMost {
			return nil, nil
		}
	}
}

func sealedCheckpointLine(path string) (last []byte, err error) {
	r, err := openLog(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), tailMost)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(checkpointStart)) {
			last = append(last[:0], lines.Bytes()...)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return last, nil
}
