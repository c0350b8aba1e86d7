package policy

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	tidyEvery = 24 * time.Hour
	// tidyTo is the share of the size bound, in percent, that remains after it was passed: else every store would tidy.
	tidyTo = 90
)

// kept is what tidy needs to know of a line.
type kept struct {
	key       uint64
	off       int64
	n         int
	effective time.Time
	end       time.Time // replaced then, or last in use then
	sha, good string
	bytes     int64
	current   bool // no later version of the file
	drop      bool
}

// tidy drops lines that a later one replaces, versions past the age, and, when the archive is too large, those that
// went out of use first. The index is written anew beside the old one and renamed, bodies go after that: a crash at any
// point leaves either index whole with all its bodies.
func (a *Archive) tidy(now time.Time) error {
	a.next = now.Add(tidyEvery)
	if err := os.WriteFile(filepath.Join(a.dir, tidiedName), nil, 0o600); err != nil {
		return err
	}
	lines, err := a.survey()
	if err != nil {
		return err
	}
	if a.maxAge > 0 {
		for i := range lines {
			if l := &lines[i]; !l.drop && now.Sub(l.end) > a.maxAge {
				l.drop = true
			}
		}
	}
	a.shrink(lines, now)
	if slices.ContainsFunc(lines, func(l kept) bool { return l.drop }) || len(lines) != a.lines {
		if err := a.rewrite(lines); err != nil {
			return err
		}
	}
	return a.sweep(lines)
}

// survey reads the index: which lines are replaced by a later reading of the same version, and when each version ended.
func (a *Archive) survey() ([]kept, error) {
	var lines []kept
	lastOf := make(map[uint64]int)
	_, err := scanIndex(a.index, func(v *Version, off int64, n int) {
		l := kept{
			key: hashKey(v.URL, v.Agent), off: off, n: n, effective: v.Effective, end: v.Until,
			sha: v.SHA256, bytes: v.Bytes, current: true,
		}
		if v.Good != nil {
			l.good = v.Good.SHA256
		}
		if i, ok := lastOf[l.key]; ok {
			before := &lines[i]
			before.current = false
			if before.effective.Equal(l.effective) && before.sha == l.sha {
				before.drop = true
				l.bytes = max(l.bytes, before.bytes)
			} else {
				before.end = l.effective
			}
		}
		lastOf[l.key] = len(lines)
		lines = append(lines, l)
	})
	return lines, err
}

// shrink marks lines to drop until what is left fits: replaced versions first, then those that are out of use longest.
func (a *Archive) shrink(lines []kept, now time.Time) {
	uses := make(map[string]int)
	sizes := make(map[string]int64)
	total := int64(0)
	add := func(sha string, n int64) {
		if sha == "" {
			return
		}
		if uses[sha]++; n > sizes[sha] {
			total += n - sizes[sha]
			sizes[sha] = n
		}
	}
	for i := range lines {
		if l := &lines[i]; !l.drop {
			add(l.sha, l.bytes)
			add(l.good, 0)
			total += int64(l.n)
		}
	}
	defer func() {
		a.bodies = 0
		for sha, n := range uses {
			if n > 0 {
				a.bodies += sizes[sha]
			}
		}
	}()
	if a.maxBytes <= 0 || total <= a.maxBytes {
		return
	}
	order := make([]int, 0, len(lines))
	for i := range lines {
		if !lines[i].drop {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		x, y := &lines[i], &lines[j]
		if x.current != y.current {
			return cmp.Compare(b2i(x.current), b2i(y.current))
		}
		return x.end.Compare(y.end)
	})
	free := func(sha string) {
		if sha == "" {
			return
		}
		if uses[sha]--; uses[sha] == 0 {
			total -= sizes[sha]
		}
	}
	for _, i := range order {
		if total <= a.maxBytes/100*tidyTo {
			return
		}
		l := &lines[i]
		l.drop = true
		total -= int64(l.n)
		free(l.sha)
		free(l.good)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rewrite puts an index of the kept lines in the place of the old one.
func (a *Archive) rewrite(lines []kept) error {
	path := filepath.Join(a.dir, indexName)
	last := make(map[uint64]int64)
	size, count := int64(0), 0
	err := writeSynced(a.dir, path, func(w io.Writer) error {
		for i := range lines {
			l := &lines[i]
			if l.drop {
				continue
			}
			if _, err := io.Copy(w, io.NewSectionReader(a.index, l.off, int64(l.n))); err != nil {
				return err
			}
			last[l.key] = size
			size += int64(l.n)
			count++
		}
		return nil
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = a.index.Close()
	a.index, a.size, a.lines, a.last = f, size, count, last
	return err
}

// sweep removes bodies that no kept line names, and what a crash left half written.
func (a *Archive) sweep(lines []kept) error {
	named := make(map[string]bool)
	for i := range lines {
		if l := &lines[i]; !l.drop {
			named[l.sha], named[l.good] = true, true
		}
	}
	var errs []error
	walk := filepath.WalkDir(filepath.Join(a.dir, bodiesName), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := d.Name()
		if strings.HasPrefix(name, tmpPrefix) || !named[strings.TrimSuffix(name, ".txt")] {
			errs = append(errs, os.Remove(path))
		}
		return nil
	})
	return errors.Join(append(errs, walk)...)
}

// leftovers are files that a crash left in the archive's folder.
func leftovers(dir string) []string {
	found, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	if err != nil {
		return nil
	}
	return found
}
