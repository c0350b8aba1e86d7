package main

// The rows of all three operators. A mutation changes one thing, and says what the check then has to report.

func crawlWith(text string) string { return "profiles: [{name: crawl, " + text + "}]\n" }

func profileWith(name, text string) string { return "profiles: [{name: " + name + ", " + text + "}]\n" }

var recordsLabs = []promise{
	{id: "RL-1", text: "Visits only sites that an organisation added: a whole site, a sitemap's URLs, or a list of pages",
		where: "`allowlist.CheckContext`, entries of `clients[].sites`", check: checkAddedSites, wrong: []mutation{
			{name: "any site is allowed", config: crawlWith("sites: any"), says: "not refused with site-denied"},
			{name: "the list of pages is a whole site", config: "clients: [{name: org-a, sites: [\"https://*.acme.test:$PORT3/\"]}]\n", says: "/c: not refused"}}},
	{id: "RL-2", text: "... and the pages they redirect to, and the files their pages link to",
		where: "`allowlist.ObserveRedirect`, `allowlist.ObserveHTML`", check: checkRedirectsAndFiles, wrong: []mutation{
			{name: "no grants", config: "clients: [{name: org-a, grants: []}]\n", says: "the redirect's target: got 403 site-denied"},
			{name: "any site is allowed", config: crawlWith("sites: any"), says: "a file that was not linked to: not refused"}}},
	{id: "RL-3", text: "A page may load images and other files from other hosts (a CDN)",
		where: "`allowlist.CheckContext`, page windows (`grants` with `subresources`)", check: checkOtherHostsFiles, wrong: []mutation{
			{name: "no grant for subresources", config: "clients: [{name: browser, grants: [redirects, files]}]\n", says: "cdn.test/pic.svg was not asked for"}}},
	{id: "RL-4", text: "User-Agent `Mozilla/5.0 (compatible; RecordsLabsIngestion/1.0; +https://recordslabs.ai/ingestion)` on every crawl request, whatever the fetcher sent",
		where: "`proxy` step 6 (dress); `policy.Fetcher` for robots.txt", check: checkUserAgent, wrong: []mutation{
			{name: "another user agent", config: "agents: [{name: ingestion, user_agent: RecordsLabsIngestion/1.0}]\n", says: "asked for by the user agent"}}},
	{id: "RL-5", text: "Every HTTPS request to an added site is signed with Web Bot Auth; the public key directory verifies it",
		where: "`sign.Sign`, `sign.ServeDirectory`; `proxy` decides which (`sign: sites`)", check: checkSignatures, wrong: []mutation{
			{name: "never signed", config: crawlWith("sign: never"), says: "is not signed"},
			{name: "all signed", config: crawlWith("sign: all"), says: "elsewhere.test/ is signed"}}},
	{id: "RL-6", text: "The egress addresses are published (five of them), and nothing else is used",
		where: "`proxy/guard.DialContext` (`egress.source_addresses`), `/ip-ranges.json` of `admin`", check: checkAddresses, wrong: []mutation{
			{name: "the system chooses", config: "egress: {source_addresses: []}\n", says: "was asked from 127.0.0.1, which is not published"},
			{name: "a sixth address", config: "egress: {source_addresses: [127.0.0.11, 127.0.0.12, 127.0.0.13, 127.0.0.14, 127.0.0.15, 127.0.0.16]}\n", says: "/ip-ranges.json lists"}}},
	{id: "RL-7", text: "robots.txt is read first, and holds for each page, redirect, sitemap file, linked file and image",
		where: "`policy.Check`", check: checkRobotsFirst, wrong: []mutation{
			{name: "robots.txt is ignored", config: crawlWith("robots: {mode: ignore}"), says: "an image: not refused with robots-disallow"}}},
	{id: "RL-8", text: "The crawler's own group if there is one, and then only that; else `*`; most specific rule wins; `*` and `$`",
		where: "`policy.Parse`, `policy.Ruleset.Group`", check: checkGroups, wrong: []mutation{
			{name: "another token", config: "agents: [{name: ingestion, product_token: ingestion}]\n", says: "got 403 robots-disallow"},
			{name: "only a group of its own name counts", config: crawlWith("robots: {mode: named}"), says: "star.test:"}}},
	{id: "RL-9", text: "A change of robots.txt takes effect within a day",
		where: "`policy.Check` (24 h at most), `policy.Archive` across restarts", check: checkWithinADay, wrong: []mutation{
			{name: "only an hour passed", other: true, says: "a page after the change, a day later: not refused"}}},
	{id: "RL-10", text: "`Crawl-delay: N`: at least N seconds between pages; each image download, each render and each second request for the same page waits its own turn too, or is skipped when that turn is too far away",
		where: "`pacing.Acquire`", check: checkCrawlDelay, wrong: []mutation{
			{name: "delays are cut", config: "pacing: {longest_delay: 1s}\n", says: "sooner than 2s"},
			{name: "the site asks for less", site: func(o *origin, _ string) { o.robots = "User-agent: *\nCrawl-delay: 1\n" }, says: "its image: not refused with turn-too-far"}}},
	{id: "RL-11", text: "`Request-rate: 1/20` works; with both the slower one; more than a day counts as a day",
		where: "`policy.Check` (reads both), `pacing.Acquire` (keeps the slower)", check: checkRequestRate, wrong: []mutation{
			{name: "delays are cut", config: "pacing: {longest_delay: 10s}\n", says: "Retry-After 10, not 86400"}}},
	{id: "RL-12", text: "`Content-Signal: ai-input=no` in the followed group, or above the first `User-agent` line, is a `Disallow: /`",
		where: "`policy.Check` (`stop_on`)", check: checkAIInput, wrong: []mutation{
			{name: "no signal stops", config: crawlWith("robots: {stop_on: []}"), says: "not refused with robots-signal"},
			{name: "the other signals stop", config: crawlWith("robots: {stop_on: [search=no, use=immediate]}"), says: "not refused with robots-signal"}}},
	{id: "RL-13", text: "`search=no` and `use=immediate` likewise; `use=reference` and `ai-train=no` do not stop it",
		where: "`policy.Check` (`stop_on`)", check: checkOtherSignals, wrong: []mutation{
			{name: "only ai-input stops", config: crawlWith("robots: {stop_on: [ai-input=no]}"), says: "not refused with robots-signal"},
			{name: "ai-train stops too", config: crawlWith("robots: {stop_on: [ai-input=no, search=no, use=immediate, ai-train=no]}"), says: "got 403 robots-signal"}}},
	{id: "RL-14", text: "robots.txt unreachable, 5xx or 429: no page is read; a few more tries; then stop for that round",
		where: "`policy.Check` (`when_unreadable`, `retries`)", check: checkUnreadable, wrong: []mutation{
			{name: "unreadable allows", config: crawlWith("robots: {when_unreadable: allow}"), says: "not refused with robots-unreadable"},
			{name: "one try", config: crawlWith("robots: {retries: 0}"), says: "robots.txt was asked for 1 times"}}},
	{id: "RL-15", text: "A recognised firewall or bot check in place of robots.txt: no page is read",
		where: "`policy.ChallengeMarkers`", check: checkChallenge, wrong: []mutation{
			{name: "unreadable allows", config: crawlWith("robots: {when_unreadable: allow}"), says: "not refused with robots-challenge"}}},
	{id: "RL-16", text: "robots.txt 404 or another plain 4xx: no rules",
		where: "`policy.Check`", check: checkNoRules, wrong: []mutation{
			{name: "401 and 403 forbid", config: crawlWith("robots: {on_401_403: deny}"), says: "www.plain403.test"}}},
	{id: "RL-17", text: "One page at a time per host name, about one second after each page ends; linked files likewise; sitemap files one after another; the same across all organisations",
		where: "`pacing.Acquire`, one keeper for all clients", check: checkOneAtATime, wrong: []mutation{
			{name: "a shorter gap", config: crawlWith("pacing: {gap: 500ms}"), says: "sooner than 1s"},
			{name: "three at a time", config: crawlWith("pacing: {parallel: 3}"), says: "sooner than 1s"}}},
	{id: "RL-18", text: "Without a delay in robots.txt: a same-site redirect, a page's images, a render and a second request for the same page do not wait for a second of their own",
		where: "`pacing.Companion`, kinds by `proxy`", check: checkRiders, wrong: []mutation{
			{name: "redirects take turns", config: crawlWith("pacing: {redirect: own_turn}"), says: "/page came"},
			{name: "files take turns", config: crawlWith("pacing: {companions: own_turn}"), says: "/image.png came"}}},
	{id: "RL-19", text: "After a 304, about 1 in 50 pages is asked for once more in full",
		where: "`proxy.Answers` (`revalidate.full_every`)", check: checkFullNowAndThen, wrong: []mutation{
			{name: "never in full", config: "revalidate: {full_every: 0}\n", says: "0 of 100 were asked for in full"},
			{name: "one in five", config: "revalidate: {full_every: 5}\n", says: "of 100 were asked for in full"},
			{name: "nothing is kept", config: "revalidate: {enabled: false}\n", says: "was not asked whether it has changed"}}},
	{id: "RL-20", text: "A browser engine sends the same user agent, loads the page's files several at a time except the ones robots.txt disallows, and does not follow a script's navigation to another page",
		where: "`proxy` classification (`limits.deny_kinds`), `policy.Check`, `pacing.Companion`", check: checkBrowser, wrong: []mutation{
			{name: "script navigations pass", config: crawlWith("limits: {deny_kinds: []}"), says: "/other was asked for"},
			{name: "one file at a time", config: "pacing: {companion_parallel: 1}\n", says: "several at a time"}}},
	{id: "RL-21", text: "Third-party subresources: at the page's pace, with the crawler's user agent, unsigned, that host's robots.txt followed only if it has already been read",
		where: "`proxy` classification, `policy.Check` (`third_party: if_read`), `sign.Sign`", check: checkThirdParty, wrong: []mutation{
			{name: "their robots.txt is read", config: crawlWith("robots: {third_party: own}"), says: "cdn.test/robots.txt was asked for"}}},
	{id: "RL-22", text: "429 or 503: that page is tried again a few times at the pace above, then left for that round",
		where: "`pacing.Acquire` (`pacing.pages`)", check: checkLeft, wrong: []mutation{
			{name: "tries without end", config: "pacing: {pages: {retries: 50}}\n", says: "not refused with url-left"},
			{name: "no second try", config: "pacing: {pages: {retries: 0}}\n", says: "was asked for 1 times"}}},
	{id: "RL-23", text: "After a refusal the same request never goes out under another name, from another address, through another proxy; no CAPTCHA is solved",
		where: "`allowlist.Locks` (`identity_lock`), `proxy/guard.DialContext` (one source address per domain)", check: checkNoWayRound, wrong: []mutation{
			{name: "assistants are not locked", config: profileWith("answer", "identity_lock: 0s"), says: "not refused with identity-switch"}}},
	{id: "RL-24", text: "A site that refuses almost every page is left alone until the next scheduled check or until its organisation asks again",
		where: "`pacing.Acquire` (`pacing.breaker`), `pacing.Resume` by `crawlgate sites resume`", check: checkLeftAlone, wrong: []mutation{
			{name: "a breaker that opens late", config: "pacing: {breaker: {size: 30, min: 30}}\n", says: "not refused with host-stopped"},
			{name: "a breaker that opens briefly", config: "pacing: {breaker: {open_for: 1m}}\n", says: "for an hour"}}},
	{id: "RL-25", text: "A person browsing in the secure browser: their own browser user agent, same addresses, no robots, no pace",
		where: "profile `person`: `proxy` step 6, `policy.Check` (`ignore`), `pacing` mode `none`", check: checkPerson, wrong: []mutation{
			{name: "the pace holds", config: profileWith("person", "pacing: {mode: turns}"), says: "not let through together"},
			{name: "script navigations are refused", config: profileWith("person", "limits: {deny_kinds: [script-navigation], authorization: strip}"), says: "was not followed"}}},
	{id: "RL-26", text: "Before that browser opens, a quick request with the crawler's user agent checks where the address leads",
		where: "profile `direct`", check: checkQuickLook, wrong: []mutation{
			{name: "robots.txt holds", config: profileWith("direct", "robots: {mode: obey}"), says: "robots-disallow"},
			{name: "listed sites only", config: profileWith("direct", "sites: listed"), says: "site-denied"}}},
	{id: "RL-27", text: "Files added by address, course files, access tests, re-downloads: the crawler's user agent, no robots.txt",
		where: "profile `direct`", check: checkDirect, wrong: []mutation{
			{name: "robots.txt holds", config: profileWith("direct", "robots: {mode: obey}"), says: "robots-disallow"},
			{name: "another agent", config: profileWith("direct", "agent: answer"), says: "asked for by the user agent"}}},
	{id: "RL-28", text: "Course pages: browser user agent, no robots, no pace",
		where: "profile `person`", check: checkCourse, wrong: []mutation{
			{name: "another agent", config: profileWith("person", "agent: ingestion"), says: "came as"},
			{name: "the pace holds", config: profileWith("person", "pacing: {mode: turns}"), says: "not let through together"}}},
	{id: "RL-29", text: "Assistants' reads: user agent `RecordsLabs-AnswerFetch/1`, no robots, no pace",
		where: "profile `answer`; `allowlist.Locks` hold", check: checkAnswer, wrong: []mutation{
			{name: "the crawler's agent", config: profileWith("answer", "agent: ingestion"), says: "asked for by the user agent"},
			{name: "no lock", config: profileWith("answer", "identity_lock: 0s"), says: "not refused with identity-switch"}}},
	{id: "RL-30", text: "Saved sign-in cookies are used by the crawl, still under its own name, robots and pace",
		where: "`proxy` step 6: cookies pass untouched", check: checkCookies, wrong: []mutation{
			{name: "robots.txt is ignored", config: crawlWith("robots: {mode: ignore}"), says: "a forbidden page: not refused"},
			{name: "the site's cookies differ", site: func(o *origin, _ string) { o.handle = nil }, says: "the fetcher got the cookies"}}},
}

var roftrlabs = []promise{
	{id: "RO-1", text: "User-Agent `RoftrlabsBot/1.0 (+https://roftrlabs.com/crawler)`",
		where: "`proxy` step 6 (dress); `policy.Fetcher` for robots.txt", check: checkRoftrUA, wrong: []mutation{
			{name: "another user agent", config: "agents: [{name: roftrlabs, user_agent: RoftrlabsBot/1.1}]\n", says: "asked for by the user agent"}}},
	{id: "RO-2", text: "Fetches only what a person asked for, nothing in the background",
		where: "`proxy` step 1 (`job.required`)", check: checkOnlyJobs, wrong: []mutation{
			{name: "no job is needed", config: profileWith("page", "job: {required: false}"), says: "not refused with job-required"},
			{name: "a sitemap is read", config: "clients: [{name: people, sites: [{sitemap: \"https://asked.test:$PORT1/sitemap.xml\"}]}]\n" + profileWith("page", "job: {required: false}, sites: listed"), says: "for one page the site got"}}},
	{id: "RO-3", text: "A `site` job asks for up to a few hundred pages of one site, one at a time with a gap, never another domain; the result says how many pages were fetched and why it stopped",
		where: "`proxy.Jobs` (`job.max_pages`, `job.same_site`), `pacing.Acquire`", check: checkSiteJob, wrong: []mutation{
			{name: "other domains pass", config: profileWith("site", "job: {same_site: false}"), says: "not refused with job-off-site"},
			{name: "a shorter gap", config: profileWith("site", "pacing: {gap: 300ms}"), says: "sooner than 1s"},
			{name: "two pages at most", config: profileWith("site", "job: {max_pages: 2}"), says: "job-exhausted"}}},
	{id: "RO-4", text: "http and https only, ports 80 and 443 only",
		where: "`proxy/guard.CheckPort`, `proxy/guard.ParseTarget`", check: checkPorts, wrong: []mutation{
			{name: "another port is open", config: "egress: {ports: [80, 443, $PORT1]}\n", says: "a port: not refused with port-denied"}}},
	{id: "RO-5", text: "At most five redirects, quick time-outs, a size ceiling past which reading stops",
		where: "`proxy` (`limits.redirects`, `timeout`, `response_body`)", check: checkLimits, wrong: []mutation{
			{name: "twenty redirects", config: profileWith("page", "limits: {redirects: 20}"), says: "not refused with too-many-redirects"},
			{name: "a higher ceiling", config: profileWith("page", "limits: {response_body: 1GiB}"), says: "of an endless answer were read"}}},
	{id: "RO-6", text: "Reads only: no forms, no log-ins, no credentials (GET and HEAD, no body, no `Authorization`)",
		where: "`proxy` (`limits.methods`, `request_body`, `authorization`)", check: checkReadsOnly, wrong: []mutation{
			{name: "POST passes", config: profileWith("page", "limits: {methods: [GET, HEAD, POST], request_body: 1kB}"), says: "POST: not refused with method-denied"},
			{name: "credentials pass", config: profileWith("site", "limits: {authorization: pass}"), says: "arrived with Authorization"}}},
	{id: "RO-7", text: "robots.txt is read before anything; a refusal names the rule and its line number",
		where: "`policy.Check`; the refusal by `proxy`", check: checkNamedRule, wrong: []mutation{
			{name: "robots.txt is ignored", config: profileWith("page", "robots: {mode: ignore}"), says: "a closed page: not refused"},
			{name: "the rule stands elsewhere", site: func(o *origin, _ string) { o.robots = "User-agent: RoftrlabsBot\nDisallow: /private/\n" }, says: "the refusal says"}}},
	{id: "RO-8", text: "A group naming RoftrlabsBot binds every profile, `page` too: its `Disallow: /` stops all, a narrower rule every address it covers",
		where: "`policy.Check` (modes `named` and `obey`)", check: checkNamedGroup, wrong: []mutation{
			{name: "page ignores robots.txt", config: profileWith("page", "robots: {mode: ignore}"), says: "not refused with robots-disallow"},
			{name: "any rule stops the whole site", config: profileWith("page", "robots: {named_group_stops_all: true}"), says: "got 403 robots-disallow"}}},
	{id: "RO-9", text: "`User-agent: *` does not stop a `page` job; it does stop a `site` job before it starts",
		where: "`policy.Check` (modes `named` and `obey`)", check: checkStarGroup, wrong: []mutation{
			{name: "page obeys the group", config: profileWith("page", "robots: {mode: obey}"), says: "a page job: got 403 robots-disallow"},
			{name: "site does not", config: profileWith("site", "robots: {mode: named}"), says: "a site job: not refused"}}},
	{id: "RO-10", text: "robots.txt unreadable: `page` still fetches, `site` does not",
		where: "`policy.Check` (`when_unreadable`)", check: checkRoftrUnreadable, wrong: []mutation{
			{name: "page stops", config: profileWith("page", "robots: {when_unreadable: refuse}"), says: "a page job, 0: got"},
			{name: "site goes on", config: profileWith("site", "robots: {when_unreadable: allow}"), says: "a site job, 0: not refused"}}},
	{id: "RO-11", text: "No loopback, private, link-local or reserved address, IPv4 or IPv6, checked again at every redirect; a name that resolves into a private network is refused",
		where: "`proxy/guard.CheckHost`, `proxy/guard.DialContext`", check: checkPrivate, wrong: []mutation{
			{name: "loopback is excepted", config: "egress: {allow_private: [{prefix: 127.0.0.1/32}]}\n", says: "a private address was connected to"}}},
}

var unlob = []promise{
	{id: "UN-1", text: "User-Agent `UnlobBot/1.0 (+https://www.unlob.com/crawler)` on every request, the fetch of robots.txt too; never rotated, shortened or swapped for a browser's",
		where: "`proxy` step 6 (dress); `policy.Fetcher` for robots.txt", check: checkUnlobUA, wrong: []mutation{
			{name: "shortened", config: "agents: [{name: unlob, user_agent: UnlobBot/1.0}]\n", says: "asked for by the user agent"}}},
	{id: "UN-2", text: "robots.txt token `UnlobBot`, stable across versions",
		where: "`agents[].product_token`, never guessed from the user agent; `policy.Ruleset.Group`", check: checkToken, wrong: []mutation{
			{name: "another token", config: "agents: [{name: unlob, product_token: crawler}]\n", says: "not refused with robots-disallow"}}},
	{id: "UN-3", text: "Reverse then forward DNS of the egress addresses confirms it",
		where: "`crawlgate doctor` checks it", check: checkReverseDNS, wrong: []mutation{
			{name: "an address does not resolve back", config: "egress: {source_addresses: [127.0.0.11, 127.0.0.13]}\n", says: "which does not resolve back"},
			{name: "another pattern", config: "page: {reverse_dns: \"*.bots.unlob.test\"}\n", says: "resolves to a.crawl.unlob.test, which is not"}}},
	{id: "UN-4", text: "200: `ETag` and `Last-Modified` are kept for the next conditional request",
		where: "`proxy.Answers` (`revalidate`)", check: checkValidatorsKept, wrong: []mutation{
			{name: "nothing is kept", config: "revalidate: {enabled: false}\n", says: "/both: asked again by If-None-Match \"\""},
			{name: "the site forbids it", site: func(o *origin, _ string) { o.handle = withField(o.handle, "Cache-Control", "no-store") }, says: "/both: asked again by If-None-Match \"\""}}},
	{id: "UN-5", text: "304: nothing is transferred; the fetcher gets its answer from the store",
		where: "`proxy.Answers` (`revalidate`)", check: checkFromStore, wrong: []mutation{
			{name: "nothing is kept", config: "revalidate: {enabled: false}\n", says: "the site sent the page 3 times"},
			{name: "too large for the store", config: "revalidate: {max_size: 1MiB}\n", says: "the site sent the page 3 times"}}},
	{id: "UN-6", text: "301 and 308: up to five hops; the target is recorded as replacing the source",
		where: "`proxy` (`limits.redirects`), `audit.SetLocation`, `crawlgate why`", check: checkMovedForGood, wrong: []mutation{
			{name: "one redirect", config: crawlWith("limits: {redirects: 1}"), says: "got 508 too-many-redirects"},
			{name: "twenty redirects", config: crawlWith("limits: {redirects: 20}"), says: "a sixth hop: not refused"},
			{name: "moved for now", site: func(o *origin, _ string) { o.handle = redirectTo(302, "/hop/1") }, says: "why says moved: redirected"}}},
	{id: "UN-7", text: "302 and 307: followed; the original URL stays canonical",
		where: "`proxy` (`limits.redirects`), `audit.SetLocation`, `crawlgate why`", check: checkMovedForNow, wrong: []mutation{
			{name: "moved for good", site: func(o *origin, _ string) { o.handle = redirectTo(301, "/b") }, says: "why says moved: moved for good"}}},
	{id: "UN-8", text: "404 and 410: the URL is gone; 410 is final, with a typed reason readable through `why`",
		where: "`allowlist.Gone` (`on_410: final`), `crawlgate why`", check: checkGone, wrong: []mutation{
			{name: "a 410 is asked for again", config: crawlWith("on_410: ask"), says: "/gone, again: not refused with url-left"},
			{name: "another status", site: func(o *origin, _ string) { o.handle = statusOnly(404) }, says: "/gone: got 404"}}},
	{id: "UN-9", text: "429: exponential back-off that honours `Retry-After`; sustained 429s lower the host's rate beyond the retry",
		where: "`pacing.Done`", check: checkTooMany, wrong: []mutation{
			{name: "the back-off does not grow", config: "pacing: {backoff: {factor: 1}}\n", says: "sooner than 1.6s"},
			{name: "Retry-After is cut", config: "pacing: {backoff: {retry_after_cap: 1s}}\n", says: "Retry-After: /1 came"},
			{name: "the rate stays", config: "pacing: {slow: {max_level: 0}}\n", says: "sooner than 600ms"}}},
	{id: "UN-10", text: "5xx: backed off and retried later; repeated failures make the crawl rarer, never denser",
		where: "`pacing.Done`", check: checkServerErrors, wrong: []mutation{
			{name: "the back-off does not grow", config: "pacing: {backoff: {factor: 1}}\n", says: "sooner than 1.6s"}}},
	{id: "UN-11", text: "`noindex` and `nofollow` are honoured, from the robots meta tag and from `X-Robots-Tag`",
		where: "`policy.IndexingDirectives`; `Crawlgate-Indexing` by `proxy`", check: checkIndexing, wrong: []mutation{
			{name: "the page says nothing", site: func(o *origin, _ string) { o.handle = nil }, says: "the fetcher was told"},
			{name: "another token", config: "agents: [{name: unlob, product_token: crawler}]\n", says: `/ours: the fetcher was told ""`}}},
	{id: "UN-12", text: "`Sitemap:` lines are read; `lastmod` spares refetching what has not changed",
		where: "`allowlist.ChangedBy`, `proxy.Answers` (`revalidate.lastmod`)", check: checkSitemapDates, wrong: []mutation{
			{name: "dates do not count", config: "revalidate: {lastmod: false}\n", says: "/sitemap.xml was asked for 0 times"},
			{name: "everything has just changed", site: func(o *origin, _ string) { o.handle = withoutDates(o.handle) }, says: "the copy of /probe was never given"}}},
	{id: "UN-13", text: "Longest match, `*`, `$`, Crawl-delay; a block takes effect at the next read of robots.txt, 24 h at most",
		where: "`policy.Check`, `policy.Ruleset.Group`, `pacing.Acquire`", check: checkUnlobRules, wrong: []mutation{
			{name: "only an hour passed", other: true, says: "a day later: not refused"},
			{name: "robots.txt is ignored", config: crawlWith("robots: {mode: ignore}"), says: "not refused with robots-disallow"},
			{name: "delays are cut", config: "pacing: {longest_delay: 100ms}\n", says: "sooner than 1s"}}},
	{id: "UN-14", text: "A removal request is entered in a ledger at once; `why` then says removed, not never seen",
		where: "`allowlist.Ledger` by `crawlgate sites stop`, `crawlgate why`", check: checkRemoval, wrong: []mutation{
			{name: "another host is entered", other: true, says: "not refused with site-stopped"}}},
	{id: "UN-15", text: "robots.txt is honoured on every fetch, first or again, page or file or redirect; there is no second way out for any purpose",
		where: "`policy.Check` on the one path of `proxy`; one profile (`third_party: own`)", check: checkEveryFetch, wrong: []mutation{
			{name: "other hosts' files pass unread", config: crawlWith("robots: {third_party: if_read}"), says: "a file of a page on another host: not refused"},
			{name: "a second profile", config: profileWith("person", "agent: unlob, sites: any, robots: {mode: ignore}") + "clients: [{name: x, profiles: [crawl, person]}]\n", says: "the profile person: not refused"}}},
	{id: "UN-16", text: "About one request per second per host",
		where: "`pacing.Acquire`", check: checkOnePerSecond, wrong: []mutation{
			{name: "a shorter gap", config: crawlWith("pacing: {gap: 500ms}"), says: "sooner than 1s"}}},
	{id: "UN-17", text: "No impersonation, no identity rotation, no crawl spread over addresses, no second crawler under another name",
		where: "`proxy` (one agent), `allowlist.Locks`, `proxy/guard.DialContext` (one source address per domain)", check: checkOneIdentity, wrong: []mutation{
			{name: "a second crawler", config: "agents: [{name: other, product_token: OtherBot, user_agent: OtherBot/1.0}]\n" + profileWith("second", "agent: other, sites: any, identity_lock: 0s") +
				"clients: [{name: x, profiles: [crawl, second]}]\n", says: "a second crawler came as \"OtherBot/1.0\""}}},
	{id: "UN-18", text: "Subdomains share their domain's budget",
		where: "`pacing.DomainKey` (`key: registrable_domain`)", check: checkDomainBudget, wrong: []mutation{
			{name: "each host by itself", config: crawlWith("pacing: {key: host}"), says: "sooner than 1s"}}},
	{id: "UN-19", text: "robots.txt 404/410: no rules; 5xx, time-out or no connection: full disallow until it can be read; the pace holds for robots.txt fetches too",
		where: "`policy.Check`, `pacing.Acquire` (`robots: paced`)", check: checkUnlobUnreadable, wrong: []mutation{
			{name: "unreadable allows", config: crawlWith("robots: {when_unreadable: allow}"), says: "not refused with robots-unreadable"},
			{name: "robots.txt without pace", config: crawlWith("pacing: {robots: free}"), says: "sooner than 1s"}}},
	{id: "UN-20", text: "A coverage gap (blocked, refused, paywalled) is reported as such, with a typed reason",
		where: "`audit.Record`, `crawlgate why`", check: checkCoverage, wrong: []mutation{
			{name: "everything is answered", site: func(o *origin, _ string) { o.handle, o.rules, o.robots = page(""), nil, "" }, says: "why says answered"}}},
}
