package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"crawlgate/audit"
)

type fakeLedger struct {
	calls []string
	err   error
}

func (f *fakeLedger) List() []LedgerEntry {
	return []LedgerEntry{{Host: "stopped.example", Action: "stop", Reason: "asked by mail <b>", Since: testTime}}
}

func (f *fakeLedger) Stop(_ context.Context, host string, sub bool, reason string) error {
	f.calls = append(f.calls, fmt.Sprint("stop ", host, " ", sub, " ", reason))
	return f.err
}

func (f *fakeLedger) Slow(_ context.Context, host string, sub bool, gap time.Duration, reason string) error {
	f.calls = append(f.calls, fmt.Sprint("slow ", host, " ", sub, " ", gap, " ", reason))
	return f.err
}

func (f *fakeLedger) Resume(_ context.Context, host string) (bool, error) {
	f.calls = append(f.calls, "resume "+host)
	return host == "stopped.example", f.err
}

type fakeJobs struct {
	jobs  []Job
	calls []string
}

func (f *fakeJobs) List() []Job { return f.jobs }

func (f *fakeJobs) End(client, id string) bool {
	f.calls = append(f.calls, "end "+client+" "+id)
	return true
}

func (f *fakeJobs) Limit(client, id string, n int) (bool, error) {
	if n > 100 {
		return true, &BadInput{"the profile's limit is 100"}
	}
	f.calls = append(f.calls, fmt.Sprint("limit ", client, " ", id, " ", n))
	return true, nil
}

func TestLedger(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		err                      error
		code                     int
		call                     string
	}{
		{"stop", "POST", "/api/ledger", `{"host":"a.example","action":"stop","subdomains":true,"reason":"mail"}`, nil, 200, "stop a.example true mail"},
		{"slow", "POST", "/api/ledger", `{"host":"a.example","action":"slow","gap":"30s"}`, nil, 200, "slow a.example false 30s "},
		{"resume", "POST", "/api/ledger", `{"host":"stopped.example","action":"resume"}`, nil, 200, "resume stopped.example"},
		{"delete", "DELETE", "/api/ledger?host=a.example", "", nil, 200, "resume a.example"},
		{"slow without a gap", "POST", "/api/ledger", `{"host":"a.example","action":"slow"}`, nil, 400, ""},
		{"gap without a unit", "POST", "/api/ledger", `{"host":"a.example","action":"slow","gap":"30"}`, nil, 400, ""},
		{"negative gap", "POST", "/api/ledger", `{"host":"a.example","action":"slow","gap":"-1s"}`, nil, 400, ""},
		{"no host", "POST", "/api/ledger", `{"action":"stop"}`, nil, 400, ""},
		{"no host to delete", "DELETE", "/api/ledger", "", nil, 400, ""},
		{"long host", "DELETE", "/api/ledger?host=" + strings.Repeat("a", 254), "", nil, 400, ""},
		{"long reason", "POST", "/api/ledger", `{"host":"a.example","action":"stop","reason":"` + strings.Repeat("x", 1025) + `"}`, nil, 400, ""},
		{"unknown action", "POST", "/api/ledger", `{"host":"a.example","action":"burn"}`, nil, 400, ""},
		{"unknown key", "POST", "/api/ledger", `{"host":"a.example","action":"stop","forever":true}`, nil, 400, ""},
		{"two objects", "POST", "/api/ledger", `{"host":"a.example","action":"stop"}{}`, nil, 400, ""},
		{"no JSON", "POST", "/api/ledger", `host=a.example`, nil, 400, ""},
		{"bad host", "POST", "/api/ledger", `{"host":"a..example","action":"stop"}`, &BadInput{"the host has an empty label"}, 400, "stop a..example false "},
		{"store fails", "POST", "/api/ledger", `{"host":"a.example","action":"stop"}`, errors.New("/var/lib/x: disk full"), 500, "stop a.example false "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			led := &fakeLedger{err: tt.err}
			s := newServer(t, func(o *Options) { o.Ledger = led })
			w := ask(s.Handler(), tt.method, tt.path, ownHost, tt.body, "Authorization: Bearer "+token, "Content-Type: application/json")
			if w.Code != tt.code {
				t.Errorf("%d, want %d: %s", w.Code, tt.code, w.Body)
			}
			if got := strings.Join(led.calls, "; "); got != tt.call {
				t.Errorf("called %q, want %q", got, tt.call)
			}
			if strings.Contains(w.Body.String(), "/var/lib") {
				t.Errorf("a path is shown: %s", w.Body)
			}
		})
	}
	s := newServer(t, func(o *Options) { o.Ledger = new(fakeLedger) })
	if w := ask(s.Handler(), "POST", "/api/ledger", ownHost, "host=a.example", "Authorization: Bearer "+token, "Content-Type: application/x-www-form-urlencoded"); w.Code != 415 {
		t.Errorf("a form: %d", w.Code)
	}
	if w := get(s, "/api/ledger"); !strings.Contains(w.Body.String(), `"host": "stopped.example"`) {
		t.Errorf("list: %s", w.Body)
	}
}

func TestJobs(t *testing.T) {
	f := &fakeJobs{jobs: []Job{
		{ID: "same", Client: "team-a", Pages: 3}, {ID: "same", Client: "team-b", Pages: 4}, {ID: "other", Client: "team-b", MaxPages: 9, Refused: map[string]int{"robots-disallow": 2}},
	}}
	s := newServer(t, func(o *Options) { o.Jobs = f })
	auth := []string{"Authorization: Bearer " + token, "Content-Type: application/json"}
	calls := []struct {
		method, path, body string
		code               int
		has                string
	}{
		{"GET", "/api/jobs", "", 200, `"id": "other"`},
		{"GET", "/api/jobs?client=team-a", "", 200, `"pages": 3`},
		{"GET", "/api/jobs/other", "", 200, `"robots-disallow": 2`},
		{"GET", "/api/jobs/same", "", 409, "add ?client=NAME"},
		{"GET", "/api/jobs/same?client=team-b", "", 200, `"pages": 4`},
		{"GET", "/api/jobs/none", "", 404, ""},
		{"GET", "/api/jobs/", "", 404, ""},
		{"GET", "/api/jobs/a/b", "", 404, ""},
		{"POST", "/api/jobs/other", `{"max_pages":5}`, 200, ""},
		{"POST", "/api/jobs/other", `{"max_pages":500}`, 400, "the profile's limit is 100"},
		{"POST", "/api/jobs/other", `{"max_pages":0}`, 400, ""},
		{"DELETE", "/api/jobs/same?client=team-b", "", 204, ""},
		{"DELETE", "/api/jobs/same", "", 409, ""},
	}
	for _, c := range calls {
		w := ask(s.Handler(), c.method, c.path, ownHost, c.body, auth...)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
	if want := []string{"limit team-b other 5", "end team-b same"}; !cmp.Equal(f.calls, want) {
		t.Error(cmp.Diff(want, f.calls))
	}
}

func TestExplain(t *testing.T) {
	var got []string
	s := newServer(t, func(o *Options) {
		o.Explain = func(_ context.Context, client, profile, raw string, at time.Time) (any, error) {
			got = append(got, fmt.Sprint(client, "|", profile, "|", raw, "|", at.UTC().Format(time.RFC3339)))
			switch raw {
			case "bad":
				return nil, &BadInput{"not a URL"}
			case "fail":
				return nil, errors.New("secret path /x")
			}
			return map[string]string{"reason": "robots-disallow"}, nil
		}
	})
	for _, tt := range []struct {
		query string
		code  int
		has   string
	}{
		{"url=https://a.example/%3Cb%3E&client=team-a&profile=crawl", 200, `"reason": "robots-disallow"`},
		{"url=https://a.example/&at=2026-11-24T10:00:00Z", 200, ""},
		{"url=bad", 400, "not a URL"},
		{"url=fail", 500, "the gate's log"},
		{"", 400, "url is missing"},
		{"url=" + strings.Repeat("a", maxURL+1), 400, "8 KiB"},
		{"url=https://a.example/&client=" + strings.Repeat("a", maxFilter+1), 400, "client"},
		{"url=https://a.example/&at=tuesday", 400, "at is neither"},
		{"url=https://a.example/&at=9999-01-01T00:00:00Z", 400, "future"},
	} {
		w := get(s, "/api/explain?"+tt.query)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.has) {
			t.Errorf("%.60s: %d %s", tt.query, w.Code, w.Body)
		}
	}
	want := []string{
		"team-a|crawl|https://a.example/<b>|0001-01-01T00:00:00Z",
		"||https://a.example/|2026-11-24T10:00:00Z",
		"||bad|0001-01-01T00:00:00Z", "||fail|0001-01-01T00:00:00Z",
	}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// Explanations may wait for a robots.txt: only a few at once, and not for ever.
func TestExplainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) {
			o.Explain = func(ctx context.Context, _, _, _ string, _ time.Time) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		codes := make(chan int, maxExplains)
		for range maxExplains {
			go func() { codes <- get(s, "/api/explain?url=https://a.example/").Code }()
		}
		synctest.Wait()
		if w := get(s, "/api/explain?url=https://a.example/"); w.Code != 503 {
			t.Errorf("one too many: %d", w.Code)
		}
		for range maxExplains {
			if c := <-codes; c != 504 {
				t.Errorf("after a minute: %d", c)
			}
		}
	})
}

func TestAuditQuery(t *testing.T) {
	var got AuditQuery
	s := newServer(t, func(o *Options) {
		o.Audit = func(_ context.Context, q AuditQuery, w io.Writer) error {
			got = q
			if q.Host == "bad" {
				return &BadInput{"no such host"}
			}
			_, err := io.WriteString(w, "{\"seq\":1}\n{\"seq\":2}\n")
			return err
		}
	})
	w := get(s, "/api/audit?since=2026-11-30T09:00:00Z&host=Example.COM&client=team-a&reason=robots-disallow&limit=7")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/jsonl" || w.Body.String() != "{\"seq\":1}\n{\"seq\":2}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want := AuditQuery{Since: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), Host: "example.com", Client: "team-a", Reason: "robots-disallow", Limit: 7}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	for _, q := range []string{"limit=0", "limit=x", "limit=100001", "since=soon", "host=bad", "client=" + strings.Repeat("a", 600)} {
		if w := get(s, "/api/audit?"+q); w.Code != 400 {
			t.Errorf("%.20s: %d", q, w.Code)
		}
	}
}

// A log that fails in the middle must not look like its end.
func TestAuditQueryCutShort(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Audit = func(_ context.Context, _ AuditQuery, w io.Writer) error {
			_, err := io.WriteString(w, "{}\n")
			return errors.Join(err, errors.New("the file ends in the middle"))
		}
	})
	srv := httptest.NewUnstartedServer(s.Handler())
	s.o.Addr = srv.Listener.Addr
	srv.Start()
	defer srv.Close()
	client := srv.Client()
	defer client.CloseIdleConnections()
	res, err := client.Get(srv.URL + "/api/audit")
	if err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("the answer looks whole")
	}
}

func TestStatusAndHosts(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Live = func() Live {
			return Live{Version: "v1", ConfigHash: "abc", Waiting: 2, Hosts: []LiveHost{
				{Host: "calm.example", State: "free"},
				{Host: "held.example", State: "held_back", Cause: "429", Waiting: 2, Queue: []QueueEntry{{"team-a", 2}}},
			}}
		}
	})
	s.Observe(event(1, "https://example.com/a", nil))
	s.Observe(event(3, "https://example.com/b", func(e *audit.Event) { e.BytesIn = 10 }))
	s.Observe(event(4, "https://calm.example/b", func(e *audit.Event) { refusal("robots-disallow")(e); e.Host = "calm.example" }))
	var hosts struct {
		Hosts []hostRow `json:"hosts"`
		Total int       `json:"total"`
	}
	if err := json.Unmarshal(get(s, "/api/hosts").Body.Bytes(), &hosts); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range hosts.Hosts {
		names = append(names, h.Host)
	}
	if want := []string{"held.example", "example.com", "calm.example"}; !cmp.Equal(names, want) || hosts.Total != 3 {
		t.Errorf("hosts %v of %d, want %v: the worst first", names, hosts.Total, want)
	}
	ex := hosts.Hosts[1]
	if ex.Sent != 2 || ex.BytesIn != 10 || ex.SmallestGap == nil || *ex.SmallestGap != 1.85 || *ex.GapOwed != 1 {
		t.Errorf("counts of example.com: %+v", ex)
	}
	if w := get(s, "/api/hosts?host=Held.example"); !strings.Contains(w.Body.String(), `"total": 1`) {
		t.Errorf("one host: %s", w.Body)
	}
	for by, first := range map[string]string{"": "held.example", "requests": "example.com", "received": "example.com", "refused": "calm.example", "waited": "example.com"} {
		hosts.Hosts = nil
		if err := json.Unmarshal(get(s, "/api/hosts?limit=1&sort="+by).Body.Bytes(), &hosts); err != nil {
			t.Fatal(err)
		}
		if len(hosts.Hosts) != 1 || hosts.Hosts[0].Host != first {
			t.Errorf("by %q: %+v", by, hosts.Hosts)
		}
		if w := get(s, "/?sort="+by); w.Code != 200 {
			t.Errorf("page by %q: %d", by, w.Code)
		}
	}
	for _, bad := range []string{"/api/hosts?sort=name", "/?sort=name", "/api/hosts?limit=0"} {
		if w := get(s, bad); w.Code != 400 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
	w := get(s, "/api/status")
	for _, has := range []string{`"version": "v1"`, `"config_hash": "abc"`, `"robots-disallow": {`, `"ready": true`} {
		if !strings.Contains(w.Body.String(), has) {
			t.Errorf("status has no %s: %s", has, w.Body)
		}
	}
}

func TestReady(t *testing.T) {
	checks := []Check{{Name: "configuration", OK: true}, {Name: "audit", OK: true}}
	s := newServer(t, func(o *Options) { o.Ready = func() []Check { return checks } })
	if w := get(s, "/readyz"); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
	checks = append(checks, Check{Name: "redis", Detail: "no answer"})
	w := get(s, "/readyz")
	var got struct {
		Ready    bool     `json:"ready"`
		NotReady []string `json:"not_ready"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != 503 || got.Ready || !cmp.Equal(got.NotReady, []string{"redis"}) || w.Header().Get("Retry-After") == "" {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
	if w := get(s, "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("health: %d %s", w.Code, w.Body)
	}
}

func TestRobotsFile(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	s := newServer(t, func(o *Options) {
		o.RobotsFile = func(h string) ([]byte, bool) { return []byte("<script>alert(1)</script>\n"), h == sum }
	})
	w := get(s, "/api/robots/"+sum)
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for path, want := range map[string]int{
		"/api/robots/" + strings.Repeat("0b", 32): 404, "/api/robots/x": 400, "/api/robots/" + strings.Repeat("0A", 32): 400, "/api/robots/..%2f..%2fca.key": 404,
	} {
		if w := get(s, path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestControlHandler(t *testing.T) {
	led := new(fakeLedger)
	s := newServer(t, func(o *Options) { o.Ledger = led; o.Token = ""; o.ReadToken = true })
	w := ask(s.ControlHandler(), "POST", "/api/ledger", "crawlgate", `{"host":"a.example","action":"stop"}`, "Content-Type: application/json")
	if w.Code != 200 || len(led.calls) != 1 {
		t.Errorf("over the control socket: %d %s", w.Code, w.Body)
	}
}
