package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// crashDir names the folder in which the test binary, started again, records until it is killed.
const crashDir = "AUDIT_CRASH_DIR"

// TestCrashChild is the process that TestKill kills; alone it does nothing.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return
	}
	c := Defaults()
	c.MaxSize, c.Keep, c.CheckpointEvery, c.Sync = minMaxSize*4, 0, 50, syncIntent
	l, err := Open(c, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		go func() {
			for {
				for range 20 {
					_ = l.Record(context.Background(), simple("ok"))
				}
				_ = l.Flush() // else the queue is always full, and the test waits for the disk only
			}
		}()
	}
	for {
		// Told to the parent only after Record and Intent returned.
		e := simple("address-denied")
		if err := l.Intent(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("intent %s\n", e.ID)
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("synced %s\n", e.ID)
	}
}

// TestKill kills a recording process with signal 9 again and again, in the same folder: the chain is never broken, what
// was acknowledged as written is there, nothing is declared lost, and the next process goes on.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]bool{}
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 2+4*round && lines.Scan(); n++ {
			word, id, ok := strings.Cut(lines.Text(), " ")
			if !ok || word != "intent" && word != "synced" {
				t.Fatalf("the child says %q", lines.Text())
			}
			acked[word+" "+id] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
	}
	l := openTest(t, Defaults(), dir)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rep := mustVerify(t, l.Path(), VerifyOptions{})
	if rep.Lost != 0 {
		t.Errorf("%d events lost", rep.Lost)
	}
	for _, e := range events(t, l.Path(), TypeIntent, TypeRequest) {
		switch {
		case e.Type == TypeIntent:
			delete(acked, "intent "+e.ID)
		case e.Reason == "address-denied":
			delete(acked, "synced "+e.ID)
		}
	}
	for what := range acked {
		t.Errorf("acknowledged and not in the log: %s", what)
	}
	t.Logf("%d events, %d files, %d kills", rep.Events, rep.Files, rounds)
}
