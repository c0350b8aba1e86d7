package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// accessInput is one log to read, and what came of it.
type accessInput struct {
	path   string
	stdin  io.Reader
	info   fs.FileInfo
	stream bool // standard input, FIFO: can be read once
	pre    *opened

	family string
	rank   []int64 // order inside the family

	compression string
	format      *logFormat
	skipped     string
	err         error // the input was cut short or could not be decoded
	overlap     int   // lines at its start that end the file before
}

// listInputs turns arguments into files in the order of reading: by family, in it the oldest first. The same file under
// two names counts once.
func listInputs(args []string, stdin io.Reader) ([]*accessInput, error) {
	var all []*accessInput
	for _, arg := range args {
		if arg == "-" {
			if stdin == nil {
				return nil, errors.New("no standard input to read")
			}
			if !slices.ContainsFunc(all, func(in *accessInput) bool { return in.stdin != nil }) {
				all = append(all, &accessInput{path: "-", stdin: stdin, stream: true, family: "-"})
			}
			continue
		}
		paths := []string{arg}
		st, err := os.Stat(arg)
		switch {
		case err == nil && st.IsDir():
			if paths, err = folderFiles(arg); err != nil {
				return nil, err
			}
		case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?["):
			if paths, err = filepath.Glob(arg); err != nil {
				return nil, fmt.Errorf("%s: %w", arg, err)
			}
			if len(paths) == 0 {
				return nil, fmt.Errorf("%s matches no file", arg)
			}
			paths = slices.DeleteFunc(paths, func(p string) bool {
				st, err := os.Stat(p)
				return err == nil && st.IsDir()
			})
		case err != nil:
			return nil, err
		}
		for _, p := range paths {
			in := &accessInput{path: p}
			if in.info, err = os.Stat(p); err != nil {
				return nil, err
			}
			switch mode := in.info.Mode(); {
			case mode.IsRegular():
			case mode&fs.ModeNamedPipe != 0:
				in.stream = true
			default:
				return nil, fmt.Errorf("%s is neither a file, a folder nor a pipe", p)
			}
			in.family, in.rank = familyOf(p)
			all = append(all, in)
		}
	}
	slices.SortFunc(all, func(a, b *accessInput) int {
		return cmp.Or(cmp.Compare(a.family, b.family), slices.Compare(a.rank, b.rank), cmp.Compare(a.path, b.path))
	})
	var out []*accessInput
	for _, in := range all {
		same := func(o *accessInput) bool { return in.info != nil && o.info != nil && os.SameFile(in.info, o.info) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, in)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no log to read")
	}
	return out, nil
}

// folderFiles lists the files of a folder, not the hidden ones and not those of folders in it.
func folderFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s holds no files", dir)
	}
	return paths, nil
}

var (
	packedSuffix = regexp.MustCompile(`\.(gz|bz2|xz|zst|zstd|z|Z)$`)
	numberSuffix = regexp.MustCompile(`^(.+)\.(\d{1,6})$`)
	dateSuffix   = regexp.MustCompile(`^(.+?)[-._](\d{4})-?(\d{2})-?(\d{2})(?:[-_.T]?(\d{2}|\d{4}|\d{6}|\d{9,11}))?(\.log|\.txt|\.jsonl?)?$`)
)

// familyOf splits a path into what rotated files of one log share, and the place among them: dates ascending, then
// numbers descending, the live file last.
func familyOf(path string) (family string, rank []int64) {
	dir, name := filepath.Split(filepath.Clean(path))
	name = packedSuffix.ReplaceAllString(name, "")
	const dated, numbered, live = 0, 1, 2
	kind, date, clock, number := int64(live), int64(0), int64(0), int64(0)
	if m := numberSuffix.FindStringSubmatch(name); m != nil {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		name, kind, number = m[1], numbered, -n
	}
	if m := dateSuffix.FindStringSubmatch(name); m != nil && validDate(m[2], m[3], m[4]) {
		date, _ = strconv.ParseInt(m[2]+m[3]+m[4], 10, 64)
		if m[5] != "" {
			clock, _ = strconv.ParseInt(m[5], 10, 64)
		}
		name, kind = m[1]+m[6], dated
	}
	return dir + name, []int64{kind, date, clock, number}
}

func validDate(y, m, d string) bool {
	atoi := func(s string) int { n, _ := strconv.Atoi(s); return n }
	_, ok := unixDay(atoi(y), atoi(m), atoi(d))
	return ok
}

// forget closes what was opened and never read.
func (in *accessInput) forget() {
	if in.pre != nil {
		in.pre.Close()
		in.pre = nil
	}
}
