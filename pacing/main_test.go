package pacing

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // the tests with a real Redis mostly wait
	goleak.VerifyTestMain(m)
}
