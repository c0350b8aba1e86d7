package main

import (
	"bytes"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"crawlgate/admin"
	"crawlgate/audit"
	"crawlgate/configs"
	"crawlgate/proxy"
)

var update = flag.Bool("update", false, "rewrite generated documents")

const referenceFile = "../../docs/reference.md"

// The reference is made from the code, so that it cannot say something else.
func TestReference(t *testing.T) {
	want := reference(t)
	if *update {
		if err := os.WriteFile(referenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says; run go test ./cmd/crawlgate -run TestReference -update", referenceFile)
	}
}

func reference(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Reference\n\nMade from the code by a test. Words: [policies.md](policies.md); set-up: [clients.md](clients.md), [operations.md](operations.md).\n\n")
	p("## Commands\n\n| command | what it does |\n| --- | --- |\n")
	root := newRootCmd(&app{})
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		subs := []string{}
		for _, s := range c.Commands() {
			subs = append(subs, s.Name())
		}
		name := "`" + c.Name() + "`"
		if len(subs) > 0 {
			name = "`" + c.Name() + " " + strings.Join(subs, "/") + "`"
		}
		p("| %s | %s |\n", name, c.Short)
	}
	p("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n| %d | done, or allowed |\n| %d | failed; also: chain broken, `verify` invalid |\n"+
		"| %d | usage or configuration, nothing was started; `verify`: undecided |\n| %d | refused by policy |\n| %d | `run`: the gate itself failed (126 and 127 as shells do, 128+n for a signal) |\n",
		exitOK, exitFailed, exitUsage, exitRefused, exitGate)
	p("\n## Reason codes\n\nThe one list. An answer that crawlgate made itself carries the code in `Crawlgate-Reason`; the member `class` of the body says it more finely.\n\n")
	p("| code | status | meaning | what to do |\n| --- | --- | --- | --- |\n")
	for _, r := range proxy.ReasonTable() {
		p("| `%s` | %d | %s | %s |\n", r.Code, r.Status, r.Title, r.Advice)
	}
	p("\n`bad-request` is also 408, 414, 417, 431, 501 or 505. `url-left` is 410, class `gone`, where the site has said so and the profile takes it for final (`on_410`).\n")
	p("\n## Fields\n\n| field | where | meaning |\n| --- | --- | --- |\n")
	for _, f := range [][3]string{
		{"Crawlgate-Request-Id", "every answer", "the id of the audit event"},
		{"Crawlgate-Reason", "answers of crawlgate itself", "the reason code"},
		{"Crawlgate-Waited", "answers of sites", "seconds waited for the turn, where it waited"},
		{"Crawlgate-Indexing", "answers of sites", "`noindex`, `nofollow` as the page asks; what its meta tags say later than the head comes as a trailer to fetchers that send `TE: trailers` (over HTTP/1.1 the page is then chunked)"},
		{"Crawlgate-Stored", "answers from the store", "`unchanged`: the site was asked and said 304, and this is the answer it sent before, with the fields of the 304 (`revalidate`); `lastmod`: by its sitemap it has not changed since, and the site was not asked (`revalidate.lastmod`)"},
		{"Age", "answers from the store", "seconds, RFC 9111 5.1"},
		{"Proxy-Status", "answers of crawlgate itself", "RFC 9209: `crawlgate; error=...; details=\"CODE: ...\"`"},
		{"Retry-After", "answers of crawlgate itself", "where waiting helps"},
		{"Crawlgate-Profile", "requests", "profile to fetch by; only for clients with `fields: true`"},
		{"Crawlgate-Job", "requests", "`ID` or `ID;max-pages=N`; as above"},
		{"Crawlgate-Kind", "requests", "`page`, `subresource` or `sitemap`; only without Sec-Fetch fields"},
		{"Crawlgate-Page", "requests", "URL of the page a file belongs to"},
		{"Crawlgate-Max-Wait", "requests", "seconds; shortens the wait for the turn, never lengthens it"},
	} {
		p("| `%s` | %s | %s |\n", f[0], f[1], f[2])
	}
	p("\nNone of the fields that a fetcher sends under these names, and none of `Signature*`, `Proxy-*`, `Forwarded`, `X-Forwarded-*`, `Via`, reaches a site.\n")
	p("\n## Configuration\n\nEvery key with its default, from `configs/example.yaml`:\n\n```yaml\n%s```\n", exampleFile(t))
	p("\n## Metrics\n\n| metric | type | meaning |\n| --- | --- | --- |\n")
	for _, m := range metrics(t) {
		p("| `%s` | %s | %s |\n", m[0], m[1], m[2])
	}
	p("\n## Audit event\n\n%s", audit.FieldsMarkdown())
	return b.Bytes()
}

func exampleFile(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../configs/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// metrics lists what the admin listener exposes under our own prefix.
func metrics(t *testing.T) [][3]string {
	t.Helper()
	s := admin.New(admin.Options{Gauges: func() admin.Gauges { return admin.Gauges{} }, Ready: func() []admin.Check { return nil }})
	defer s.Close()
	w := httptest.NewRecorder()
	s.ControlHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	byName := map[string]*[3]string{}
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		word := strings.SplitN(line, " ", 4)
		if len(word) < 4 || !strings.HasPrefix(word[2], "crawlgate_") {
			continue
		}
		m := byName[word[2]]
		if m == nil {
			m = &[3]string{word[2]}
			byName[word[2]] = m
		}
		switch word[1] {
		case "HELP":
			m[2] = word[3]
		case "TYPE":
			m[1] = word[3]
		}
	}
	var out [][3]string
	for _, m := range byName {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b [3]string) int { return strings.Compare(a[0], b[0]) })
	if len(out) < 20 {
		t.Fatalf("only %d metrics", len(out))
	}
	return out
}

// The list of codes in the admin's metrics is the list that answers use.
func TestReasonsAreOneList(t *testing.T) {
	var have []string
	for _, r := range proxy.ReasonTable() {
		have = append(have, r.Code)
	}
	want := slices.Clone(admin.Reasons())
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("proxy knows %v\nadmin knows %v", have, want)
	}
}

// The example is what the reference prints and what `config check` takes.
func TestExampleLoads(t *testing.T) {
	if _, _, err := configs.Load(configs.Options{File: "../../configs/example.yaml", Env: []string{"HOME=/tmp"}}); err != nil {
		t.Error(err)
	}
}
