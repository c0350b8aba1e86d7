package audit

import (
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]target{
		"heads.jsonl":                        {kind: SinkFile, label: "heads.jsonl", address: "heads.jsonl"},
		"/mnt/other disk/heads":              {kind: SinkFile, label: "/mnt/other disk/heads", address: "/mnt/other disk/heads"},
		"https://heads.example/gate/1":       {kind: SinkURL, label: "https://heads.example"},
		"https://u:pass@heads.example:8443/": {kind: SinkURL, label: "https://heads.example:8443"},
		"HTTP://127.0.0.1/?token=pass":       {kind: SinkURL, label: "http://127.0.0.1"},
		"syslog://logs.example":              {kind: SinkSyslog, label: "syslog://logs.example:514", network: "udp", address: "logs.example:514"},
		"syslog+udp://logs.example:5514":     {kind: SinkSyslog, label: "syslog+udp://logs.example:5514", network: "udp", address: "logs.example:5514"},
		"syslog+tcp://[2001:db8::1]/":        {kind: SinkSyslog, label: "syslog+tcp://[2001:db8::1]:514", network: "tcp", address: "[2001:db8::1]:514"},
		"syslog+tls://logs.example":          {kind: SinkSyslog, label: "syslog+tls://logs.example:6514", network: "tls", address: "logs.example:6514"},
		"syslog:///dev/log":                  {kind: SinkSyslog, label: "syslog:///dev/log", network: "unixgram", address: "/dev/log"},
	} {
		got, err := parseTarget(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.text != text || got.kind != want.kind || got.label != want.label || got.network != want.network || got.address != want.address {
			t.Errorf("%s: %+v", text, got)
		}
		if strings.Contains(got.label, "pass") {
			t.Errorf("%s: the label %s shows the password", text, got.label)
		}
	}
	for text, want := range map[string]string{
		"":                              "is empty",
		"heads/":                        "is a folder",
		"ftp://u:pass@h/":               "the scheme \"ftp\" is none of https",
		"syslog:/dev/log":               "write syslog:// and then the host",
		"https:heads.example":           "write https:// and then the host",
		"https://":                      "names no host",
		"https://:8443/pass":            "names no host",
		"https://u:pass@h:port/":        "neither a file nor a URL",
		"https://h/ pass":               "neither a file nor a URL",
		"https://h:0/":                  "port 0 is not",
		"https://h:65536/":              "port 65536 is not",
		"https://h/#pass":               "# part",
		"syslog://u:pass@h":             "no credentials",
		"syslog+tcp://h?pass=1":         "no query",
		"syslog+tcp:///var/run/log":     "names no host",
		"syslog+tls://h/path":           "knows no path",
		"syslog://":                     "names no host",
		"\x00://pass":                   `the scheme "\\u0000" is none of`,
		strings.Repeat("x", 99) + "://": "is none of",
	} {
		_, err := parseTarget(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestTargetWarnings(t *testing.T) {
	c := Defaults()
	c.CheckpointTo = Texts{"http://u:pass@heads.example/", "http://u:pass@127.0.0.1/", "http://u:pass@localhost/", "https://u:pass@heads.example/", "http://heads.example/x", "f"}
	w := c.Warnings()
	if len(w) != 1 || w[0] != "audit.checkpoint_to: the password for http://heads.example goes there unencrypted: write https" {
		t.Errorf("%q", w)
	}
	c.CheckpointTo = Texts{"a", "b", "a"}
	if err := c.Validate(); err == nil || err.Error() != "is named twice" {
		t.Errorf("the same twice: %v", err)
	}
}
