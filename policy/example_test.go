package policy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"crawlgate/policy"
)

func ExampleRuleset_Match() {
	rs := policy.Parse([]byte("User-agent: ExampleBot\nDisallow: /private/\nAllow: /private/press/\n"))
	for _, s := range []string{"https://example.com/private/a.html", "https://example.com/private/press/1", "https://example.com/docs"} {
		u, err := url.Parse(s)
		if err != nil {
			panic(err)
		}
		m := rs.Match("ExampleBot", nil, u)
		fmt.Println(m.Allowed, m.Class, m.Rule, m.Line)
	}
	// Output:
	// false rule_disallow Disallow: /private/ 2
	// true rule_allow Allow: /private/press/ 3
	// true no_match  0
}

// oneFile is a Fetcher that answers every request with the same file.
type oneFile string

func (f oneFile) Fetch(context.Context, policy.FetchRequest) (*policy.FetchResponse, error) {
	return &policy.FetchResponse{Status: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(f)))}, nil
}

func ExamplePolicy_Check() {
	p := policy.New(policy.Defaults(), oneFile("User-agent: *\nCrawl-delay: 10\nContent-Signal: ai-input=no\n"), nil, nil)
	u, err := url.Parse("https://example.com/")
	if err != nil {
		panic(err)
	}
	v := p.Check(context.Background(), policy.Query{
		URL: u, Agent: "example", Token: "ExampleBot", Profile: policy.ProfileDefaults(), StopOn: policy.StopOnFor([]string{"ai-input"}),
	})
	fmt.Println(v.Allowed, v.Reason, v.Rule, v.Line, v.Delay)
	// Output: false robots-signal Content-Signal: ai-input=no 3 10s
}

func ExampleStopOnFor() {
	fmt.Println(policy.StopOnFor([]string{"search", "ai-input"}))
	// Output: [search=no use=immediate ai-input=no]
}
