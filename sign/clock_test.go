package sign

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClock(t *testing.T) {
	now := time.Unix(vectorTime, 500_000_000)
	at := func(ahead time.Duration) http.Header {
		return http.Header{"Date": {now.Add(-ahead).UTC().Format(http.TimeFormat)}}
	}
	var c Clock
	for i := range 4 {
		c.Observe(fmt.Sprint(i), at(0), now)
	}
	c.Observe("0", at(0), now) // a host counts once
	c.Observe("cached", http.Header{"Date": at(0)["Date"], "Age": {"7"}}, now)
	c.Observe("none", http.Header{}, now)
	c.Observe("wild", at(25*time.Hour), now)
	if _, ok := c.Offset(); ok || c.State() != "unknown" {
		t.Error("an answer from four hosts")
	}
	c.Observe("5", at(time.Hour), now) // one site that is wrong does not matter
	if o, ok := c.Offset(); !ok || o != 0 || c.State() != "ok" {
		t.Errorf("%s %t %s", o, ok, c.State())
	}
	for ahead, want := range map[time.Duration]string{2 * time.Second: "ok", 3 * time.Second: "warn", -3 * time.Second: "warn", -30 * time.Second: "warn", 31 * time.Second: "error"} {
		var c Clock
		for i := range 5 {
			c.Observe(fmt.Sprint(i), at(ahead), now)
		}
		if o, _ := c.Offset(); o != ahead || c.State() != want {
			t.Errorf("%s ahead: %s %s, want %s", ahead, o, c.State(), want)
		}
	}
	for i := range 1000 {
		c.Observe(fmt.Sprint("h", i), at(0), now)
	}
	if len(c.hosts) != clockHosts || len(c.order) != clockHosts {
		t.Errorf("%d hosts are kept", len(c.hosts))
	}
}

func TestResolutions(t *testing.T) {
	noRoot := PublishDefaults()
	noRoot.ServeRoot = false
	served := func(rs []Resolution) (out []string) {
		for _, r := range rs {
			out = append(out, fmt.Sprintf("%t %s", r.Served, r.URL))
		}
		return out
	}
	const host, known = "https://bot.example.com", DirectoryPath
	for _, c := range []struct {
		agent string
		p     PublishConfig
		want  []string
	}{
		{host, PublishDefaults(), []string{"true " + host + "/", "true " + host + known, "true " + host + known}},
		{host, noRoot, []string{"false " + host + "/", "true " + host + known, "true " + host + known}},
		{host + known, PublishDefaults(), []string{"true " + host + known, "true " + host + known, "false " + host + known + known}},
		{host + "/keys", PublishDefaults(), []string{"false " + host + "/keys", "true " + host + known, "false " + host + "/keys" + known}},
		{"http://bot.example.com", PublishDefaults(), nil},
	} {
		if d := cmp.Diff(c.want, served(Resolutions(c.agent, c.p))); d != "" {
			t.Errorf("%s: %s", c.agent, d)
		}
	}
}
