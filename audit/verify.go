package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// Kinds of findings.
const (
	Altered      = "altered"       // a line's own hash is wrong, or the next does not follow although its number does
	Removed      = "removed"       // the number jumps ahead
	Reordered    = "reordered"     // the number goes back or repeats
	FileMissing  = "file_missing"  // the number jumps at a file's first line
	TailMissing  = "tail_missing"  // the head was not reached
	BadSignature = "bad_signature" // a checkpoint's signature is wrong
	Torn         = "torn"          // a last line without its end; a warning
	Gap          = "gap"           // a declared loss; a warning
)

// Finding is one thing that Verify found. Line counts from 1; 0 is the file as a whole.
type Finding struct {
	Kind string `json:"kind"`
	File string `json:"file"`
	Line int    `json:"line"`
	Seq  uint64 `json:"seq"` // 0 if it cannot be read
	Text string `json:"text"`
}

// Report is what Verify found.
type Report struct {
	OK       bool      `json:"ok"`
	Broken   *Finding  `json:"broken,omitempty"` // the first bad place, if any
	Warnings []Finding `json:"warnings"`         // at most 100
	Files    int       `json:"files"`
	Events   int64     `json:"events"`
	Bytes    int64     `json:"bytes"` // decompressed
	First    uint64    `json:"first_seq"`
	Last     uint64    `json:"last_seq"`
	Head     string    `json:"head"`
	LastTime string    `json:"last_time"`
	Signed   uint64    `json:"signed_seq"` // covered by a checkpoint whose signature was checked
	Lost     int64     `json:"lost"`       // events that gap events declare
	// Saved is about the heads kept elsewhere, nil when none were given.
	Saved *SavedReport `json:"saved,omitempty"`
}

// SavedReport counts the signed heads kept elsewhere that a log was compared with, doubled ones once.
type SavedReport struct {
	Heads   int    `json:"heads"`
	Matched int    `json:"matched"` // the log has this very event
	Before  int    `json:"before"`  // older than the files at hand: not compared
	Newest  uint64 `json:"newest_seq"`
}

// VerifyOptions narrows a verification.
type VerifyOptions struct {
	Head string // hash that must be reached
	Keys Keys   // nil: signatures are not checked
	From uint64 // first number to check; the files may begin there
	// Saved are signed heads kept elsewhere: the log must have each of their events. Nil: there are none; empty: none
	// were found where they should be, which is a finding.
	Saved []Saved
}

const (
	maxWarnings = 100
	lineRoom    = 16 * MaxLine // a longer line cannot be the gate's
)

// verifier follows a chain line by line.
type verifier struct {
	opt      VerifyOptions
	rep      Report
	hash     hasher
	saved    savedHeads
	prev     [64]byte
	headSeen bool
	start    *Finding // the chain begins later than it should, and nothing explained it yet
	startTo  string   // prev of its first line
}

// Verify reads files of one chain in the order given ([Order] finds it) and stops at the first bad place. The error is
// for files that cannot be read; what is wrong with a chain is in the report.
func Verify(files []string, opt VerifyOptions) (Report, error) {
	return VerifyContext(context.Background(), files, opt)
}

// VerifyContext is [Verify] until ctx ends; the error is then that of ctx.
func VerifyContext(ctx context.Context, files []string, opt VerifyOptions) (Report, error) {
	v := &verifier{opt: opt}
	v.rep.Warnings = []Finding{}
	if opt.Saved != nil {
		v.saved = newSavedHeads(opt.Saved, opt.Keys)
		v.rep.Saved = &SavedReport{}
		for seq, list := range v.saved.bySeq {
			v.rep.Saved.Heads += len(list)
			v.rep.Saved.Newest = max(v.rep.Saved.Newest, seq)
		}
	}
	for _, path := range files {
		v.rep.Files++
		r, err := openLog(path)
		if err != nil {
			return v.rep, err
		}
		ok, err := v.file(ctx, path, r)
		r.Close()
		if err != nil {
			return v.rep, fmt.Errorf("%s: %w", path, err)
		}
		if !ok {
			return v.rep, nil
		}
	}
	last := ""
	if len(files) > 0 {
		last = files[len(files)-1]
	}
	v.end(last)
	return v.rep, nil
}

// end judges what only the whole shows: where the chain began and whether it reached the head.
func (v *verifier) end(last string) {
	switch {
	case v.start != nil:
		v.broken(*v.start)
	case v.opt.From > 0 && v.rep.Events == 0:
		v.broken(Finding{Kind: TailMissing, File: last, Text: fmt.Sprintf("the log ends at seq %d, before seq %d", v.rep.Last, v.opt.From)})
	case v.opt.Head != "" && !v.headSeen:
		v.broken(Finding{Kind: TailMissing, File: last, Text: fmt.Sprintf("the log ends at seq %d without reaching the head %s", v.rep.Last, Printable(v.opt.Head, 64))})
	default:
		v.rep.OK = true
		v.endSaved(last)
	}
}

// endSaved judges the heads kept elsewhere that no event of the log has met.
func (v *verifier) endSaved(last string) {
	if v.rep.Saved == nil {
		return
	}
	v.rep.Saved.Before = v.saved.before(v.rep.First)
	if f := v.saved.after(v.rep.Last); f != nil {
		v.broken(*f)
	} else if v.rep.Saved.Matched == 0 {
		v.broken(Finding{Kind: TailMissing, File: last, Text: fmt.Sprintf("of the heads kept elsewhere (%d) none is of an event in these files", v.rep.Saved.Heads)})
	}
}

// file reads one file and tells whether all is well so far.
func (v *verifier) file(ctx context.Context, path string, r io.Reader) (bool, error) {
	lines := bufio.NewReaderSize(r, lineRoom)
	for n := 1; ; n++ {
		if n%1024 == 1 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		line, err := lines.ReadSlice('\n')
		v.rep.Bytes += int64(len(line))
		switch {
		case err == nil:
			if !v.line(path, n, line[:len(line)-1]) {
				return false, nil
			}
		case err == io.EOF:
			return v.tail(path, n, line), nil
		case errors.Is(err, bufio.ErrBufferFull):
			return v.broken(Finding{Kind: Altered, File: path, Line: n, Text: fmt.Sprintf("the line has no end within %d bytes", lineRoom)}), nil
		default:
			return false, err
		}
	}
}

// tail judges what stands after a file's last line end. A whole event there counts.
func (v *verifier) tail(path string, n int, line []byte) bool {
	if len(line) == 0 {
		return true
	}
	v.warn(Finding{Kind: Torn, File: path, Line: n, Text: fmt.Sprintf("the last line has no end (%d bytes)", len(line))})
	if k, ok := parseLink(line); ok && bytes.Equal(v.hash.of(k.body), k.hash) {
		return v.line(path, n, line)
	}
	return true
}

// line checks one line and tells whether the chain is whole up to it.
func (v *verifier) line(path string, n int, line []byte) bool {
	k, ok := parseLink(line)
	if !ok {
		return v.broken(Finding{Kind: Altered, File: path, Line: n, Text: "the line is not an event"})
	}
	if k.seq < v.opt.From && v.rep.Events == 0 {
		copy(v.prev[:], k.hash)
		v.rep.Last = k.seq
		return true
	}
	f := Finding{File: path, Line: n, Seq: k.seq}
	if !bytes.Equal(v.hash.of(k.body), k.hash) {
		f.Kind, f.Text = Altered, "the record does not have the hash it names"
		return v.broken(f)
	}
	if v.rep.Events == 0 && v.rep.Last == 0 {
		if !v.begin(k, f) {
			return false
		}
	} else {
		want := v.rep.Last + 1
		switch {
		case k.seq > want:
			f.Kind, f.Text = Removed, fmt.Sprintf("seq %d follows seq %d", k.seq, v.rep.Last)
			if n == 1 {
				f.Kind = FileMissing
			}
			return v.broken(f)
		case k.seq < want:
			f.Kind, f.Text = Reordered, fmt.Sprintf("seq %d follows seq %d", k.seq, v.rep.Last)
			return v.broken(f)
		case !bytes.Equal(k.prev, v.prev[:]):
			f.Kind, f.Text = Altered, "the record does not follow the one before"
			return v.broken(f)
		}
	}
	if v.rep.Events == 0 {
		v.rep.First = k.seq
	}
	v.rep.Events++
	v.rep.Last = k.seq
	copy(v.prev[:], k.hash)
	v.rep.Head = string(k.hash)
	if v.opt.Head != "" && v.rep.Head == v.opt.Head {
		v.headSeen = true
	}
	if b := valueOf(line, `"time":"`, '"'); b != nil {
		v.rep.LastTime = string(b)
	}
	if v.rep.Saved != nil {
		n, bad := v.saved.meet(k.seq, k.hash)
		v.rep.Saved.Matched += n
		if bad != nil {
			return v.broken(*bad)
		}
	}
	switch string(k.typ) {
	case TypeCheckpoint:
		return v.checkpoint(line, k, f)
	case TypeGap:
		v.gap(line, f)
	}
	return true
}

// begin judges the first line: a chain begins at 1, at --from, or where a checkpoint says that older files were deleted.
func (v *verifier) begin(k link, f Finding) bool {
	switch {
	case k.seq == 1:
		if string(k.prev) != zeroHash {
			f.Kind, f.Text = Altered, "the first record names one before it"
			return v.broken(f)
		}
	case k.seq == v.opt.From:
	default:
		f.Kind = FileMissing
		f.Text = fmt.Sprintf("the log begins at seq %d, and no checkpoint says that what was before was deleted (--from %d accepts it)", k.seq, k.seq)
		v.start, v.startTo = &f, string(k.prev)
	}
	return true
}

// checkpoint compares a signed head with the chain.
func (v *verifier) checkpoint(line []byte, k link, f Finding) bool {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		f.Kind, f.Text = Altered, "the checkpoint cannot be read"
		return v.broken(f)
	}
	c := e.Checkpoint
	if c.Seq+1 != k.seq || c.Head != string(k.prev) {
		f.Kind, f.Text = Altered, fmt.Sprintf("the checkpoint names seq %d and another head", c.Seq)
		return v.broken(f)
	}
	if v.opt.Keys != nil {
		if err := c.Verify(e.Time, v.opt.Keys); err != nil {
			f.Kind, f.Text = BadSignature, err.Error()
			return v.broken(f)
		}
		v.rep.Signed = c.Seq
	}
	if v.start != nil && c.RemovedTo+1 == v.start.Seq && c.RemovedHead == v.startTo {
		v.start = nil
	}
	return true
}

func (v *verifier) gap(line []byte, f Finding) {
	var e Event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	v.rep.Lost += e.Lost
	f.Kind = Gap
	f.Text = fmt.Sprintf("%d events lost before this one (%s)", e.Lost, Printable(e.Class, 40))
	v.warn(f)
}

func (v *verifier) warn(f Finding) {
	if len(v.rep.Warnings) < maxWarnings {
		v.rep.Warnings = append(v.rep.Warnings, f)
	}
}

// broken ends a verification.
func (v *verifier) broken(f Finding) bool {
	v.rep.OK = false
	v.rep.Broken = &f
	return false
}

// String says a finding in one line, as `audit verify` prints it.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s (%s)", filepath.Base(f.File), f.Text, f.Kind)
	}
	return fmt.Sprintf("%s line %s: %s (%s)", filepath.Base(f.File), Group(int64(f.Line)), f.Text, f.Kind)
}

// Group writes a number with a space between its thousands.
func Group(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// Age says how long ago an event was, for people.
func Age(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in the future"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}
