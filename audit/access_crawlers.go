package audit

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed crawlers.json
var builtInCrawlers []byte

// categories of crawlers, in the order of reports.
var categories = []string{"search", "training", "user-triggered", "preview", "ads", "seo", "archive", "control-token", "other"}

const controlToken = "control-token"

// crawler is one definition.
type crawler struct {
	Name         string   `json:"name"`
	Operator     string   `json:"operator"`
	Category     string   `json:"category"`
	UATokens     []string `json:"ua_tokens"`
	RobotsTokens []string `json:"robots_tokens"`
	RangesFiles  []string `json:"ranges_files"`
	RDNS         []string `json:"rdns_suffixes"`

	ranges  prefixSet
	known   bool     // all range files are there: an address outside of them is no address of this crawler
	missing []string // range files that are not there
	names   []string // lower case: what X-Robots-Tag may call it
}

// crawlerList holds the definitions, by name, and the tokens that claim them.
type crawlerList struct {
	all    []*crawler
	tokens [256][]uaToken // by first byte in lower case
}

type uaToken struct {
	lower   string
	crawler int32
}

// loadCrawlers reads definition files (none: the built-in list; a later file replaces equal names) and the range files
// they name.
func loadCrawlers(files []string, rangesDir string) (*crawlerList, error) {
	byName := map[string]*crawler{}
	var order []string
	add := func(where string, body []byte) error {
		list, err := parseCrawlers(body)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		for _, c := range list {
			if byName[c.Name] == nil {
				order = append(order, c.Name)
			}
			byName[c.Name] = c
		}
		return nil
	}
	if len(files) == 0 {
		if err := add("built-in crawler list", builtInCrawlers); err != nil {
			return nil, err
		}
	}
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := add(path, body); err != nil {
			return nil, err
		}
	}
	l := &crawlerList{}
	if rangesDir != "" {
		if st, err := os.Stat(rangesDir); err != nil {
			return nil, err
		} else if !st.IsDir() {
			return nil, fmt.Errorf("%s is not a folder", rangesDir)
		}
	}
	for _, name := range order {
		c := byName[name]
		if err := c.loadRanges(rangesDir); err != nil {
			return nil, err
		}
		for _, t := range c.UATokens {
			lower := strings.ToLower(t)
			l.tokens[lower[0]] = append(l.tokens[lower[0]], uaToken{lower, int32(len(l.all))})
		}
		for _, n := range slices.Concat([]string{c.Name}, c.RobotsTokens, c.UATokens) {
			c.names = append(c.names, strings.ToLower(n))
		}
		l.all = append(l.all, c)
	}
	// Of several tokens at one place the longest counts.
	for _, ts := range l.tokens {
		slices.SortStableFunc(ts, func(a, b uaToken) int { return len(b.lower) - len(a.lower) })
	}
	return l, nil
}

func parseCrawlers(body []byte) ([]*crawler, error) {
	var f struct {
		Schema   string     `json:"schema"`
		Crawlers []*crawler `json:"crawlers"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, err
	}
	if f.Schema != "crawlgate.crawlers/1" {
		return nil, fmt.Errorf(`schema %q is not "crawlgate.crawlers/1"`, f.Schema)
	}
	seen := map[string]bool{}
	for i, c := range f.Crawlers {
		switch {
		case c == nil || c.Name == "":
			return nil, fmt.Errorf("crawlers[%d] has no name", i)
		case seen[c.Name]:
			return nil, fmt.Errorf("crawlers[%d]: %s is defined twice", i, c.Name)
		case !slices.Contains(categories, c.Category):
			return nil, fmt.Errorf("crawlers[%d] (%s): category %q is not one of %s", i, c.Name, c.Category, strings.Join(categories, ", "))
		case slices.Contains(c.UATokens, ""), slices.Contains(c.RobotsTokens, ""), slices.Contains(c.RDNS, ""):
			return nil, fmt.Errorf("crawlers[%d] (%s): an empty token or suffix", i, c.Name)
		}
		seen[c.Name] = true
		for _, name := range c.RangesFiles {
			if !filepath.IsLocal(name) {
				return nil, fmt.Errorf("crawlers[%d] (%s): ranges_files: %q does not lie below the folder of range files", i, c.Name, name)
			}
		}
		for k, s := range c.RDNS {
			c.RDNS[k] = dnsName(s)
		}
	}
	return f.Crawlers, nil
}

// otherRangeNames are names under which operators publish a range file as well.
var otherRangeNames = map[string]string{"googlebot.json": "common-crawlers.json"}

func (c *crawler) loadRanges(dir string) error {
	if dir == "" || len(c.RangesFiles) == 0 {
		return nil
	}
	var all []netip.Prefix
	for _, name := range c.RangesFiles {
		p, err := readRanges(filepath.Join(dir, name))
		if other := otherRangeNames[name]; other != "" && errors.Is(err, fs.ErrNotExist) {
			p, err = readRanges(filepath.Join(dir, other))
		}
		if errors.Is(err, fs.ErrNotExist) {
			c.missing = append(c.missing, name)
			continue
		}
		if err != nil {
			return err
		}
		all = append(all, p...)
	}
	c.ranges, c.known = newPrefixSet(all), len(c.missing) == 0
	return nil
}

func (l *crawlerList) byName(name string) int32 {
	for i, c := range l.all {
		if strings.EqualFold(c.Name, name) {
			return int32(i)
		}
	}
	return -1
}

// claimed finds the crawler that a user agent claims to be, -1 for none: the leftmost token that stands alone, of
// several there the longest.
func (l *crawlerList) claimed(agent []byte) int32 {
	start := true
	for i := 0; i < len(agent); i++ {
		c := agent[i]
		if start {
			for _, t := range l.tokens[lowerASCII(c)] {
				end := i + len(t.lower)
				if end <= len(agent) && equalFoldASCII(agent[i:end], t.lower) && (end == len(agent) || endsToken(agent[end])) {
					return t.crawler
				}
			}
		}
		start = beginsToken(c)
	}
	return -1
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// beginsToken tells whether a token may begin after c.
func beginsToken(c byte) bool {
	switch c {
	case ' ', '\t', '(', ';', ',', '"', '[':
		return true
	}
	return false
}

// endsToken tells whether a token may end before c.
func endsToken(c byte) bool {
	switch c {
	case ' ', '\t', '/', ';', ',', ')', '"', ']':
		return true
	}
	return false
}

// indexing reads the values of X-Robots-Tag that bind a crawler: those without a name and those for one of its names.
// The most restrictive counts.
func (c *crawler) indexing(values []byte) (noindex, nofollow bool) {
	for _, value := range strings.Split(string(values), "\n") {
		ours := true
		for _, d := range strings.Split(value, ",") {
			d = strings.ToLower(strings.TrimSpace(d))
			if name, rest, ok := strings.Cut(d, ":"); ok {
				name = strings.TrimSpace(name)
				switch name {
				case "max-snippet", "max-image-preview", "max-video-preview", "unavailable_after":
					continue
				}
				if !isBotName(name) {
					continue
				}
				ours, d = slices.Contains(c.names, name), strings.TrimSpace(rest)
			}
			if ours {
				noindex = noindex || d == "noindex" || d == "none"
				nofollow = nofollow || d == "nofollow" || d == "none"
			}
		}
	}
	return noindex, nofollow
}

func isBotName(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) && !isDigit(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return s != ""
}
