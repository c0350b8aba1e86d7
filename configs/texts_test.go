package configs

import (
	"slices"
	"strings"
	"testing"

	"crawlgate/audit"
)

// checkpoint_to is one text or a list, wherever it is written.
func TestTextOrList(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		opt  func(*Options)
		want audit.Texts
	}{
		"nothing":           {text: "", want: audit.Texts{}},
		"null":              {text: "audit: {checkpoint_to: }\n", want: audit.Texts{}},
		"an empty text":     {text: "audit: {checkpoint_to: ''}\n", want: audit.Texts{}},
		"an empty list":     {text: "audit: {checkpoint_to: []}\n", want: audit.Texts{}},
		"one":               {text: "audit: {checkpoint_to: /mnt/heads}\n", want: audit.Texts{"/mnt/heads"}},
		"a list":            {text: "audit:\n  checkpoint_to:\n    - /mnt/heads\n    - https://heads.example/\n", want: audit.Texts{"/mnt/heads", "https://heads.example/"}},
		"a variable":        {opt: env("CRAWLGATE_AUDIT_CHECKPOINT_TO=https://u:p@heads.example/?a=[1]"), want: audit.Texts{"https://u:p@heads.example/?a=[1]"}},
		"a list, variable":  {opt: env("CRAWLGATE_AUDIT_CHECKPOINT_TO=[/mnt/heads, 'syslog://logs.example']"), want: audit.Texts{"/mnt/heads", "syslog://logs.example"}},
		"an empty variable": {text: "audit: {checkpoint_to: /mnt/heads}\n", opt: env("CRAWLGATE_AUDIT_CHECKPOINT_TO="), want: audit.Texts{}},
		"a flag":            {text: "audit: {checkpoint_to: [/mnt/heads, /b]}\n", opt: flags(map[string]string{"audit.checkpoint_to": "/c"}), want: audit.Texts{"/c"}},
	} {
		opts := []func(*Options){}
		if c.opt != nil {
			opts = append(opts, c.opt)
		}
		got, _ := mustLoad(t, c.text, opts...)
		if !slices.Equal(got.Audit.CheckpointTo, c.want) {
			t.Errorf("%s: %q, want %q", name, got.Audit.CheckpointTo, c.want)
		}
	}
	c, src := mustLoad(t, "audit:\n  checkpoint_to: ~/heads\n")
	if to := c.Audit.CheckpointTo; len(to) != 1 || !strings.HasSuffix(to[0], "/heads") || to[0][0] != '/' {
		t.Errorf("home: %q", to)
	}
	if got := src.Origin("audit.checkpoint_to"); got != "crawlgate.yaml:2" {
		t.Errorf("origin %s", got)
	}
	if got := c.Show(src); !strings.Contains(got, "/heads] # crawlgate.yaml:2\n") {
		t.Errorf("shown as\n%s", got)
	}
}

func TestCheckpointToProblems(t *testing.T) {
	for text, want := range map[string]string{
		"audit:\n  checkpoint_to: ftp://u:secret@h/\n":                    "crawlgate.yaml: 1 problem\n  line 2  audit.checkpoint_to: the scheme \"ftp\" is none of https, http, syslog+tls, syslog+tcp, syslog+udp, syslog (a file is named without one)",
		"audit:\n  checkpoint_to:\n    - a\n    - https://u:secret@:1/\n": "crawlgate.yaml: 1 problem\n  line 4  audit.checkpoint_to[1]: the URL names no host",
		"audit:\n  checkpoint_to: [a, a]\n":                               "crawlgate.yaml: 1 problem\n  line 2  audit.checkpoint_to[1]: is named twice",
		"audit:\n  checkpoint_to: 7\n":                                    "crawlgate.yaml: 1 problem\n  line 2  audit.checkpoint_to: 7 is a number; write it in quotes for text",
		"audit:\n  checkpoint_to: {a: b}\n":                               "crawlgate.yaml: 1 problem\n  line 2  audit.checkpoint_to must be a list; begin each item with a dash",
		"audit:\n  checkpoint_to: [['a']]\n":                              "crawlgate.yaml: 1 problem\n  line 2  audit.checkpoint_to[0] must be one value, text",
	} {
		_, _, err := load(t, text)
		wantProblems(t, err, want)
	}
	_, _, err := load(t, "", env("CRAWLGATE_AUDIT_CHECKPOINT_TO=https://u:secret@h:x/"))
	wantProblems(t, err, "environment: 1 problem\n  CRAWLGATE_AUDIT_CHECKPOINT_TO: is neither a file nor a URL like https://heads.example/gate or syslog+tls://logs.example")
}

// What may be a credential is shown nowhere, and where heads go is no policy towards sites.
func TestCheckpointToShown(t *testing.T) {
	plain, _ := mustLoad(t, "")
	c, src := mustLoad(t, "audit: {checkpoint_to: [/mnt/heads, 'https://hunter1:hunter2@h:8443/gate?key=hunter3&a=', 'https://hunter4@h/', 'syslog://logs.example']}\n")
	b, err := c.ShowJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{c.Show(nil), c.Show(src), string(b)} {
		for _, want := range []string{"/mnt/heads", "https://xxxxx:xxxxx@h:8443/gate?a=xxxxx", "key=xxxxx", "https://xxxxx:xxxxx@h/", "syslog://logs.example"} {
			if !strings.Contains(strings.ReplaceAll(text, `\u0026`, "&"), want) {
				t.Errorf("%s is not in\n%s", want, text)
			}
		}
		if strings.Contains(text, "hunter") {
			t.Errorf("a secret is shown:\n%s", text)
		}
	}
	if c.Hash() != plain.Hash() {
		t.Error("where heads go changes the policy's hash")
	}
	// What was shown loads again: the configurations that a gate keeps are read that way.
	if _, _, err := load(t, c.Show(nil)); err != nil {
		t.Error(err)
	}
}
