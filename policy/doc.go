// Package policy answers one question: does the site allow this URL? It reads robots.txt (RFC 9309), Content-Signal,
// Content-Usage, Crawl-delay and Request-rate, keeps what it read for at most a day, and archives every version.
//
//	p := policy.New(policy.Defaults(), fetcher, archive, logger)
//	v := p.Check(ctx, policy.Query{URL: u, Agent: "example", Token: "ExampleBot", Profile: policy.ProfileDefaults()})
//	if !v.Allowed {
//		return fmt.Errorf("%s: %s (line %d: %s)", u, v.Reason, v.Line, v.Rule)
//	}
//
// A file that cannot be read never becomes a file without rules: every failure has a class of its own and refuses,
// unless the profile says otherwise.
package policy
