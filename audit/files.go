package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sealedFile is one sealed file of a log.
type sealedFile struct {
	path     string
	firstSeq uint64
}

// sealedSeq reads the first seq from a sealed file's name, 0 if it is none. prefix is what stands before the time, "" for
// any.
func sealedSeq(name, prefix string) uint64 {
	name, ok := strings.CutSuffix(strings.TrimSuffix(name, ".gz"), ".jsonl")
	i := strings.LastIndexByte(name, '-')
	if !ok || i < len(sealedTime) {
		return 0
	}
	at := i - len(sealedTime)
	if _, err := time.Parse(sealedTime, name[at:i]); err != nil || prefix != "" && name[:at] != prefix {
		return 0
	}
	seq, err := strconv.ParseUint(name[i+1:], 10, 63)
	if err != nil {
		return 0
	}
	return seq
}

// sealedPrefix is what the names of a live file's sealed files begin with.
func sealedPrefix(live string) string {
	return strings.TrimSuffix(filepath.Base(live), ".jsonl") + "-"
}

// sealedFiles lists the sealed files of a live file, oldest first. A file that is there plain and compressed counts once,
// plain.
func sealedFiles(live string) ([]sealedFile, error) {
	dir := filepath.Dir(live)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	prefix := sealedPrefix(live)
	var files []sealedFile
	for _, d := range entries {
		if seq := sealedSeq(d.Name(), prefix); seq != 0 {
			files = append(files, sealedFile{filepath.Join(dir, d.Name()), seq})
		}
	}
	slices.SortFunc(files, func(a, b sealedFile) int {
		return cmp.Or(cmp.Compare(a.firstSeq, b.firstSeq), cmp.Compare(a.path, b.path))
	})
	return slices.CompactFunc(files, func(a, b sealedFile) bool {
		return strings.TrimSuffix(a.path, ".gz") == strings.TrimSuffix(b.path, ".gz")
	}), nil
}

// Files lists the files of a log in the order of its chain: the sealed ones that are left, then the live one if it exists.
func Files(live string) ([]string, error) {
	sealed, err := sealedFiles(live)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range sealed {
		files = append(files, f.path)
	}
	if _, err := os.Stat(live); err == nil {
		files = append(files, live)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files, nil
}

// Order puts files of one chain in its order, whatever they are called: by the number of the first event, sealed names
// first, files without events last. A compressed copy beside its plain file is left out.
func Order(paths []string) ([]string, error) {
	type item struct {
		path string
		seq  uint64
	}
	var items []item
	for _, p := range paths {
		if plain, ok := strings.CutSuffix(p, ".gz"); ok && slices.Contains(paths, plain) {
			continue
		}
		seq := sealedSeq(filepath.Base(p), "")
		if seq == 0 {
			first, err := firstLink(p)
			switch {
			case err == nil:
				seq = first.seq
			case errors.Is(err, errNoEvent):
				seq = 1<<63 - 1
			default:
				return nil, err
			}
		}
		items = append(items, item{p, seq})
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.seq, b.seq) })
	out := make([]string, len(items))
	for i := range items {
		out[i] = items[i].path
	}
	return out, nil
}

// openLog opens a log file, decompressed if its first bytes say gzip.
func openLog(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s is a folder", path)
	}
	r := bufio.NewReaderSize(f, 256<<10)
	magic, err := r.Peek(2)
	if err != nil && err != io.EOF {
		f.Close()
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return readCloser{r, f}, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return readCloser{z, f}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

var errNoEvent = errors.New("no event in the first line")

// place is an event's place in the chain, with its own memory.
type place struct {
	seq              uint64
	typ, prev, hash  string
	time             string
	verified, isStop bool
}

// firstLink reads a file's first line.
func firstLink(path string) (place, error) {
	r, err := openLog(path)
	if err != nil {
		return place{}, err
	}
	defer r.Close()
	line, err := bufio.NewReaderSize(r, 2*MaxLine).ReadSlice('\n')
	if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
		return place{}, fmt.Errorf("%s: %w", path, err)
	}
	return placeOf(bytes.TrimSuffix(line, []byte{'\n'}))
}

// placeOf reads a line's place, and whether its own hash is right.
func placeOf(line []byte) (place, error) {
	k, ok := parseLink(line)
	if !ok {
		return place{}, errNoEvent
	}
	var h hasher
	return place{
		seq: k.seq, typ: string(k.typ), prev: string(k.prev), hash: string(k.hash), time: string(valueOf(line, `"time":"`, '"')),
		verified: bytes.Equal(h.of(k.body), k.hash), isStop: string(k.typ) == TypeStop,
	}, nil
}
