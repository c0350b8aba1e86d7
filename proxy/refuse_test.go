package proxy

import (
	"html"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
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
		{policy.Verdict{Class: policy.ClassUnreachable}, RobotsUnreadable, url + " did not come. "},
		{policy.Verdict{Class: policy.ClassChallenge}, RobotsChallenge, url + " was answered by a bot check. "},
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

// Why a robots.txt could not be read stands in the first sentence.
func TestUnreadableWords(t *testing.T) {
	for _, c := range []struct {
		class  string
		status int
		want   string
	}{
		{policy.ClassUnreachable, 500, "answered 500"},
		{policy.ClassUnreachable, 0, "did not come"},
		{policy.ClassRateLimited, 429, "answered 429"},
		{policy.ClassForbidden, 403, "answered 403"},
		{policy.ClassChallenge, 403, "was answered by a bot check"},
		{policy.ClassRedirectBlocked, 302, "redirects to where crawlgate does not go"},
		{policy.ClassTooManyRedirects, 301, "redirects more than five times"},
		{policy.ClassNotArchived, 200, "could not be read"},
	} {
		no := &refusal{code: RobotsUnreadable, verdict: &policy.Verdict{RobotsURL: "https://a.test/robots.txt", Class: c.class, Status: c.status}}
		if got, want := no.sentence(table[RobotsUnreadable]), "https://a.test/robots.txt "+c.want+". Nothing is fetched until it can be read; try again later."; got != want {
			t.Errorf("%s %d: %q, want %q", c.class, c.status, got, want)
		}
	}
}

// The page shows a command to copy, with a URL that whoever made a link has chosen: nothing of it may end the quotes.
func TestRefusalPageCommand(t *testing.T) {
	u := "https://a.test/?q='; touch x; '<b>&$(y)`z`\""
	p := problem{Title: "t", Detail: "d", URL: u}
	_, rest, _ := strings.Cut(string(p.html()), "<code>")
	command, _, _ := strings.Cut(rest, "</code>")
	if got, want := html.UnescapeString(command), "crawlgate check 'https://a.test/?q=%27; touch x; %27<b>&$(y)`z`\"'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if strings.Contains(command, "<") || !strings.Contains(string(p.html()), "<dd>"+html.EscapeString(u)+"</dd>") {
		t.Errorf("%s", p.html())
	}
}

// However the end of a connection shows, it has one name.
func TestConnectionLost(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if no := refusalFor(&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", err)}); no.code != UpstreamFailed || no.class != "connection_lost" {
			t.Errorf("%v: %s %s", err, no.code, no.class)
		}
	}
}
