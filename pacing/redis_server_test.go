package pacing

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisServer is a real server of a test's own, on loopback, with nothing on disk.
type redisServer struct {
	tb   testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
}

func startRedis(tb testing.TB, args ...string) *redisServer {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	r := &redisServer{tb: tb, addr: addr, dir: tb.TempDir(), args: args}
	r.start()
	tb.Cleanup(r.stop)
	return r
}

func (r *redisServer) start() {
	r.tb.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		r.tb.Fatalf("redis-server is not installed; `make deps` installs it: %v", err)
	}
	_, port, _ := net.SplitHostPort(r.addr)
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.dir,
		"--maxmemory-policy", "noeviction", "--protected-mode", "no",
	}, r.args...)
	r.cmd = exec.Command(bin, args...) //nolint:gosec // the test's own server
	if err := r.cmd.Start(); err != nil {
		r.tb.Fatal(err)
	}
	c := r.client()
	defer c.Close()
	for end := time.Now().Add(5 * time.Second); ; {
		if c.Ping(context.Background()).Err() == nil {
			return
		}
		if time.Now().After(end) {
			r.tb.Fatal("redis-server does not answer")
		}
		wait := time.NewTimer(5 * time.Millisecond)
		<-wait.C
	}
}

func (r *redisServer) stop() {
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Signal(os.Kill)
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

func (r *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, ReadTimeout: 2 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
}
