package main

import (
	"bytes"
	"encoding/json"
	"log"
	"strings"
	"testing"
)

// A library's line is a line of ours, at debug: sites make the transport write some, and standard error is JSON.
func TestLibraryLog(t *testing.T) {
	flags, out := log.Flags(), log.Writer()
	defer func() { log.SetFlags(flags); log.SetOutput(out) }()
	for level, want := range map[string]bool{"debug": true, "info": false} {
		var b bytes.Buffer
		a := &app{stderr: &b, logLevel: level, logFormat: "json"}
		if _, err := a.logger(); err != nil {
			t.Fatal(err)
		}
		log.Printf("unsolicited %q", "\n")
		var line struct{ Level, Message string }
		if got := b.Len() > 0; got != want {
			t.Errorf("%s: %q", level, b.String())
		} else if got && (json.Unmarshal(b.Bytes(), &line) != nil || line.Level != "DEBUG" || !strings.HasPrefix(line.Message, "unsolicited")) {
			t.Errorf("%q", b.String())
		}
	}
}
