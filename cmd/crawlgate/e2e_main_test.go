package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests in the files e2e_*_test.go drive the built program with the clients people use: curl, Python, Node and
// Chromium. Each starts processes of its own with a state folder of its own, looks at what the origin got, what the
// client got and what the audit log says, and reaches nothing but loopback.

var binaryDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "crawlgate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaryDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built is the program, built once and only when a test asks for it; with the race detector when the tests have it.
// CRAWLGATE_TEST_BINARY names another to test instead, such as a release.
var built = sync.OnceValues(func() (string, error) {
	if file := os.Getenv("CRAWLGATE_TEST_BINARY"); file != "" {
		return filepath.Abs(file)
	}
	file := filepath.Join(binaryDir, "crawlgate")
	args := []string{"build", "-o", file}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return file, nil
})

func binary(t *testing.T) string {
	t.Helper()
	file, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// bareEnv is this process's environment without anything that would point a client at a proxy or configure crawlgate.
func bareEnv(home string, more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		up := strings.ToUpper(name)
		switch {
		case strings.HasSuffix(up, "_PROXY"), strings.HasPrefix(up, "CRAWLGATE_"), strings.HasPrefix(up, "XDG_"), up == "HOME", up == "NOTIFY_SOCKET",
			strings.HasPrefix(up, "NODE_"), strings.HasSuffix(up, "_CA_BUNDLE"), strings.HasPrefix(up, "SSL_CERT_"), up == "JAVA_TOOL_OPTIONS":
			continue
		}
		env = append(env, kv)
	}
	return append(append(env, "HOME="+home, "NO_COLOR=1", "GORACE=halt_on_error=0 exitcode=66 atexit_sleep_ms=0"), more...)
}

// within waits for a condition and fails the test when it does not come.
func within(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// itoa is for ports in configurations and URLs.
func itoa(n int) string { return strconv.Itoa(n) }
