// Package redistest runs a real redis-server for a test, on loopback, with nothing on disk. It is for tests only.
//
//	server := redistest.Start(t)
//	client := redis.NewClient(&redis.Options{Addr: server.Addr})
//
// Stop takes the server away as a crash does; Start brings an empty one back at the same address.
package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a server may take until it answers.
const patience = 20 * time.Second

// Server is a redis-server of a test's own. It ends with the test.
type Server struct {
	Addr string // host:port

	tb    testing.TB
	dir   string
	args  []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// Start runs a server that answers. args are options of redis-server (`--requirepass`, `x`) beyond those for a port of its
// own, nothing on disk and no eviction.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir(), args: args}
	tb.Cleanup(s.Stop)
	for range 5 { // a port that was free a moment ago may be somebody else's by now
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		s.Addr = l.Addr().String()
		_ = l.Close()
		if s.run() {
			return s
		}
	}
	tb.Fatal("redis-server ends at once, five times")
	return nil
}

// Start brings the server back at its address, with nothing in it.
func (s *Server) Start() {
	s.tb.Helper()
	if !s.run() {
		s.tb.Fatal("redis-server does not come back")
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Kill)
		<-s.ended
		s.cmd = nil
	}
}

// run reports whether the process answers; false means that it ended.
func (s *Server) run() bool {
	s.tb.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command("redis-server", append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir,
		"--maxmemory-policy", "noeviction", "--protected-mode", "no",
	}, s.args...)...)
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("redis-server (make deps installs it): %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	for late := time.After(patience); ; {
		if s.answers() {
			return true
		}
		select {
		case <-ended:
			s.cmd = nil
			return false
		case <-late:
			s.tb.Fatal("redis-server does not answer")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// answers tells whether something at the address speaks Redis; an error (no password was given) is an answer too.
func (s *Server) answers() bool {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}
