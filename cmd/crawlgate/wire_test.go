package main

import (
	"bytes"
	"encoding/json"
	"log"
	"log/slog"
	"testing"
)

// TestStandardLog: what net/http prints about a site is a debug message of the log, in its format.
func TestStandardLog(t *testing.T) {
	out, flags := log.Writer(), log.Flags()
	defer func() {
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	const words = "Unsolicited response received on idle HTTP channel starting with \"{}\\nlevel=ERROR\"; err=<nil>"
	for level, want := range map[slog.Level]string{slog.LevelDebug: words, slog.LevelInfo: ""} {
		var b bytes.Buffer
		takeStandardLog(slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: level})))
		log.Print(words)
		var line struct{ Level, Message string }
		if err := json.Unmarshal(b.Bytes(), &line); err != nil && want != "" {
			t.Fatalf("%v: %q: %v", level, b.String(), err)
		}
		if line.Message != want || want != "" && line.Level != "DEBUG" {
			t.Errorf("%v: %q", level, b.String())
		}
	}
}
