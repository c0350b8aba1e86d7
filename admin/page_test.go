package admin

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crawlgate/configs"
)

var updatePages = flag.Bool("update-pages", false, "rewrite the golden pages")

// The three presets' pages are golden: a change of a preset or of a sentence shows up as a difference of the page.
func TestPagesOfPresets(t *testing.T) {
	for _, name := range configs.Presets() {
		c, err := configs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		p := BuildPage(c, nil)
		got, err := p.Markdown()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "page-"+name+".md")
		if *updatePages {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the page now; look at it and run go test ./admin -run TestPagesOfPresets -update-pages", file)
		}
		html, err := p.HTML()
		if err != nil {
			t.Fatal(err)
		}
		if len(html) > 30_000 {
			t.Errorf("%s: the page has %d bytes", name, len(html))
		}
		for _, bad := range []string{"<script", "src=", "<link", "@import", "url("} {
			if bytes.Contains(html, []byte(bad)) {
				t.Errorf("%s: the page holds %q", name, bad)
			}
		}
		if !bytes.Contains(html, []byte(`<meta name="crawlgate-policy" content="`+c.Hash()+`">`)) {
			t.Errorf("%s: the policy hash is not on the page", name)
		}
	}
}

// What the published pages say, row by row, stands on ours; what they are silent about is said as it is.
func TestPagesSayThePublishedFacts(t *testing.T) {
	for name, facts := range map[string][]string{
		"recordslabs": {"Mozilla/5.0 (compatible; RecordsLabsIngestion/1.0; +https://recordslabs.ai/ingestion)", "Content-Signal: ai-input=no", "Content-Signal: search=no",
			"Content-Signal: use=immediate", "One page at a time for each host name", "1 second after", "RecordsLabs-AnswerFetch/1", "does not read robots.txt", "Crawl-delay", "about 1 in 50 of these answers the page is asked for once more in full"},
		"roftrlabs": {"RoftrlabsBot/1.0 (+https://roftrlabs.com/crawler)", "a group for * does not", "the page is fetched all the same", "no page is fetched", "at most 5 in a row", "80, 443", "only reads"},
		"unlob":     {"UnlobBot/1.0 (+https://www.unlob.com/crawler)", "Content-Signal lines do not stop it", "domain, subdomains included", "at most 24 hours", "There are none: every request keeps the rules", "asks whether the page has changed", "a lastmod in the sitemap that robots.txt names", "one that answered 410 is never asked for again"},
	} {
		c, err := configs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		md, err := BuildPage(c, nil).Markdown()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range facts {
			if !strings.Contains(string(md), f) {
				t.Errorf("%s: the page does not say %q", name, f)
			}
		}
	}
}

// A weaker profile that any client has is always told; there is no switch to hide it.
func TestPageTellsWeakerProfiles(t *testing.T) {
	c, err := configs.Preset("unlob")
	if err != nil {
		t.Fatal(err)
	}
	quick := c.Profiles[0]
	quick.Name, quick.Robots.Mode = "quick", "ignore"
	c.Profiles = append(c.Profiles, quick)
	c.Clients = []configs.Client{{Name: "a", Profiles: []string{"crawl"}}}
	page := func() string {
		md, err := BuildPage(c, nil).Markdown()
		if err != nil {
			t.Fatal(err)
		}
		return string(md)
	}
	if strings.Contains(page(), "quick") {
		t.Error("a profile that no client has is told")
	}
	c.Clients = append(c.Clients, configs.Client{Name: "b", Profiles: []string{"crawl", "quick"}})
	if s := page(); !strings.Contains(s, "| quick |") || !strings.Contains(s, "does not read robots.txt") {
		t.Error("a profile without robots.txt is hidden")
	}
}

func TestPageDiff(t *testing.T) {
	c, err := configs.Preset("unlob")
	if err != nil {
		t.Fatal(err)
	}
	before := BuildPage(c, nil)
	raw, err := before.JSON()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePage(raw)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if differ, err := DiffPages(back, before, &b); differ || err != nil {
		t.Errorf("a page differs from itself: %s %v", b.String(), err)
	}
	c.Profiles[0].Pacing.Gap *= 5
	if differ, err := DiffPages(back, BuildPage(c, nil), &b); !differ || err != nil || !strings.Contains(b.String(), "5 seconds after") {
		t.Errorf("a slower gap is not told: %s %v", b.String(), err)
	}
}

// A hostile value of the configuration stays text.
func TestPageEscapes(t *testing.T) {
	c, err := configs.Preset("unlob")
	if err != nil {
		t.Fatal(err)
	}
	c.Page.Operator = `<script>alert(1)</script>`
	html, err := BuildPage(c, nil).HTML()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(html, []byte("<script>")) {
		t.Error("not escaped")
	}
}
