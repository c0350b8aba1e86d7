package admin

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	texttemplate "text/template"
)

// Page is the public "about our crawler" page: what the running configuration makes the gate do, said to site owners.
// It is built from the structures that enforce it, so that it cannot claim what is not done.
type Page struct {
	Title    string    `json:"title"`
	Intro    string    `json:"intro"`
	Policy   string    `json:"policy_sha256"` // hash of the configuration; every audit event carries it
	Sections []Section `json:"sections"`
}

// Section is one heading with what stands under it.
type Section struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Blocks []Block `json:"blocks"`
}

// Block is one paragraph, table or example.
type Block struct {
	Sentences []Sentence `json:"sentences,omitempty"`
	Table     *Table     `json:"table,omitempty"`
	Code      string     `json:"code,omitempty"`
	Stated    bool       `json:"stated,omitempty"` // the operator's word, not enforced
}

// Sentence is one claim. ID names what enforces it; a claim without a probe fails the tests.
type Sentence struct {
	ID   string `json:"id,omitempty"`
	Text string `json:"text"`
}

// Table is a table of claims.
type Table struct {
	Head []string `json:"head"`
	Rows []Row    `json:"rows"`
}

// Row is one row of a table; its cells together are one claim.
type Row struct {
	ID    string   `json:"id,omitempty"`
	Cells []string `json:"cells"`
}

//go:embed page.html.tmpl page.md.tmpl
var pageFiles embed.FS

var (
	pageHTML = template.Must(template.New("page.html.tmpl").ParseFS(pageFiles, "page.html.tmpl"))
	pageMD   = texttemplate.Must(texttemplate.New("page.md.tmpl").Funcs(texttemplate.FuncMap{
		"row": func(cells []string) string {
			out := make([]string, len(cells))
			for i, c := range cells {
				out[i] = strings.ReplaceAll(c, "|", `\|`)
			}
			return "| " + strings.Join(out, " | ") + " |"
		},
		"rule":   func(cells []string) string { return "|" + strings.Repeat(" --- |", len(cells)) },
		"indent": func(s string) string { return "    " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ") },
	}).ParseFS(pageFiles, "page.md.tmpl"))
)

// HTML renders the page: one file, no script, nothing from elsewhere.
func (p *Page) HTML() ([]byte, error) {
	var b bytes.Buffer
	err := pageHTML.Execute(&b, p)
	return b.Bytes(), err
}

// Markdown renders the printable twin.
func (p *Page) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := pageMD.Execute(&b, p)
	return b.Bytes(), err
}

// JSON renders the page for machines.
func (p *Page) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	return append(b, '\n'), err
}

// Claims lists every claim in order, as `id: text`; the operator's own statements are not among them.
func (p *Page) Claims() []Sentence {
	var out []Sentence
	for _, s := range p.Sections {
		for _, b := range s.Blocks {
			if b.Stated {
				continue
			}
			out = append(out, b.Sentences...)
			if b.Table != nil {
				for _, r := range b.Table.Rows {
					out = append(out, Sentence{r.ID, strings.Join(r.Cells, ": ")})
				}
			}
		}
	}
	return out
}

// DiffPages says in words what changed between a published page and this one, one line each: gone, new.
func DiffPages(published, now *Page, w io.Writer) (differ bool, err error) {
	before, after := map[string]bool{}, map[string]bool{}
	for _, c := range published.Claims() {
		before[c.Text] = true
	}
	for _, c := range now.Claims() {
		after[c.Text] = true
	}
	for _, c := range published.Claims() {
		if !after[c.Text] {
			differ = true
			if _, err := fmt.Fprintf(w, "published, not so any more  %s\n", c.Text); err != nil {
				return differ, err
			}
		}
	}
	for _, c := range now.Claims() {
		if !before[c.Text] {
			differ = true
			if _, err := fmt.Fprintf(w, "so now, not published       %s\n", c.Text); err != nil {
				return differ, err
			}
		}
	}
	return differ, nil
}

// ParsePage reads a page back from its JSON.
func ParsePage(data []byte) (*Page, error) {
	var p Page
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("not the JSON of a page that crawlgate wrote: %w", err)
	}
	return &p, nil
}
