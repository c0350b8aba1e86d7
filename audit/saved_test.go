package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// savedForms are the ways in which receivers keep a record.
func savedForms(line string) map[string]string {
	text, _ := json.Marshal(line)
	return map[string]string{
		"as posted":         line + "\n",
		"no line end":       line,
		"bodies joined":     line + line,
		"syslog as sent":    "<110>1 2026-03-04T05:06:07.089Z gate crawlgate 1 checkpoint - " + line + "\n",
		"syslog as kept":    "Mar  4 05:06:07 gate.example crawlgate[1]: " + line + "\n",
		"inside an object":  `{"received":"2026-03-04","n":{"a":[{}]},"body":` + line + "}\n",
		"inside as a text":  `{"host":"gate","message":` + string(text) + `,"severity":"info"}` + "\n",
		"among other lines": "first\n{\"schema\":\"" + Schema + "\"}\n\n" + line + "\r\nlast",
		"behind a brace":    "{{{ }{" + line,
		"after a long line": strings.Repeat("x", 3<<20) + "\n" + line + "\n",
	}
}

func TestReadSaved(t *testing.T) {
	h := testHead(t, 7)
	for name, text := range savedForms(string(h.line)) {
		list, err := readSaved(strings.NewReader(text), name)
		if err != nil || len(list) == 0 || list[0].Seq != 7 || list[0].Checkpoint.Head != zeroHash || !list[0].Time.Equal(h.Time) {
			t.Errorf("%s: %v %+v", name, err, list)
		}
	}
	for _, text := range []string{"", "\n", "{", "{}", `{"schema":"` + Schema + `","type":"request","seq":1}`, `{"schema":"` + Schema + `","type":"checkpoint","seq":1}`,
		strings.Replace(string(h.line), Schema, "crawlgate.audit.event/9", 1), strings.Repeat("{", 100) + string(h.line)[1:], strings.Repeat(" ", 2<<20) + string(h.line)} {
		if list, err := readSaved(strings.NewReader(text), ""); err != nil || len(list) != 0 {
			t.Errorf("%.80q: %v %+v", text, err, list)
		}
	}
	// Compressed, as log rotation leaves it.
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprintf(w, "x %s\n", h.line)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "syslog.1.gz")
	if err := os.WriteFile(path, z.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := ReadSaved(path); err != nil || len(list) != 1 || list[0].File != path || list[0].Line != 1 {
		t.Errorf("%v %+v", err, list)
	}
	if _, err := ReadSaved(path + ".none"); err == nil {
		t.Error("no error for a file that is not there")
	}
}

func FuzzReadSaved(f *testing.F) {
	h := testHead(f, 7)
	for _, text := range savedForms(string(h.line)) {
		if len(text) < 1<<20 {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte(`{\"schema\":\"` + Schema + `\"\\`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := readSaved(bytes.NewReader(b), "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Seq == 0 || len(s.Checkpoint.Head) != 64 || s.Line < 1 || s.Line > bytes.Count(b, []byte("\n"))+1 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestVerifySaved: heads kept elsewhere show a cut tail and a chain that was written anew, keys and all.
func TestVerifySaved(t *testing.T) {
	dir := t.TempDir()
	c := Defaults()
	elsewhere := filepath.Join(dir, "heads")
	c.CheckpointEvery, c.CheckpointTo = 10, Texts{elsewhere}
	record := func(dir string, n int) (live string, keys Keys) {
		t.Helper()
		l := openTest(t, c, dir)
		for range n {
			if err := l.Record(context.Background(), simple("ok")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		keys, err := LoadKeys(filepath.Join(dir, "audit", publicKeysFile))
		if err != nil {
			t.Fatal(err)
		}
		return l.Path(), keys
	}
	live, keys := record(dir, 95)
	saved, err := ReadSaved(elsewhere)
	if err != nil || len(saved) < 9 {
		t.Fatalf("%v, %d heads", err, len(saved))
	}
	whole, err := os.ReadFile(live)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	write := func(name string, lines [][]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := append([][]byte{}, lines...)
	changed[14] = bytes.Replace(changed[14], []byte("example.com"), []byte("example.org"), 1)
	changed = relink(changed)

	c.CheckpointTo = Texts{filepath.Join(dir, "other heads")}
	anew, otherKeys := record(filepath.Join(dir, "anew"), 200)
	forged := saved[0]
	forged.Checkpoint.Head = strings.Repeat("a", 64)
	forged.Line = 99

	for name, x := range map[string]struct {
		file  string
		keys  Keys
		saved []Saved
		from  uint64
		kind  string // of the finding, "" for none
		line  int    // of the saved file
	}{
		"whole":                        {file: live, keys: keys, saved: saved},
		"whole, no keys at hand":       {file: live, saved: saved},
		"delivered twice":              {file: live, keys: keys, saved: append(append([]Saved{}, saved...), saved...)},
		"whole, a stranger's head":     {file: live, keys: keys, saved: append([]Saved{forged}, saved...), kind: BadSignature, line: 99},
		"the tail cut":                 {file: write("cut", lines[:50]), keys: keys, saved: saved, kind: TailMissing, line: len(saved)},
		"written anew, signature left": {file: write("changed", changed), saved: saved, kind: Altered, line: 2},
		"another chain, its own keys":  {file: anew, keys: otherKeys, saved: saved, kind: BadSignature, line: 1},
		"another chain, the old keys":  {file: anew, saved: saved, kind: Altered, line: 1},
		"begins later":                 {file: write("later", lines[60:]), keys: keys, saved: saved, from: 61},
		"begins past all":              {file: write("past", lines[60:]), keys: keys, saved: saved[:2], from: 61, kind: TailMissing},
		"none":                         {file: live, keys: keys, saved: []Saved{}, kind: TailMissing},
	} {
		rep, err := Verify([]string{x.file}, VerifyOptions{Keys: x.keys, Saved: x.saved, From: x.from})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if x.kind == "" {
			if !rep.OK || rep.Saved.Heads != len(saved) || rep.Saved.Matched+rep.Saved.Before != len(saved) || rep.Saved.Newest != saved[len(saved)-1].Seq || (rep.Saved.Before > 0) != (x.from > 0) {
				t.Errorf("%s: %+v %+v", name, rep.Broken, rep.Saved)
			}
			continue
		}
		if rep.OK || rep.Broken.Kind != x.kind || x.line > 0 && (rep.Broken.Line != x.line || rep.Broken.File != elsewhere) {
			t.Errorf("%s: %+v", name, rep.Broken)
		}
	}
	if rep, err := Verify([]string{live}, VerifyOptions{}); err != nil || !rep.OK || rep.Saved != nil {
		t.Errorf("without heads: %v %+v", err, rep)
	}
}
