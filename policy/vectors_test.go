package policy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vectors is testdata/robots.json; a field that is absent in want is not compared.
type vectors struct {
	Cases []struct {
		ID, About    string
		Robots       string
		RobotsB64    string  `json:"robots_b64"`
		RobotsParts  [][]any `json:"robots_parts"`
		ProductToken string  `json:"product_token"`
		URL          string
		Fallback     []string
		StopOn       []string `json:"stop_on"`
		Preset, Mode string
		At           time.Time
		Want         map[string]any
	}
	FetchCases []struct {
		ID, About    string
		Preset, Mode string
		ProductToken string `json:"product_token"`
		URL          string
		Responses    []scripted
		Config       map[string]string
		Want         struct {
			Allowed bool
			Reason  string
		}
	} `json:"fetch_cases"`
}

type scripted struct {
	Status  int
	Headers map[string]string
	Body    string
	Error   string
}

func loadVectors(tb testing.TB) *vectors {
	tb.Helper()
	raw, err := os.ReadFile("testdata/robots.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		tb.Fatal(err)
	}
	return &v
}

// preset is the part of section 9's table that the vectors use.
func preset(t *testing.T, name, mode string) ProfileConfig {
	t.Helper()
	c := ProfileDefaults()
	if name == "" {
		c.StopOn = []string{}
		return c
	}
	c.Mode = mode
	switch name {
	case "recordslabs":
		c.StopOn = []string{"ai-input=no", "search=no", "use=immediate"}
		c.StaleOnError = Deny
	case "roftrlabs":
		c.StopOn = []string{}
		if mode == ModeNamed {
			c.WhenUnreadable = Allow
		}
	case "unlob":
		c.StopOn, c.StaleOnError, c.ThirdParty = []string{}, Deny, Own
	default:
		t.Fatalf("unknown preset %q", name)
	}
	return c
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func TestVectors(t *testing.T) {
	for _, c := range loadVectors(t).Cases {
		t.Run(c.ID, func(t *testing.T) {
			body := []byte(c.Robots)
			if c.RobotsB64 != "" {
				var err error
				if body, err = base64.StdEncoding.DecodeString(c.RobotsB64); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range c.RobotsParts {
				body = append(body, strings.Repeat(p[0].(string), int(p[1].(float64)))...)
			}
			pc := preset(t, c.Preset, c.Mode)
			if c.StopOn != nil {
				pc.StopOn = c.StopOn
			}
			start := time.Now()
			var v Verdict
			switch pc.Mode {
			case ModeIgnore:
				v.allow(ClassNotConsulted)
			default:
				g := Parse(body).Group(c.ProductToken, c.Fallback...)
				if pc.Mode == ModeNamed {
					g = Parse(body).NamedGroup(c.ProductToken, c.Fallback...)
				}
				v = g.DecideString(c.URL, Options{StopOn: pc.StopOn, At: c.At})
			}
			if d := time.Since(start); d > 500*time.Millisecond {
				t.Errorf("took %v", d)
			}
			if u, err := url.Parse(c.URL); err == nil && pc.Mode == ModeObey {
				same := Parse(body).Group(c.ProductToken, c.Fallback...).Decide(u, Options{StopOn: pc.StopOn, At: c.At})
				if diff := cmp.Diff(v, same); diff != "" {
					t.Errorf("text and URL differ: %s", diff)
				}
			}
			sitemaps, signals := []any{}, map[string]any{}
			for _, s := range v.Sitemaps {
				sitemaps = append(sitemaps, s)
			}
			for k, s := range v.Signals {
				signals[k] = s
			}
			got := map[string]any{
				"allowed": v.Allowed, "reason": v.Class, "rule": orNil(v.Rule), "line": nil, "crawl_delay_s": nil,
				"sitemaps": sitemaps, "signals": signals,
			}
			if v.Line > 0 {
				got["line"] = float64(v.Line)
			}
			if v.DelaySource != "" {
				got["crawl_delay_s"] = v.Delay.Seconds()
			}
			for k, want := range c.Want {
				if diff := cmp.Diff(want, got[k]); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", c.About, k, diff)
				}
			}
		})
	}
}

// script is a Fetcher that answers with a list of responses, each hop the next.
type script struct {
	responses []scripted
	asked     []FetchRequest
}

func (s *script) Fetch(_ context.Context, r FetchRequest) (*FetchResponse, error) {
	i := len(s.asked)
	s.asked = append(s.asked, r)
	if r.URL.Hostname() == "127.0.0.1" {
		return nil, &FetchError{Reason: "address-denied", Class: "addr_loopback", Err: errors.New("127.0.0.1 is not public")}
	}
	if i >= len(s.responses) {
		return nil, errors.New("asked once too often")
	}
	return s.responses[i].answer()
}

func (r scripted) answer() (*FetchResponse, error) {
	switch r.Error {
	case "":
	case "dns":
		return nil, &FetchError{Reason: "dns-failed", Class: "dns_error", Err: errors.New("no such host")}
	case "tls":
		return nil, &FetchError{Reason: "upstream-tls", Class: "tls_failed", Err: errors.New("bad certificate")}
	case "timeout":
		return nil, &FetchError{Reason: "upstream-timeout", Class: "connect_timeout", Err: context.DeadlineExceeded}
	default:
		return nil, errors.New("connection reset")
	}
	h := http.Header{}
	for k, v := range r.Headers {
		h.Set(k, v)
	}
	return &FetchResponse{Status: r.Status, Header: h, Body: io.NopCloser(strings.NewReader(r.Body))}, nil
}

func TestFetchVectors(t *testing.T) {
	for _, c := range loadVectors(t).FetchCases {
		t.Run(c.ID, func(t *testing.T) {
			pc := preset(t, c.Preset, c.Mode)
			pc.Retries = 0
			for k, v := range c.Config {
				if k != "on_401_403" {
					t.Fatalf("unknown key %q", k)
				}
				pc.On401403 = v
			}
			u, err := url.Parse(c.URL)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{responses: c.Responses}
			p := New(Defaults(), s, nil, nil)
			q := Query{URL: u, Agent: "a", Token: c.ProductToken, Profile: pc}
			v := p.Check(t.Context(), q)
			if v.Allowed != c.Want.Allowed || v.Class != c.Want.Reason {
				t.Errorf("%s: got %v %s (%s), want %v %s", c.About, v.Allowed, v.Class, v.Reason, c.Want.Allowed, c.Want.Reason)
			}
			if v.Allowed != (v.Reason == ReasonOK) {
				t.Errorf("allowed %v with reason %q", v.Allowed, v.Reason)
			}
			// The second page is judged without another fetch, and alike.
			n := len(s.asked)
			if again := p.Check(t.Context(), q); again.Allowed != v.Allowed || again.Class != v.Class || len(s.asked) != n {
				t.Errorf("second answer: %v %s after %d more requests", again.Allowed, again.Class, len(s.asked)-n)
			}
			hosts := slices.ContainsFunc(s.asked, func(r FetchRequest) bool { return r.Header.Get("If-None-Match") != "" })
			if hosts {
				t.Error("conditional request without a copy")
			}
		})
	}
}
