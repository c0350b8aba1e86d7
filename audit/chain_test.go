package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestChainVectors runs the shared cases whole.
func TestChainVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/chain/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Cases []struct {
			Files  []string
			Head   string
			Result struct {
				OK   bool
				File string
				Line int
				Kind string
			}
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range all.Cases {
		t.Run(strings.Join(c.Files, "+")+"/"+c.Head, func(t *testing.T) {
			var files []string
			for _, f := range c.Files {
				files = append(files, filepath.Join("testdata", "chain", f))
			}
			rep, err := Verify(files, VerifyOptions{Head: c.Head})
			if err != nil {
				t.Fatal(err)
			}
			if rep.OK != c.Result.OK {
				t.Fatalf("ok %v, want %v: %+v", rep.OK, c.Result.OK, rep)
			}
			var got Finding
			if rep.Broken != nil {
				got = *rep.Broken
			} else if len(rep.Warnings) > 0 {
				got = rep.Warnings[0]
			}
			file := ""
			if got.File != "" {
				file = filepath.Base(got.File)
			}
			if file != c.Result.File || got.Line != c.Result.Line || got.Kind != c.Result.Kind {
				t.Errorf("got %s:%d %s, want %+v", file, got.Line, got.Kind, c.Result)
			}
		})
	}
}

// relink makes prev and hash of lines fit again, and the heads that checkpoints name (not their signatures).
func relink(lines [][]byte) [][]byte {
	var h hasher
	prev := []byte(zeroHash)
	var out [][]byte
	for _, line := range lines {
		body := line[:len(line)-1-tailLen]
		if k, ok := parseLink(line[:len(line)-1]); ok && string(k.typ) == TypeCheckpoint {
			body = bytes.Replace(body, k.prev, prev, 1)
		}
		b := append(bytes.Clone(body), prevKey...)
		b = append(append(b, prev...), '"')
		prev = bytes.Clone(h.of(b))
		b = append(append(append(b, hashKey...), prev...), "\"}\n"...)
		out = append(out, b)
	}
	return out
}

// hundred is a log of 100 short events, by lines with their ends.
func hundred(t testing.TB) [][]byte {
	var lines [][]byte
	for i := range 100 {
		e := &Event{Type: TypeConfig, Seq: uint64(i + 1), Note: "policy", Prev: zeroHash, Hash: zeroHash}
		line, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, append(line, '\n'))
	}
	return relink(lines)
}

// from runs a verifier that has seen what is before over the rest of a log.
func (v verifier) from(rest []byte) Report {
	v.hash = hasher{}
	v.rep.Warnings = nil
	for n := 1; ; n++ {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		if !v.line("log", n, rest[:i]) {
			return v.rep
		}
		rest = rest[i+1:]
	}
	if v.tail("log", 0, rest) {
		v.end("log")
	}
	return v.rep
}

// found tells whether a report says that something is wrong.
func (r Report) found() bool { return !r.OK || len(r.Warnings) > 0 }

// TestEveryByte changes every byte of a log of 100 events, in several ways, and each is found.
func TestEveryByte(t *testing.T) {
	lines := hundred(t)
	head := lines[99][len(lines[99])-67 : len(lines[99])-3]
	v := verifier{opt: VerifyOptions{Head: string(head)}}
	for i, line := range lines {
		rest := bytes.Join(lines[i:], nil)
		if rep := v.from(rest); rep.found() {
			t.Fatalf("line %d untouched: %+v", i+1, rep)
		}
		for at := range line {
			old := rest[at]
			for _, c := range []byte{old ^ 1, old ^ 0x20, old ^ 0x80, '\n', ' ', 0} {
				if c == old {
					continue
				}
				rest[at] = c
				if rep := v.from(rest); !rep.found() {
					t.Errorf("line %d byte %d: %q for %q is not found", i+1, at, c, old)
				}
			}
			rest[at] = old
		}
		if !v.line("log", i+1, line[:len(line)-1]) {
			t.Fatal(v.rep.Broken)
		}
	}
	if !v.headSeen {
		t.Error("the head was not seen")
	}
}

// TestEveryLine removes, doubles and swaps each line of a log, and each is found where it is and by its kind.
func TestEveryLine(t *testing.T) {
	lines := hundred(t)
	head := string(lines[99][len(lines[99])-67 : len(lines[99])-3])
	check := func(name string, lines [][]byte, line int, kinds ...string) {
		t.Helper()
		rep := verifier{opt: VerifyOptions{Head: head}}.from(bytes.Join(lines, nil))
		if rep.OK || rep.Broken.Line != line || !slices.Contains(kinds, rep.Broken.Kind) {
			t.Errorf("%s: %+v, want line %d %v", name, rep.Broken, line, kinds)
		}
	}
	for i := range lines {
		without := slices.Delete(slices.Clone(lines), i, i+1)
		switch i {
		case 0:
			check("first removed", without, 1, FileMissing)
		case 99:
			check("last removed", without, 0, TailMissing)
		default:
			check(fmt.Sprintf("%d removed", i+1), without, i+1, Removed)
		}
		check(fmt.Sprintf("%d doubled", i+1), slices.Insert(slices.Clone(lines), i, lines[i]), i+2, Reordered)
		for j := i + 1; j < len(lines); j += 7 {
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			if i == 0 {
				check(fmt.Sprintf("1 and %d swapped", j+1), swapped, 2, Removed, Reordered)
				continue
			}
			check(fmt.Sprintf("%d and %d swapped", i+1, j+1), swapped, i+1, Removed)
		}
	}
}

// TestAnyChange is the same as a property: whatever bytes are changed, cut or put in, a log never verifies unless they are
// what they were.
func TestAnyChange(t *testing.T) {
	whole := bytes.Join(hundred(t), nil)
	head := string(whole[len(whole)-67 : len(whole)-3])
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, len(whole)-1).Draw(t, "from")
		to := rapid.IntRange(from, min(from+400, len(whole))).Draw(t, "to")
		put := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "put")
		changed := slices.Concat(whole[:from], put, whole[to:])
		if bytes.Equal(changed, whole) {
			return
		}
		v := verifier{opt: VerifyOptions{Head: head}}
		if rep := v.from(changed); !rep.found() {
			t.Fatalf("bytes %d to %d replaced by %q: not found", from, to, put)
		}
	})
}

// FuzzVerify feeds anything to the verifier and to the reader: no panic, and only a real chain is whole.
func FuzzVerify(f *testing.F) {
	for _, name := range []string{"good-1.jsonl", "altered.jsonl", "torn.jsonl", "swapped.jsonl"} {
		text, err := os.ReadFile(filepath.Join("testdata", "chain", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add(bytes.Join(hundred(f)[:3], nil))
	f.Add([]byte("\n\n{}\n" + strings.Repeat("x", 5000)))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify([]string{path}, VerifyOptions{})
		if err != nil {
			return // a broken gzip file
		}
		if rep.OK && rep.Events > 0 && len(rep.Warnings) == 0 {
			lines := bytes.SplitAfter(text, []byte("\n"))
			if int64(len(lines)-1) != rep.Events {
				t.Errorf("%d events of %d lines", rep.Events, len(lines)-1)
			}
		}
		if _, err := Last(t.Context(), []string{path}, Query{Limit: 3}, nil); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDecode: what can be read can be written, and reads the same again.
func FuzzDecode(f *testing.F) {
	text, err := os.ReadFile("testdata/chain/good-1.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f.Add(line)
	}
	f.Add([]byte(`{"schema":"crawlgate.audit.event/1","type":"start","seq":1,"time":"","unfinished":["a"],"cut":["url"]}`))
	f.Add([]byte(`{"schema":"crawlgate.audit.event/1","type":"request","robots":{"fetched_at":"2026-01-02T03:04:05.678Z"},"url":"\u00ff\u2028"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Decode(line)
		if err != nil || bitOf(e.Type) == 0 {
			return
		}
		out, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(out, "\n\r\x00") || len(out) > MaxLine {
			t.Fatalf("not one line: %d bytes", len(out))
		}
		again, err := Decode(out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(again.Cut) == 0 && again.Reason != e.Reason {
			t.Errorf("%q became %q", e.Reason, again.Reason)
		}
	})
}
