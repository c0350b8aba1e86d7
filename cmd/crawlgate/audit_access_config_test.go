package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"crawlgate/audit"

	"github.com/spf13/pflag"
)

// Every flag of `audit access` that says something about the audit is a key of audit.access, and the other way round.
func TestAccessFlagsAreKeys(t *testing.T) {
	var keys, flags []string
	typ := reflect.TypeFor[audit.AccessConfig]()
	def := reflect.ValueOf(audit.AccessDefaults())
	cmd := newAuditAccessCmd(&app{})
	for i := range typ.NumField() {
		name := accessFlag(typ.Field(i))
		keys = append(keys, name)
		f := cmd.Flags().Lookup(name)
		if f == nil {
			t.Errorf("no flag --%s", name)
			continue
		}
		want := fmt.Sprint(def.Field(i).Interface())
		if got := f.DefValue; got != want {
			t.Errorf("--%s is %s by default, its key %s", name, got, want)
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "json" && f.Name != "help" { // another word for --format json
			flags = append(flags, f.Name)
		}
	})
	slices.Sort(keys)
	slices.Sort(flags)
	if !slices.Equal(keys, flags) {
		t.Errorf("keys  %v\nflags %v", keys, flags)
	}
}

// accessPlace is a folder with what an audit reads.
type accessPlace struct{ dir, log, robots, later, sitemap, ranges, crawlers, cache string }

func newAccessPlace(t *testing.T) accessPlace {
	t.Helper()
	p := accessPlace{dir: t.TempDir()}
	put := func(name, text string) string {
		file := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, text, 0o600)
		return file
	}
	p.log = put("access.log", `192.0.2.1 - - [03/Nov/2025:09:00:00 +0000] "GET /private/x HTTP/1.1" 200 5 "-" "GPTBot/1.3"
192.0.2.1 - - [03/Nov/2025:09:00:01 +0000] "GET /a HTTP/1.1" 200 5 "-" "GPTBot/1.3"
198.51.100.9 - - [03/Nov/2025:09:00:02 +0000] "GET /b HTTP/1.1" 200 5 "-" "GPTBot/1.3"
garbage
`)
	p.robots = put("robots.txt", "User-agent: *\nDisallow: /private/\nCrawl-delay: 5\n")
	p.later = put("versions/www.example.com/20251101T000000Z.txt", "User-agent: *\nDisallow: /a\n")
	p.sitemap = put("sitemap.txt", "https://www.example.com/a\n")
	p.ranges = filepath.Dir(put("ranges/gptbot.json", `{"prefixes":[{"ipv4Prefix":"192.0.2.0/24"}]}`))
	p.crawlers = put("crawlers.json", `{"schema":"crawlgate.crawlers/1","crawlers":[{"name":"OtherBot","operator":"x","category":"search","ua_tokens":["OtherBot"],"robots_tokens":["OtherBot"]}]}`)
	p.cache = put("dns.json", `{"schema":"crawlgate.dns-cache/1","ptr":{},"forward":{}}`)
	return p
}

// TestAccessByConfiguration sets each key in a file, and then says otherwise by its flag, with the built program.
func TestAccessByConfiguration(t *testing.T) {
	t.Parallel()
	p := newAccessPlace(t)
	bin := binary(t)
	out1, out2 := filepath.Join(p.dir, "one.json"), filepath.Join(p.dir, "two.json")
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	cases := map[string]struct {
		yaml string   // below audit.access
		args []string // always
		want string   // in what is printed, white space squeezed
		flag []string
		then string // with the flag
		code int    // without it
	}{
		"robots":            {yaml: "robots: " + p.robots, want: `"disallowed": 1, "unjudged": 0`, flag: []string{"--robots", filepath.Dir(filepath.Dir(p.later)), "--host", "www.example.com"}, then: `"Disallow: /a"`},
		"crawlers":          {yaml: "crawlers: [" + p.crawlers + "]", want: `"claims": 0`, flag: []string{"--crawlers", p.crawlers, "--crawlers", p.crawlers}, then: p.crawlers + `", "` + p.crawlers},
		"ranges":            {yaml: "ranges: " + p.ranges, want: `"verified": 2`, flag: []string{"--ranges", ""}, then: `"verified": 0`},
		"trusted_proxy":     {yaml: "trusted_proxy: [10.0.0.0/8, '192.0.2.0/25,192.0.2.128/25']", want: `"trusted_proxies": [ "10.0.0.0/8", "192.0.2.0/25", "192.0.2.128/25" ]`, flag: []string{"--trusted-proxy", "10.1.0.0/16"}, then: `"trusted_proxies": [ "10.1.0.0/16" ]`},
		"dns_cache":         {yaml: "dns_cache: " + p.cache, want: `"dns": "cache", "dns_cache": "` + p.cache, flag: []string{"--dns-cache", ""}, then: `"dns": "off"`},
		"dns":               {yaml: "dns: off\n    dns_cache: " + p.cache, want: `"dns": "off"`, flag: []string{"--dns", "cache"}, then: `"dns": "cache"`},
		"sitemap":           {yaml: "sitemap: " + p.sitemap, args: []string{"--host", "www.example.com"}, want: `"not_in_sitemap": 2`, flag: []string{"--sitemap", p.sitemap, "--sitemap", p.sitemap}, then: p.sitemap + `", "` + p.sitemap},
		"host":              {yaml: "host: www.example.com", want: `"host": "www.example.com"`, flag: []string{"--host", "b.example"}, then: `"host": "b.example"`},
		"log_format":        {yaml: "log_format: '$remote_addr - - [$time_local] \"$request\" $status $body_bytes_sent \"-\" \"$http_user_agent\"'", want: `"log_format": "$remote_addr`, flag: []string{"--log-format", "combined"}, then: `"log_format": "combined"`},
		"since":             {yaml: "since: '2025-11-03T09:00:01Z'", want: `"filtered": 1`, flag: []string{"--since", "2025-11-03T09:00:02Z"}, then: `"filtered": 2`},
		"until":             {yaml: "until: '2025-11-03T09:00:01Z'", want: `"filtered": 2`, flag: []string{"--until", ""}, then: `"filtered": 0`},
		"grace":             {yaml: "grace: 10s", want: `"grace_ms": 10000`, flag: []string{"--grace", "1s"}, then: `"grace_ms": 1000`},
		"delay":             {yaml: "delay: true\n    robots: " + p.robots, want: `"crawl_delay": { "checked": 2, "violations": 2`, flag: []string{"--delay=false"}, then: `"delay": false`},
		"delay_tolerance":   {yaml: "delay_tolerance: 4s\n    delay: true\n    robots: " + p.robots, want: `"crawl_delay": { "checked": 2, "violations": 0`, flag: []string{"--delay-tolerance", "0s"}, then: `"checked": 2, "violations": 2`},
		"dedupe":            {yaml: "dedupe: lines", want: `"dedupe": "lines"`, flag: []string{"--dedupe", "none"}, then: `"dedupe": "none"`},
		"no_version":        {yaml: "no_version: allowed", want: `"allowed": 3`, flag: []string{"--no-version", "unjudged"}, then: `"unjudged": 3`},
		"unverified":        {yaml: "unverified: impersonated", want: `"impersonated": 3`, flag: []string{"--unverified", "genuine"}, then: `"impersonated": 0`},
		"unreachable_limit": {yaml: "unreachable_limit: 1d", want: `"unreachable_limit_ms": 86400000`, flag: []string{"--unreachable-limit", "1h"}, then: `"unreachable_limit_ms": 3600000`},
		"as":                {yaml: "as: Bytespider", want: `"as": "Bytespider"`, flag: []string{"--as", "GPTBot"}, then: `"as": "GPTBot"`},
		"top":               {yaml: "top: 3", want: `"top": 3`, flag: []string{"--top", "4"}, then: `"top": 4`},
		"workers":           {yaml: "workers: 1", want: `"requests": 3`, flag: []string{"--workers", "2"}, then: `"requests": 3`},
		"format":            {yaml: "format: csv", want: "crawler,operator,", flag: []string{"--format", "html"}, then: "<!DOCTYPE html>"},
		"format, --json":    {yaml: "format: csv", want: "crawler,operator,", flag: []string{"--json"}, then: `"settings"`},
		"output":            {yaml: "output: " + out1, want: "", flag: []string{"--output", out2}, then: ""},
		"by_purpose":        {yaml: "by_purpose: true\n    format: table", want: "training crawler", flag: []string{"--by-purpose=false"}, then: "crawler access audit"},
		"list":              {yaml: "list: violations\n    format: csv\n    robots: " + p.robots, want: "crawler,host,version", flag: []string{"--list", ""}, then: "crawler,operator,"},
		"list, --json":      {yaml: "list: violations\n    format: csv", want: "crawler,host,version", flag: []string{"--json"}, then: `"settings"`},
		"fail_on":           {yaml: "fail_on: [malformed, impersonated]", want: "--fail-on malformed: 1", code: 1, flag: []string{"--fail-on", "impersonated"}, then: `"settings"`},
	}
	typ := reflect.TypeFor[audit.AccessConfig]()
	for i := range typ.NumField() {
		if key := typ.Field(i).Tag.Get("mapstructure"); cases[key].yaml == "" {
			t.Errorf("%s is not tried", key)
		}
	}
	for name, c := range cases {
		file := filepath.Join(p.dir, strings.ReplaceAll(name, ", ", "")+".yaml")
		writeFile(t, file, "audit:\n  access:\n    "+c.yaml+"\n", 0o600)
		try := func(more []string, code int, want string) {
			t.Helper()
			args := append([]string{"--config", file, "audit", "access"}, append(slices.Clone(c.args), more...)...)
			r := execute(t, append(bareEnv(p.dir), "COLUMNS=200"), bin, append(args, p.log)...)
			if r.code != code || !strings.Contains(squeeze(r.out+r.err), want) || want == "" && r.out != "" {
				t.Errorf("%s %v: exit %d, want %q\n%s\n%.3000s", name, more, r.code, want, r.err, r.out)
			}
		}
		try(nil, c.code, c.want)
		try(c.flag, 0, c.then)
	}
	for _, name := range []string{out1, out2} {
		if b, err := os.ReadFile(name); err != nil || !strings.Contains(string(b), `"settings"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is wrong in the block is told with its line, and nothing is written.
func TestAccessConfigurationProblems(t *testing.T) {
	t.Parallel()
	p := newAccessPlace(t)
	file := filepath.Join(p.dir, "c.yaml")
	for text, want := range map[string]string{
		"robot: x":                          "line 3  audit.access.robot is not a key; did you mean robots?",
		"trusted-proxy: 10.0.0.0/8":         "line 3  audit.access.trusted-proxy is not a key; did you mean trusted_proxy?",
		"grace: 10":                         `line 3  audit.access.grace: "10" has no unit`,
		"top: 0":                            "line 3  audit.access.top: 0 is not above 0",
		"workers: -1":                       "line 3  audit.access.workers: -1 is negative",
		"delay: yes please":                 `line 3  audit.access.delay: "yes please" is not true or false`,
		"dns: sometimes":                    `line 3  audit.access.dns: "sometimes" is not one of off, cache, live`,
		"format: pdf":                       `line 3  audit.access.format: "pdf" is not one of table, json, csv, html`,
		"list: all":                         `line 3  audit.access.list: "all" is not one of violations`,
		"since: yesterday":                  `line 3  audit.access.since: "yesterday" is not a time like`,
		"since: 2025-11-03T00:00:00Z":       "line 3  audit.access.since: 2025-11-03T00:00:00Z is a date; write it in quotes for text",
		"log_format: nonsense":              `line 3  audit.access.log_format: log format "nonsense" is not one of auto`,
		"unreachable_limit: 0s":             "line 3  audit.access.unreachable_limit: 0s is not above 0",
		"delay_tolerance: -1s":              "line 3  audit.access.delay_tolerance: ",
		"fail_on: [impersonated, delay]":    "line 3  audit.access.fail_on[1]: needs delay: true",
		"fail_on: nonsense":                 `line 3  audit.access.fail_on: "nonsense" is not one of violations`,
		"trusted_proxy: [10.0.0.0/8, 10/8]": "line 3  audit.access.trusted_proxy[1]: ",
	} {
		writeFile(t, file, "audit:\n  access:\n    "+text+"\n", 0o600)
		r := execute(t, bareEnv(p.dir), binary(t), "--config", file, "audit", "access", p.log)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, "\n  "+want) {
			t.Errorf("%s: %+v", text, r)
		}
	}
	writeFile(t, file, "audit: {access: {since: '2025-11-04T00:00:00Z', until: '2025-11-03T00:00:00Z'}}\n", 0o600)
	if r := execute(t, bareEnv(p.dir), binary(t), "--config", file, "audit", "access", p.log); r.code != 2 || !strings.Contains(r.err, "audit.access.until: is not after since") {
		t.Errorf("%+v", r)
	}
	if r := execute(t, bareEnv(p.dir), binary(t), "--config", file+".none", "audit", "access", p.log); r.code != 2 || !strings.Contains(r.err, "c.yaml.none") {
		t.Errorf("%+v", r)
	}
	// A variable does as well, ~ is the home folder, and none is needed where nothing names it.
	writeFile(t, file, "audit: {access: {robots: ~/robots.txt}}\n", 0o600)
	r := execute(t, append(bareEnv(p.dir), "HOME="+p.dir, "CRAWLGATE_AUDIT_ACCESS_TOP=7"), binary(t), "--config", file, "audit", "access", p.log)
	if r.code != 0 || !strings.Contains(r.out, `"top": 7`) || !strings.Contains(r.out, `"`+p.robots+`"`) {
		t.Errorf("%+v", r)
	}
	homeless := slices.DeleteFunc(bareEnv(p.dir), func(s string) bool { return strings.HasPrefix(s, "HOME=") || strings.HasPrefix(s, "XDG_") })
	if r := execute(t, homeless, binary(t), "audit", "access", p.log); r.code != 0 {
		t.Errorf("without a home: %+v", r)
	}
}
