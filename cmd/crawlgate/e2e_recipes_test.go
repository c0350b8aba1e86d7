package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// recipeTest is one client, set up by nothing but the lines that `ca env` prints and then by nothing but the variables of
// `run`. Both are shell text; the URLs are "$@", and in wrapped commands each is "$URL".
type recipeTest struct {
	name string // also the client's own sites: NAME.test
	tool string // --for
	// fetch follows the recipe's lines; "" is a recipe that ends with a command which fetches a URL itself.
	fetch string
	// under `run`; "" runs the recipe itself there, where the variables are set as well
	run string
	// text says that the output is what the site sent, not lines of JSON.
	text bool
	// object says that the recipe is no shell text; it is written to the file "recipe".
	object bool
	// few launches: only the first and the last URL.
	few bool
}

var recipeTests = []recipeTest{
	{name: "curl", tool: "curl", text: true, run: `curl -sS "$@"`},
	{name: "wget", tool: "wget", text: true, run: `wget -q --content-on-error -O- "$@" || test $? = 8`},
	{name: "urllib", tool: "python", fetch: `$PYTHON fetch.py urllib "$@"`, run: `$PYTHON fetch.py urllib "$@"`},
	{name: "requests", tool: "python", fetch: `$PYTHON fetch.py requests "$@"`, run: `$PYTHON fetch.py requests "$@"`},
	{name: "httpx", tool: "python", fetch: `$PYTHON fetch.py httpx "$@"`, run: `$PYTHON fetch.py httpx "$@"`},
	{name: "aiohttp", tool: "python", fetch: `$PYTHON fetch.py aiohttp "$@"`, run: `$PYTHON fetch.py aiohttp "$@"`},
	{name: "scrapy", tool: "scrapy", run: `scrapy runspider spider.py`},
	{name: "undici", tool: "node", fetch: `node set-up.mjs "$@"`, run: `node set-up.mjs "$@"`},
	{name: "axios", tool: "node", fetch: `node axios.mjs env "$@"`, run: `node axios.mjs env "$@"`},
	{name: "axios-agent", tool: "node", fetch: `node axios.mjs agent "$@"`, run: `node axios.mjs agent "$@"`},
	{name: "go", tool: "go", fetch: `./fetch "$@"`, run: `./fetch "$@"`},
	{name: "java-old", tool: "java", fetch: `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Fetch.java old "$@"`},
	{name: "java-new", tool: "java", fetch: `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Fetch.java new "$@"`, run: `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Fetch.java new "$@"`},
	{name: "chromium", tool: "chromium", text: true, few: true},
	{name: "firefox", tool: "firefox", few: true},
	{name: "playwright", tool: "playwright", object: true, fetch: `node playwright.mjs "$@"`},
	{name: "puppeteer", tool: "puppeteer", object: true, fetch: `node puppeteer.mjs "$@"`},
	{name: "selenium", tool: "selenium", object: true, fetch: `$PYTHON drive.py "$@"`},
}

// TestRecipes runs every recipe, and the same clients under `run`. What the clients do not know: the sites' names mean
// nothing to anybody but the gate, so nothing arrives that did not come through it.
func TestRecipes(t *testing.T) {
	t.Parallel()
	var https, http []string
	tested := map[string]bool{}
	for _, c := range recipeTests {
		https, http = append(https, c.name+".test"), append(http, c.name+".plain.test")
		tested[c.tool] = true
	}
	for tool := range recipes {
		if !tested[tool] {
			t.Errorf("the recipe for %s is not tested", tool)
		}
	}
	rules := func(o *origin) { o.robots = "User-agent: ExampleBot\nDisallow: /no\n" }
	secure, plain := newOrigin(t, tlsH2, rules, https...), newOrigin(t, plainHTTP, rules, http...)
	g := startGate(t, gateConfig{origins: []*origin{secure, plain}})
	t.Run("each", func(t *testing.T) {
		for _, c := range recipeTests {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.test(t, g, secure, plain)
			})
		}
	})
	agentOnly(t, append(secure.arrivals(), plain.arrivals()...))
}

func (c recipeTest) test(t *testing.T, g *gate, secure, plain *origin) {
	env := g.cli(t, "ca", "env", "--for", c.tool)
	if env.code != 0 || env.err != "" {
		t.Fatalf("%+v", env)
	}
	recipe := strings.TrimSuffix(env.out, "\n")
	dir := recipeFolder(t, c, recipe)
	script := filepath.Join(dir, "recipe.sh")
	vars := []string{"PYTHON=" + debianPython, "PYTHONDONTWRITEBYTECODE=1", "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"), "GOFLAGS=", "LANG=C.UTF-8"}
	urls := func(path string) []string {
		host := c.name + ".test"
		list := []string{secure.at(host, path), plain.at(c.name+".plain.test", path), secure.at(host, "/no"+path), plain.at(c.name+".plain.test", "/no"+path)}
		if c.few {
			list = []string{list[0], list[3]}
		}
		writeFile(t, filepath.Join(dir, "urls"), strings.Join(list, "\n"), 0o600)
		return list
	}
	both := c.run != ""
	first := urls("/recipe")
	writeFile(t, script, "set -eu\ncd "+dir+"\n"+c.shell(recipe), 0o600)
	if both {
		c.check(t, first, execute(t, bareEnv(dir, vars...), "sh", append([]string{script}, first...)...))
	}
	// `run` finds the gate that serves; where the variables are enough, nothing else says where it is.
	second, run := first, []string{"--config", g.file, "run", "-q"}
	named := both && c.tool != "java" // Java sends no credentials that stand in its options
	if named {
		run = append(run, "--profile", "crawl", "--job", c.name)
	}
	if both {
		second = urls("/run")
		writeFile(t, script, "set -eu\ncd "+dir+"\n"+c.run, 0o600)
	}
	c.check(t, second, execute(t, bareEnv(dir, vars...), g.bin, append(append(run, "--", "sh", script), second...)...))
	if named {
		within(t, 10*time.Second, "the job's name in the log", func() bool {
			n := 0
			for _, e := range g.requests(t) {
				if e.Job == c.name && slices.Contains(second, e.URL) {
					n++
				}
			}
			return n == len(second)
		})
	}

	for _, o := range []*origin{secure, plain} {
		host := c.name + map[*origin]string{secure: ".test:", plain: ".plain.test:"}[o] + itoa(o.port)
		var got, want []string
		for _, a := range o.pages() {
			if a.Host == host && a.URI != "/favicon.ico" {
				got = append(got, a.Method+" "+a.URI)
			}
		}
		switch {
		case c.few && o == plain:
		case both:
			want = []string{"GET /recipe", "GET /run"}
		default:
			want = []string{"GET /recipe"}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s got %q, not %q", host, got, want)
		}
	}
}

// shell is what runs the recipe: its own command for each URL, or the program after its lines.
func (c recipeTest) shell(recipe string) string {
	if c.object {
		return c.fetch
	}
	if c.fetch != "" {
		return recipe + "\n" + c.fetch
	}
	if !strings.Contains(recipe, "https://example.com/") {
		return recipe
	}
	at := regexp.MustCompile(`(?m)^(curl|wget|chromium|firefox)`).FindStringIndex(recipe)[0]
	lines, command := recipe[:at], strings.Replace(recipe[at:], "https://example.com/", `"$URL"`, 1)
	// What the page of a terminal would show, and no failure for a refusal.
	command = strings.Replace(command, "wget ", "wget -q --content-on-error -O- ", 1)
	return lines + "for URL in \"$@\"; do\n" + command + " || test $? = 8\ndone"
}

// recipeFolder is a folder with the programs that are to know nothing of a proxy.
func recipeFolder(t *testing.T, c recipeTest, recipe string) string {
	t.Helper()
	dir := t.TempDir()
	copied := func(from, to, before string) {
		raw, err := os.ReadFile(filepath.Join("testdata/recipes", from))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, to), before+string(raw), 0o600)
	}
	switch c.tool {
	case "python":
		copied("fetch.py", "fetch.py", "")
	case "scrapy":
		copied("spider.py", "spider.py", "")
	case "java":
		copied("Fetch.java", "Fetch.java", "")
	case "selenium":
		copied("drive.py", "drive.py", "")
	case "go":
		if r := execute(t, os.Environ(), "go", "build", "-o", filepath.Join(dir, "fetch"), "testdata/recipes/fetch.go"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	case "node", "playwright", "puppeteer":
		if err := os.Symlink(filepath.Join(nodeFolder(t), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		copied("axios.mjs", "axios.mjs", "")
		copied("playwright.mjs", "playwright.mjs", "")
		copied("puppeteer.mjs", "puppeteer.mjs", "")
		if m := regexp.MustCompile(`(?m)^# (import .*)$`).FindStringSubmatch(recipe); m != nil {
			copied("undici.mjs", "set-up.mjs", m[1]+"\n")
		}
	case "firefox":
		firefoxWrapper(t, dir)
	case "chromium":
		// The recipe names the headless shell; the tests have the whole browser.
		writeFile(t, filepath.Join(dir, "chromium-headless-shell"), "#!/bin/sh\nexec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom \"$@\"\n", 0o700)
	}
	if c.object {
		writeFile(t, filepath.Join(dir, "recipe"), recipe, 0o600)
	}
	return dir
}

// check looks at what the client got: pages, and refusals that say why.
func (c recipeTest) check(t *testing.T, urls []string, r result) {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	readable := func(body string) bool {
		return strings.Contains(body, "robots-disallow") && strings.Contains(body, "Disallow: /no")
	}
	isRefused := func(url string) bool { return strings.Contains(url, "/no/") }
	if c.text {
		refused := 0
		for _, url := range urls {
			if isRefused(url) {
				refused++
			} else if path := url[strings.LastIndexByte(url, '/'):]; !strings.Contains(r.out, "<title>page "+path+"</title>") {
				t.Errorf("%s did not come: %+v", url, r)
			}
		}
		if !readable(r.out) || strings.Count(r.out, "robots-disallow") < refused {
			t.Errorf("the refusal does not say why: %+v", r)
		}
		return
	}
	list := readFetched(t, r.out)
	if len(list) != len(urls) {
		t.Fatalf("%+v", r)
	}
	byURL := map[string]fetched{}
	for _, f := range list {
		byURL[f.URL] = f
	}
	for _, url := range urls {
		f := byURL[url]
		// Selenium shows neither status nor fields.
		if f.Error != "" || f.Body == "" || f.Headers["crawlgate-request-id"] == "" && c.tool != "selenium" {
			t.Errorf("%s: %+v; %s", url, f, r.err)
			continue
		}
		if (c.object || c.tool == "firefox") && f.Agent != agentUA {
			t.Errorf("scripts of %s see the agent %q", url, f.Agent)
		}
		if !isRefused(url) {
			if path := url[strings.LastIndexByte(url, '/'):]; !strings.Contains(f.Body, "<title>page "+path+"</title>") || f.Status != 200 && c.tool != "selenium" {
				t.Errorf("%+v", f)
			}
			continue
		}
		if !readable(f.Body) || c.tool != "selenium" && (f.Status != 403 || f.Headers["crawlgate-reason"] != "robots-disallow") {
			t.Errorf("%+v", f)
		}
	}
}
