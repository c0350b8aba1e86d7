package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Saved is a signed head as another machine keeps it: what checkpoint_to delivered, read back by [ReadSaved].
type Saved struct {
	Checkpoint
	Time time.Time
	File string
	Line int
}

// Bounds of reading foreign files. A line of syslog that holds a head has some hundred bytes.
const (
	savedLine  = 1 << 20
	savedTries = 64 // places in a line where a record may begin
)

// ReadSaved finds checkpoint records in a file of another machine: one event a line as a file or URL receiver keeps them,
// lines of syslog with a prefix before the record, records inside other JSON, as an object or as a text. What is not a
// checkpoint is passed over, and compressed files are opened.
func ReadSaved(path string) ([]Saved, error) {
	r, err := openLog(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	list, err := readSaved(r, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// ReadSavedFrom is [ReadSaved] for a stream; name stands for it in findings.
func ReadSavedFrom(r io.Reader, name string) ([]Saved, error) { return readSaved(r, name) }

func readSaved(r io.Reader, name string) (list []Saved, err error) {
	lines := bufio.NewReaderSize(r, savedLine)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil // too long to be one
			_, err = lines.ReadSlice('\n')
		}
		for _, e := range savedIn(line) {
			list = append(list, Saved{Checkpoint: e.Checkpoint, Time: e.Time, File: name, Line: n})
		}
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// savedIn finds the checkpoint events in a line, whatever stands around them.
func savedIn(line []byte) (out []*Event) {
	if !bytes.Contains(line, []byte(Schema)) {
		return nil
	}
	for tries := 0; tries < savedTries; tries++ {
		i := bytes.IndexByte(line, '{')
		if i < 0 {
			return out
		}
		line = line[i:]
		e, used := savedAt(line)
		if e != nil {
			out = append(out, e)
		}
		line = line[used:]
	}
	return out
}

// savedAt reads a record that begins with the first byte of b, and tells how much of b it is done with.
func savedAt(b []byte) (*Event, int) {
	if bytes.HasPrefix(b, []byte(savedText)) {
		end := 0
		for end < len(b) && b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		var text string
		if end < len(b) && json.Unmarshal([]byte(`"`+string(b[:end])+`"`), &text) == nil {
			if e, _ := savedRecord([]byte(text)); e != nil {
				return e, end
			}
		}
		return nil, 1
	}
	return savedRecord(b)
}

// savedText is what the record begins with as a text inside other JSON.
const savedText = `{\"schema\":\"` + Schema + `\"`

func savedRecord(b []byte) (*Event, int) {
	dec := json.NewDecoder(bytes.NewReader(b))
	var e Event
	if dec.Decode(&e) != nil || e.Schema != Schema || e.Type != TypeCheckpoint || e.Checkpoint.Seq == 0 || !isHash([]byte(e.Checkpoint.Head)) {
		return nil, 1
	}
	return &e, int(dec.InputOffset())
}

// savedHeads are saved heads while a chain is verified.
type savedHeads struct {
	bySeq map[uint64][]Saved
	keys  Keys
}

func newSavedHeads(list []Saved, keys Keys) savedHeads {
	s := savedHeads{bySeq: map[uint64][]Saved{}, keys: keys}
next:
	for _, one := range list {
		for _, other := range s.bySeq[one.Seq] {
			if other.Checkpoint == one.Checkpoint {
				continue next // delivered twice, or to two places
			}
		}
		s.bySeq[one.Seq] = append(s.bySeq[one.Seq], one)
	}
	return s
}

// meet compares the saved heads of a number with the event that has it. A head that is not the event's is a finding.
func (s savedHeads) meet(seq uint64, hash []byte) (matched int, bad *Finding) {
	list := s.bySeq[seq]
	if len(list) == 0 {
		return 0, nil
	}
	delete(s.bySeq, seq)
	for _, one := range list {
		if string(hash) != one.Head {
			return matched, s.finding(one, Altered, fmt.Sprintf("the log has another event at seq %d than when this head was signed", seq))
		}
		matched++
	}
	return matched, nil
}

// after is the finding for the newest head past the end of a log, nil if there is none.
func (s savedHeads) after(last uint64) *Finding {
	var newest *Saved
	for seq, list := range s.bySeq {
		if seq > last && (newest == nil || seq > newest.Seq) {
			newest = &list[0]
		}
	}
	if newest == nil {
		return nil
	}
	return s.finding(*newest, TailMissing, fmt.Sprintf("this head was signed at seq %d, but the log ends at seq %d", newest.Seq, last))
}

// finding says what a saved head shows. One that nobody at hand has signed may as well be a forgery, or all of the log
// with its keys may be: a person must look.
func (s savedHeads) finding(one Saved, kind, text string) *Finding {
	if s.keys != nil {
		if err := one.Verify(one.Time, s.keys); err != nil {
			kind = BadSignature
			text += "; " + strings.TrimPrefix(err.Error(), "checkpoint of ")
		}
	}
	return &Finding{Kind: kind, File: one.File, Line: one.Line, Seq: one.Seq, Text: text}
}

// before counts the heads of events that stand before those at hand.
func (s savedHeads) before(first uint64) (n int) {
	for seq, list := range s.bySeq {
		if seq < first {
			n += len(list)
		}
	}
	return n
}
