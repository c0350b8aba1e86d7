package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"crawlgate/allowlist"
)

// memoryLedger is a ledger without a file.
type memoryLedger struct{ *allowlist.Ledger }

func (m memoryLedger) List() ([]allowlist.Entry, error) { return m.Ledger.List(), nil }
func (m memoryLedger) Close() error                     { return nil }

// runSites runs one sites command on a ledger and gives its exit code as run would.
func runSites(l *allowlist.Ledger, args ...string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	a := &app{stdout: &out, stderr: &errOut}
	cmd := sitesCmd(a, func(context.Context, *app) (siteLedger, error) { return memoryLedger{l}, nil })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	err := cmd.Execute()
	var e *exitError
	switch {
	case err == nil:
		return out.String(), errOut.String(), exitOK
	case errors.As(err, &e):
		return out.String(), errOut.String() + err.Error(), e.code
	}
	return out.String(), errOut.String() + err.Error(), exitUsage
}

func TestSitesCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := allowlist.NewLedger(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			args           []string
			stdout, stderr string
			code           int
		}{
			{[]string{"list"}, "", "crawlgate: the ledger is empty\n", 0},
			{[]string{"list", "--json"}, "{\"ledger\":[]}\n", "", 0},
			{[]string{"stop", "Example.COM.", "--subdomains", "--reason", "owner's\nmail", "--who", "ada"},
				"example.com and the hosts below it: stopped\n", "", 0},
			{[]string{"slow", "bücher.example", "--gap", "90s", "--who", "ada l"},
				"xn--bcher-kva.example: at least 1m30s between requests\n", "", 0},
			{[]string{"list"}, "" +
				"HOST                   ACTION  GAP    BELOW  AGE  WHO    REASON\n" +
				"example.com            stop    -      yes    0m   ada    owner's mail\n" +
				"xn--bcher-kva.example  slow    1m30s  no     0m   ada_l  \n", "", 0},
			{[]string{"list", "www.example.com", "--json"},
				`{"ledger":[{"host":"example.com","action":"stop","gap_s":0,"subdomains":true,"reason":"owner's\nmail","who":"ada","when":"2000-01-01T00:00:00Z"}]}` + "\n", "", 0},
			{[]string{"list", "other.example"}, "", "crawlgate: no entry holds for other.example\n", 0},
			{[]string{"resume", "www.example.com"}, "www.example.com had no entry; its back-off is forgotten\n",
				"www.example.com: an entry for a host above, with subdomains, still holds: stop example.com", 1},
			{[]string{"resume", "example.com"}, "example.com resumed (was: example.com and the hosts below it: stopped)\n", "", 0},
			{[]string{"resume", "example.com", "--json"}, `{"host":"example.com","removed":null,"still_held":false}` + "\n", "", 0},

			{[]string{"stop"}, "", "stop: HOST is missing; usage: sites stop HOST [flags]", 2},
			{[]string{"stop", "https://example.com/"}, "", `"https://example.com/" is not a host: write the bare name, such as example.com`, 2},
			{[]string{"stop", "*.example.com"}, "", `"*.example.com": write the name and use --subdomains for the hosts below it`, 2},
			{[]string{"stop", "example.com:8080"}, "", `"example.com:8080": an entry holds for every port, write example.com`, 2},
			{[]string{"slow", "example.com"}, "", "--gap is missing: how long to wait between two requests, such as --gap 30s", 2},
			{[]string{"slow", "example.com", "--gap", "10"}, "", "--gap 10 has no unit; write 10s", 2},
			{[]string{"slow", "example.com", "--gap", "soon"}, "", `--gap "soon" is not a duration such as 30s or 5m`, 2},
			{[]string{"slow", "example.com", "--gap", "25h"}, "", "--gap 25h is not above 0s and at most 24h", 2},
			{[]string{"stop", "192.0.2.1", "--subdomains"}, "", "192.0.2.1 is an address, which has no hosts below it", 1},
		} {
			stdout, stderr, code := runSites(l, step.args...)
			if stdout != step.stdout || stderr != step.stderr || code != step.code {
				t.Errorf("sites %q:\nstdout %q\nwant   %q\nstderr %q\nwant   %q\ncode %d, want %d",
					step.args, stdout, step.stdout, stderr, step.stderr, code, step.code)
			}
		}
	})
}

func TestSitesListJSONKeys(t *testing.T) {
	b, err := json.Marshal(siteEntryOf(allowlist.Entry{Host: "a.example", Action: "slow", Gap: 1500 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"host": "a.example", "action": "slow", "gap_s": 1.5, "subdomains": false, "reason": "", "who": "", "when": "0001-01-01T00:00:00Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
