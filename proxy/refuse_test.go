package proxy

import (
	"testing"

	"crawlgate/policy"
)

// TestSentenceOfRobots: who reads a refusal is told which line decided, or that none did.
func TestSentenceOfRobots(t *testing.T) {
	const url = "https://a.test/robots.txt"
	for _, c := range []struct {
		verdict policy.Verdict
		code    Reason
		want    string
	}{
		{policy.Verdict{Class: policy.ClassRuleDisallow, Rule: "Disallow: /x", Line: 3, Group: "*"}, RobotsDisallow, url + " line 3 says: Disallow: /x (group *). "},
		{policy.Verdict{Class: policy.ClassContentSignal, Rule: "Content-Signal: search=no", Line: 2, Signal: "search=no", SignalLine: 2}, RobotsSignal, url + " line 2 says: search=no. "},
		{policy.Verdict{Class: policy.ClassResponseSignal, Signal: "search=no", Group: "*"}, RobotsSignal, "The last answer for this URL said search=no in its header. "},
		{policy.Verdict{Class: policy.ClassUnreachable}, RobotsUnreadable, url + " could not be read. "},
		{policy.Verdict{Class: policy.ClassChallenge}, RobotsChallenge, url + " could not be read. "},
		{policy.Verdict{Class: policy.ClassNotArchived}, AuditUnavailable, table[AuditUnavailable].title + ". "},
		{policy.Verdict{Class: policy.ClassStoreAway}, Overloaded, table[Overloaded].title + ". "},
	} {
		c.verdict.RobotsURL = url
		if got := (&refusal{code: c.code, verdict: &c.verdict}).sentence(table[c.code]); got != c.want+table[c.code].advice {
			t.Errorf("%s: %q, want %q and the advice", c.verdict.Class, got, c.want)
		}
	}
	past := &refusal{code: RobotsUnreadable, verdict: &policy.Verdict{Class: policy.ClassNoVersion, RobotsURL: url}}
	if got, want := past.sentence(table[RobotsUnreadable]), "The archive holds no version of "+url+" for that time."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
