package audit

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAccessOrder(t *testing.T) {
	want := []string{
		"a/access.log-20251101.gz", "a/access.log-20251102", "a/access.log.10.gz", "a/access.log.2", "a/access.log.1", "a/access.log", "a/error.log",
		"b/site-20251101.log", "b/site-20251102.log.bz2", "b/site.log",
	}
	dir := t.TempDir()
	for i, name := range want {
		writeFile(t, filepath.Join(dir, name), []byte(fmt.Sprint(i)))
	}
	t.Chdir(dir)
	for range 20 {
		args := slices.Clone(want)
		rand.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
		in, err := listInputs(append(args, "a/*.log", "./b/site.log"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range in {
			got = append(got, strings.TrimPrefix(x.path, "./"))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	if _, err := listInputs([]string{"nothing*"}, nil); err == nil {
		t.Error("a glob that matches nothing passes")
	}
	if _, err := listInputs([]string{"/dev/zero"}, nil); err == nil {
		t.Error("a device passes")
	}
	if _, err := listInputs([]string{t.TempDir()}, nil); err == nil {
		t.Error("an empty folder passes")
	}
}

func TestAccessOverlap(t *testing.T) {
	h := func(s string) (out []uint64) {
		for _, c := range s {
			out = append(out, uint64(c))
		}
		return out
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 0}, {"abc", "cde", 1}, {"abc", "abc", 3}, {"aab", "aab", 3}, {"aaa", "aa", 2}, {"xabab", "ababc", 4}, {"abcx", "abc", 0}, {"ab", "xab", 0}} {
		if got := longestOverlap(h(c.a), h(c.b)); got != c.want {
			t.Errorf("%s, %s: %d", c.a, c.b, got)
		}
	}
}

// TestAccessCut reads archives that end too early: every whole line before the cut counts, and the report says so.
func TestAccessCut(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	for i := range 5000 {
		fmt.Fprint(w, accessLine("192.0.2.1", "09:00:00", fmt.Sprintf("/%d", i*7919), gptBot))
	}
	w.Close()
	dir := t.TempDir()
	whole := z.Bytes()
	run := func(body []byte) *AccessReport {
		rep, err := Access(t.Context(), AccessOptions{Logs: []string{writeFile(t, dir+"/x", body)}, Judge: prefixJudge{}})
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	rep := run(whole[:len(whole)*3/4])
	in := rep.Inputs[0]
	if in.Compression != "gzip" || in.Error == "" || len(rep.Problems) != 1 || in.Lines < 1000 || in.Lines != in.Requests || !rep.SelfCheck.OK {
		t.Errorf("%+v, %q", in, rep.Problems)
	}
	if rep := run([]byte{0x1f, 0x8b, 1, 2, 3}); len(rep.Problems) != 1 {
		t.Errorf("a broken archive passes: %+v", rep.Inputs)
	}
	if rep := run(append(whole, whole...)); rep.Totals.Requests != 10000 || rep.Problems != nil {
		t.Errorf("two members: %+v %q", rep.Totals, rep.Problems)
	}
}

// TestAccessLongLines holds lines of more than 1 MiB against the limit, wherever blocks are cut.
func TestAccessLongLines(t *testing.T) {
	line := accessLine("192.0.2.1", "09:00:00", "/", gptBot)
	for _, n := range []int{maxAccessLine, maxAccessLine + 1, 2 * maxAccessLine, 2*maxAccessLine + 1, 3 * maxAccessLine} {
		long := line[:len(line)-2] + strings.Repeat("x", n-len(line)+1) + "\"\n"
		if len(long) != n+1 {
			t.Fatal(len(long))
		}
		for _, tail := range []string{line, strings.TrimSuffix(line, "\n"), ""} {
			log := "\xef\xbb\xbf" + line + "\r\n" + long + tail
			if tail == "" {
				log = strings.TrimSuffix(log, "\n")
			}
			rep := access(t, log, "", nil)
			malformed, requests := int64(0), int64(2)
			if n > maxAccessLine {
				malformed, requests = 1, 1
			}
			lines := int64(3)
			if tail != "" {
				lines, requests = 4, requests+1
			}
			if got := rep.Totals; got.Malformed != malformed || got.Requests != requests || got.Lines != lines || got.Blank != 1 || !rep.SelfCheck.OK {
				t.Errorf("%d bytes: %+v", n, got)
			}
		}
	}
}

func TestAccessPipes(t *testing.T) {
	dir := t.TempDir()
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	line := accessLine("192.0.2.1", "09:00:00", "/", gptBot)
	var wg sync.WaitGroup
	wg.Go(func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			fmt.Fprint(f, line, line)
			f.Close()
		}
	})
	rep, err := Access(t.Context(), AccessOptions{Logs: []string{fifo, "-", "-"}, Stdin: strings.NewReader(line + line), Judge: prefixJudge{}})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// Equal bytes, but streams are exempt from the comparison.
	if rep.Totals.Requests != 4 || len(rep.Inputs) != 2 {
		t.Errorf("%+v", rep)
	}
}

// TestAccessFault makes a worker panic: the line is malformed, the report fails, and everything else counts.
func TestAccessFault(t *testing.T) {
	log := accessLine("192.0.2.1", "09:00:00", "/a", gptBot) + accessLine("192.0.2.1", "09:00:01", "/panic", gptBot) + accessLine("192.0.2.1", "09:00:02", "/b", gptBot)
	rep := access(t, log, "Disallow: /x\n", nil)
	if rep.Totals.Requests != 2 || rep.Totals.Malformed != 1 || len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], "boom") || !rep.SelfCheck.OK {
		t.Errorf("%+v %q", rep.Totals, rep.Problems)
	}
}
