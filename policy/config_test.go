package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readAll(path string) (string, error) {
	b, err := os.ReadFile(filepath.Clean(path))
	return string(b), err
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// problems lists an error as `key: text`.
func problems(t *testing.T, err error) (out []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T", err)
	}
	for _, e := range many.Unwrap() {
		k, ok := e.(interface{ Key() string })
		if !ok {
			t.Fatalf("%v has no key", e)
		}
		if strings.HasSuffix(e.Error(), ".") || strings.Contains(e.Error(), k.Key()) {
			t.Errorf("text of %s: %q", k.Key(), e)
		}
		out = append(out, k.Key())
	}
	return out
}

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	if err := ProfileDefaults().Validate(); err != nil {
		t.Error(err)
	}
	c := Defaults()
	c.ChallengeMarkers = ChallengeMarkers()
	if err := c.Validate(); err != nil {
		t.Errorf("built-in markers: %v", err)
	}
	if ProfileDefaults().StopOn != nil || len(ProfileDefaults().Warnings()) != 0 {
		t.Error("stop_on is set, or the defaults warn")
	}
	zero := Config{CacheBytes: 1 << 20}
	if err := zero.Validate(); err != nil {
		t.Errorf("no bounds on the archive: %v", err)
	}
}

func TestValidateFindsAll(t *testing.T) {
	c := Config{
		CacheBytes: 1, ArchiveMaxAge: time.Hour, ArchiveMaxBytes: -1, ChallengeMarkers: []ChallengeMarker{
			{Header: "x"}, {}, {Body: []string{""}}, {Header: "x", Body: []string{"y"}}, {Header: "x", Status: []int{6}}, {All: []string{"a"}, Status: []int{4, 503}},
		},
	}
	want := []string{"cache_bytes", "archive_max_age", "archive_max_bytes", "challenge_markers[1]", "challenge_markers[2]", "challenge_markers[3]", "challenge_markers[4]"}
	if diff := cmp.Diff(want, problems(t, c.Validate())); diff != "" {
		t.Error(diff)
	}
	p := ProfileConfig{StopOn: []string{"search=no", "search=maybe", "x"}, StaleUse: time.Hour, Retries: 11}
	want = []string{
		"mode", "when_unreadable", "third_party", "on_401_403", "too_many_redirects", "stale_on_error", "response_signals", "visit_time",
		"stop_on[1]", "stop_on[2]", "stale_use", "retries",
	}
	if diff := cmp.Diff(want, problems(t, p.Validate())); diff != "" {
		t.Error(diff)
	}
}

func TestWarnings(t *testing.T) {
	c := ProfileDefaults()
	c.Mode, c.WhenUnreadable = ModeIgnore, Allow
	if w := c.Warnings(); len(w) != 2 {
		t.Errorf("%q", w)
	}
}

func TestTokenProblem(t *testing.T) {
	for _, c := range []struct {
		token, ua string
		problem   string
		warning   bool
	}{
		{"RecordsLabsIngestion", "Mozilla/5.0 (compatible; RecordsLabsIngestion/1.0; +https://x)", "", false},
		{"My_Crawl-er", "", "", false},
		{"", "x", "is empty", false},
		{"Bot/1.0", "Bot/1.0", "may hold only letters", false},
		{"Bot 1", "", "may hold only letters", false},
		{"Bot2", "Bot2/1.0", "holds digits", true},
		{"Other", "Bot/1.0", "does not occur", true},
		{"BOT", "bot/1.0", "", false},
	} {
		problem, warning := TokenProblem(c.token, c.ua)
		if !strings.HasPrefix(problem, c.problem) || (c.problem == "") != (problem == "") || warning != c.warning {
			t.Errorf("%q in %q: %q %v", c.token, c.ua, problem, warning)
		}
	}
}
