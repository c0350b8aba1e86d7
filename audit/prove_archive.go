package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archiveLine is one line of an archive's index: what a reading of one robots.txt found.
type archiveLine struct {
	URL        string       `json:"url"`
	Agent      string       `json:"agent"`
	Class      string       `json:"class"`
	SHA256     string       `json:"sha256"`
	HTTPStatus int          `json:"http_status"`
	Effective  time.Time    `json:"effective"` // first seen
	Fetched    time.Time    `json:"fetched"`   // last read or confirmed
	Good       *archiveLine `json:"good"`
}

// Classes of an index line.
const (
	archiveFile          = "no_match"
	archiveNone          = "no_robots"
	archiveManyRedirects = "robots_too_many_redirects"
	archiveUnreachable   = "robots_unreachable"
	archiveRateLimited   = "robots_rate_limited"
)

// failed tells whether the file could not be read.
func (l *archiveLine) failed() bool {
	return l.Class != archiveFile && l.Class != archiveNone && l.Class != archiveManyRedirects
}

// same tells whether two lines found the same.
func (l *archiveLine) same(m *archiveLine) bool {
	return l.Class == m.Class && l.SHA256 == m.SHA256 && l.HTTPStatus == m.HTTPStatus
}

// proofArchive is the robots.txt archive of a gate, only read: the gate may be running.
type proofArchive struct {
	dir    string
	lines  map[string][]*archiveLine // URL, line feed, agent: in the order they were read
	bodies map[string]archivedBody
}

type archivedBody struct {
	body []byte
	err  error
}

// Errors of a body.
var (
	errBodyMissing = errors.New("the body is not in the archive")
	errBodyDiffers = errors.New("the archived body is not the one of its name")
)

// readProofArchive reads the index. No archive is one without lines: a gate that read no rules has none.
func readProofArchive(dir string) (*proofArchive, error) {
	a := &proofArchive{dir: dir, lines: map[string][]*archiveLine{}, bodies: map[string]archivedBody{}}
	f, err := os.Open(filepath.Join(dir, "index.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("robots archive: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			break // a line that is being written counts as not there: nothing was judged by it yet
		}
		if err != nil {
			return nil, fmt.Errorf("robots archive: %w", err)
		}
		l := &archiveLine{}
		if json.Unmarshal(bytes.TrimSpace(line), l) != nil || l.URL == "" || l.Fetched.IsZero() {
			continue
		}
		key := l.URL + "\n" + l.Agent
		if l.Good != nil && !slices.ContainsFunc(a.lines[key], func(b *archiveLine) bool { return b.same(l.Good) && b.Fetched.Equal(l.Good.Fetched) }) {
			a.lines[key] = append(a.lines[key], l.Good)
		}
		a.lines[key] = append(a.lines[key], l)
	}
	for _, lines := range a.lines {
		slices.SortStableFunc(lines, func(a, b *archiveLine) int { return cmp.Compare(a.Fetched.UnixNano(), b.Fetched.UnixNano()) })
	}
	return a, nil
}

// body gives an archived body whose hash is right.
func (a *proofArchive) body(sha string) ([]byte, error) {
	if b, ok := a.bodies[sha]; ok {
		return b.body, b.err
	}
	var b archivedBody
	if len(sha) != 64 || strings.Trim(sha, "0123456789abcdef") != "" {
		b.err = errBodyMissing
	} else if text, err := os.ReadFile(filepath.Join(a.dir, "bodies", sha[:2], sha+".txt")); err != nil {
		b.err = errBodyMissing
	} else if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != sha {
		b.err = errBodyDiffers
	} else {
		b.body = text
	}
	if len(a.bodies) >= 1024 {
		clear(a.bodies)
	}
	a.bodies[sha] = b
	return b.body, b.err
}

// read finds the reading that an event names: its content, and its moment within the time that this content held.
func (a *proofArchive) read(key string, r *Robots) *archiveLine {
	at := r.FetchedAt.UnixMilli()
	for _, l := range slices.Backward(a.lines[key]) {
		if l.SHA256 == r.SHA256 && (r.SHA256 != "" || l.HTTPStatus == r.Status) && l.Effective.UnixMilli() <= at && at <= l.Fetched.UnixMilli() {
			return l
		}
	}
	return nil
}

// last is the last reading before a moment.
func (a *proofArchive) last(key string, t time.Time) *archiveLine {
	var found *archiveLine
	lines := a.lines[key]
	for i, l := range lines {
		// The index keeps the last confirmation of a version; that it was there is known since its first sight, unless
		// something else was read in between.
		seen := l.Effective
		if i > 0 && !seen.After(lines[i-1].Fetched) {
			seen = l.Fetched
		}
		if seen.After(t) {
			break
		}
		found = l
	}
	return found
}
