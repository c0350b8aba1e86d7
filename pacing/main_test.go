package pacing

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	flag.Parse()
	redis.SetLogger(verboseLog{})
	_ = flag.Set("test.parallel", "16") // the tests with a real Redis mostly wait
	goleak.VerifyTestMain(m)
}

// verboseLog shows what the Redis client says of servers that the tests take away, with -v.
type verboseLog struct{}

func (verboseLog) Printf(_ context.Context, format string, v ...any) {
	if testing.Verbose() {
		fmt.Fprintf(os.Stderr, format+"\n", v...)
	}
}
