package sign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CardPath is where a published card lives on the directory's host.
const CardPath = "/signature-agent-card.json"

// CardFacts is what a card says about conduct; it must come from the same settings that the proxy enforces.
type CardFacts struct {
	URL             string // where the card is served; "": CardPath on the directory's host
	Compliant       bool   // every policy in use obeys the groups for all crawlers in robots.txt, for every request
	Trigger         string // crawler or fetcher; "": crawler
	RateControl     string // "": what crawlgate always heeds
	RateExpectation string // like avg=1rps; "": left out
	KnownURLs       []string
}

type card struct {
	ClientID   string   `json:"client_id"`
	ClientName string   `json:"client_name"`
	ClientURI  string   `json:"client_uri,omitempty"`
	Contacts   []string `json:"contacts,omitempty"`
	JWKSURI    string   `json:"jwks_uri"`
	Bot        cardBot  `json:"web_bot_auth"`
}

type cardBot struct {
	UserAgent       string   `json:"expected-user-agent,omitempty"`
	ProductToken    string   `json:"rfc9309-product-token,omitempty"`
	Compliant       bool     `json:"rfc9309-compliance"`
	Trigger         string   `json:"trigger"`
	Purpose         string   `json:"purpose,omitempty"`
	RateControl     string   `json:"rate-control"`
	RateExpectation string   `json:"rate-expectation,omitempty"`
	KnownURLs       []string `json:"known-urls"`
}

// CardAgent is the agent whose card is shown under a Host: the first whose directory is on it. A Host that is no agent's,
// as behind a TLS terminator that rewrites it or on the operator's own listener, is shown the first agent's.
func CardAgent(agents []Agent, p PublishConfig, host string) (Agent, bool) {
	authority, err := normalAuthority(host)
	var first *Agent
	for i, a := range agents {
		switch d := directoryAuthority(a.SignatureAgent, p); {
		case a.SignatureAgent == "" || d == "":
			continue
		case err == nil && d == authority:
			return a, true
		case first == nil:
			first = &agents[i]
		}
	}
	if first == nil {
		return Agent{}, false
	}
	return *first, true
}

// Card is the Signature Agent Card of an agent (draft-meunier-webbotauth-registry-04), one line of JSON. client_id equals
// the URL of the card byte for byte; the keys are given by jwks_uri.
func Card(a Agent, p PublishConfig, f CardFacts) ([]byte, error) {
	authority := directoryAuthority(a.SignatureAgent, p)
	if authority == "" {
		return nil, fmt.Errorf("agent %s has no signature_agent, so there is nothing a card could point to", a.Name)
	}
	c := card{ClientID: f.URL, ClientName: a.Token, ClientURI: a.InfoURL,
		JWKSURI: "https://" + authority + DirectoryPath,
		Bot: cardBot{ProductToken: a.Token, Compliant: f.Compliant, Trigger: f.Trigger,
			Purpose: strings.Join(a.Purposes, ", "), RateControl: f.RateControl, RateExpectation: f.RateExpectation, KnownURLs: f.KnownURLs}}
	if a.UserAgent != "pass" {
		c.Bot.UserAgent = a.UserAgent
	}
	if c.ClientName == "" {
		c.ClientName = a.Name
	}
	if c.ClientID == "" {
		c.ClientID = "https://" + authority + CardPath
	}
	if u, err := url.Parse(c.ClientID); err != nil || u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
		return nil, fmt.Errorf("card URL %q is not an absolute https URL", c.ClientID)
	}
	switch {
	case strings.Contains(a.Contact, ":"):
		c.Contacts = []string{a.Contact}
	case strings.Contains(a.Contact, "@"):
		c.Contacts = []string{"mailto:" + a.Contact}
	}
	switch c.Bot.Trigger {
	case "":
		c.Bot.Trigger = "crawler"
	case "crawler", "fetcher":
	default:
		return nil, errors.New("trigger is not one of crawler, fetcher")
	}
	if c.Bot.RateControl == "" {
		c.Bot.RateControl = "429, Retry-After, Crawl-delay"
	}
	if c.Bot.KnownURLs == nil {
		c.Bot.KnownURLs = []string{"/robots.txt"}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
