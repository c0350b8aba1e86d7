package proxy

import (
	"strconv"
	"testing"
)

// A rule about a path with a stray percent sign is kept in whichever spelling it is written: the fetcher's, or the one in
// which the path leaves.
func TestStrayPercentIsJudgedInBothSpellings(t *testing.T) {
	r := newRig(t)
	o := r.origin("stray.test", true, "User-agent: *\nDisallow: /50%/a\nDisallow: /75%25/a\n", hello)
	r.start(rigOptions{})
	for _, c := range []struct {
		path   string
		status int
	}{{"/50%/a", 403}, {"/75%/a", 403}, {"/75%25/a", 403}, {"/50%/b", 200}, {"/100%", 200}} {
		f := r.framer(o)
		f.request(1, true, "GET", o, c.path)
		got, err := f.answer(1)
		if want := strconv.Itoa(c.status); err != nil || got[":status"] != want {
			t.Errorf("%s: %v %v, want %s", c.path, got, err, want)
		}
	}
	for _, got := range o.requests() {
		if got.RequestURI != "/50%25/b" && got.RequestURI != "/100%25" {
			t.Errorf("the site was asked for %s", got.RequestURI)
		}
	}
}
