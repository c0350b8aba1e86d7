package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crawlgate/pacing"
)

func TestLiveHosts(t *testing.T) {
	hold, open := testTime.Add(time.Minute), testTime.Add(time.Hour)
	got := LiveHosts([]pacing.HostView{
		{Host: "a.example", State: "held_back", Waiting: 3, Clients: []string{"team-a", "team-b"}, InFlight: 1, NextAt: hold, Gap: time.Second, Delay: 5 * time.Second, HoldUntil: hold},
		{Host: "b.example", State: "stopped", HoldUntil: hold, OpenUntil: open, Gap: 2 * time.Second, Delay: time.Second, Level: 2},
	})
	want := []LiveHost{
		{Host: "a.example", State: "held_back", Waiting: 3, Queue: []QueueEntry{{Client: "team-a"}, {Client: "team-b"}}, InFlight: 1, NextTurn: hold, Gap: 5 * time.Second, Until: hold},
		{Host: "b.example", State: "stopped", Cause: "almost every answer was a refusal", Until: open, Gap: 2 * time.Second, Level: 2},
	}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// The labels of the metrics are the words that the keeper uses.
func TestPacingGauges(t *testing.T) {
	p, err := pacing.New(pacing.Defaults(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	p.CountShortfall()
	p.CountOverrun("stall_timeout")
	s := newServer(t, func(o *Options) {
		o.Gauges = func() Gauges {
			var g Gauges
			g.Pacing(p.Stats())
			return g
		}
	})
	text := scrape(t, s)
	has(t, text, `crawlgate_turn_gap_shortfall_total 1`)
	has(t, text, `crawlgate_turn_overrun_total{limit="stall_timeout"} 1`)
	st := p.Stats()
	for set, m := range map[string]map[string]int{"hosts": st.Hosts} {
		for k := range m {
			if known(hostStates, k) == reasonOther {
				t.Errorf("%s: %q is not in the closed set", set, k)
			}
		}
	}
	for k := range st.Incidents {
		if known(incidentClasses, k) == reasonOther {
			t.Errorf("incident %q is not in the closed set", k)
		}
	}
	for k := range st.Overruns {
		if known(overrunLimits, k) == reasonOther {
			t.Errorf("limit %q is not in the closed set", k)
		}
	}
}
