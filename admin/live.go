package admin

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// What the page shows at most; the API and the audit log have the rest.
const (
	pageRows     = 25  // hosts, unless ?hosts=all
	pageHostsAll = 500 // with ?hosts=all
	pageClients  = 50
	pageEvents   = 50
	pageDenied   = 5
	pageJobs     = 25
	pageChips    = 8 // hosts to choose a picture of
	pageDots     = 300
	turnsWindow  = 5 * time.Minute // the picture reaches back so far at most
)

//go:embed live.html.tmpl trail.html.tmpl live.css live.js favicon.svg
var files embed.FS

var page = template.Must(template.New("live.html.tmpl").Funcs(template.FuncMap{
	"sum":      func(n int64) string { return number(n) },
	"clean":    clean,
	"short":    short,
	"seconds":  func(s float64) string { return short(time.Duration(s * float64(time.Second))) },
	"ago":      ago,
	"in":       in,
	"count":    func(n int) string { return number(n) },
	"ucount":   func(n uint64) string { return number(n) },
	"size":     size,
	"hostname": func(n int, s string) string { return shortHost(clean(s), n) },
	"shorten":  func(n int, s string) string { return shorten(clean(s), n) },
	"clock":    func(t time.Time) string { return t.Format("15:04:05") },
	"date":     func(t time.Time) string { return t.Format("2006-01-02 15:04") },
	"stamp":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"join":     func(s []string) string { return clean(strings.Join(s, ", ")) },
	"rule":     ruleText,
}).ParseFS(files, "live.html.tmpl", "trail.html.tmpl"))

// asset serves one file of the page's own.
func asset(name, contentType string) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", contentType)
		_, err = w.Write(b)
		return err
	}
}

// view is what the template gets.
type view struct {
	Now     time.Time
	Seq     uint64 // the newest event on the page; the stream goes on from it
	Filter  filter
	AllLink string // the same page with all hosts
	Sort    string

	Live
	Proxy    string // as this reader can reach it
	CAURL    string
	PACURL   string
	Ready    bool
	Checks   []Check
	NotReady []string

	Totals  map[string]span
	Backoff int // hosts in back-off or stopped
	Quiet   bool

	TurnsHost  string
	TurnsHosts []string
	Turns      template.HTML

	Hosts      []hostRow
	Held       []hostRow
	HostsTotal int
	HostsAll   bool
	Clients    []clientRow
	MoreClient int
	Reasons    []reasonRow
	Denied     []*record
	Events     []eventRow
	Jobs       []Job
	MoreJobs   int
	Ledger     []LedgerEntry
	HasLedger  bool
	CanChange  bool
	Lost       uint64
	Proof      proofView

	HasRobots  bool
	CanExplain bool
	Explain    explainView

	Decisions   []string
	Kinds       []string
	ReasonCodes []string
}

type explainView struct {
	URL, Client, Profile, At string
	Text                     string
	Error                    string
}

// eventRow is a record with its event laid out for reading.
type eventRow struct {
	*record
	JSON string
}

// serveLive renders the page. It needs no script: with one it renews its parts
// when the stream says that something happened.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if _, err := filterOf(q); err != nil {
		return err
	}
	if _, ok := orders[q.Get("sort")]; !ok {
		return sortHosts(nil, q.Get("sort"))
	}
	v := s.view(r, q)
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Server) view(r *http.Request, q url.Values) *view {
	now := time.Now()
	l := s.live()
	v := &view{
		Now: now, Live: l, Proxy: s.proxyFor(r),
		Filter:    filterIn(q),
		Totals:    s.state.totals(now),
		HostsAll:  q.Get("hosts") == "all",
		Decisions: decisions, Kinds: kinds, ReasonCodes: reasons,
		CanExplain: s.o.Explain != nil,
		HasRobots:  s.o.RobotsFile != nil,
		HasLedger:  s.o.Ledger != nil,
		CanChange:  s.o.Ledger != nil && s.o.Token != "",
	}
	v.Checks, v.Ready = s.ready()
	v.NotReady = notReady(v.Checks)
	base := "http://" + r.Host
	if r.TLS != nil {
		base = "https://" + r.Host
	}
	v.CAURL, v.PACURL = base+"/ca.pem", base+"/proxy.pac"
	v.Quiet = v.Totals["requests"].Total == 0

	s.state.mu.Lock()
	if n := len(s.state.ring); n > 0 {
		v.Seq = s.state.ring[n-1].Seq
	}
	v.Lost = max(s.state.lost, l.Chain.Lost)
	if v.Chain.Checkpoint.IsZero() {
		v.Chain.Checkpoint = s.state.checkpoint
	}
	s.state.mu.Unlock()

	v.hosts(s.hostRows(l, now), q)
	v.Clients = s.clientRows(l)
	if n := len(v.Clients); n > pageClients {
		v.Clients, v.MoreClient = v.Clients[:pageClients], n-pageClients
	}
	v.Reasons = s.reasonRows(now)
	v.Denied = s.state.records(pageDenied, func(r *record) bool { return r.Reason == "address-denied" })
	keep, _ := filterOf(q) // checked by serveLive
	for _, rec := range s.state.records(pageEvents, keep) {
		v.Events = append(v.Events, eventRow{rec, rec.pretty()})
	}
	if s.o.Jobs != nil {
		v.Jobs = slices.Clone(s.o.Jobs.List())
		slices.SortStableFunc(v.Jobs, func(a, b Job) int { return b.Last.Compare(a.Last) })
		if n := len(v.Jobs); n > pageJobs {
			v.Jobs, v.MoreJobs = v.Jobs[:pageJobs], n-pageJobs
		}
	}
	if s.o.Ledger != nil {
		v.Ledger = s.o.Ledger.List()
	}
	s.viewTurns(v, now)
	v.Proof = s.viewProof(l.Chain)
	if q.Get("explain") != "" {
		v.Explain = s.viewExplain(r, q)
	}
	return v
}

func (v *view) hosts(rows []hostRow, q url.Values) {
	v.HostsTotal = len(rows)
	for _, h := range rows {
		if h.Held() {
			v.Backoff++
		}
		if h.Held() && len(v.Held) < pageRows {
			v.Held = append(v.Held, h)
		}
	}
	most := pageRows
	if v.HostsAll {
		most = pageHostsAll
	}
	v.Sort = q.Get("sort")
	_ = sortHosts(rows, v.Sort) // checked by serveLive
	v.Hosts = rows[:min(most, len(rows))]
	all := url.Values{}
	for k := range q {
		if k != "explain" {
			all[k] = q[k]
		}
	}
	all.Set("hosts", "all")
	v.AllLink = "/?" + all.Encode() + "#hosts"
}

// viewTurns draws the host that was filtered for, or else the busiest.
func (s *Server) viewTurns(v *view, now time.Time) {
	v.TurnsHosts = s.busiest(pageChips)
	v.TurnsHost = v.Filter.Host
	if v.TurnsHost == "" && len(v.TurnsHosts) > 0 {
		v.TurnsHost = v.TurnsHosts[0]
	}
	var b bytes.Buffer
	if err := s.drawTurns(&b, v.TurnsHost, now, false); err == nil {
		v.Turns = template.HTML(b.String()) //nolint:gosec // our own writer, every text escaped by it
	}
}

func (s *Server) drawTurns(w io.Writer, host string, now time.Time, alone bool) error {
	o := TurnsOptions{Standalone: alone, Width: 1180}
	if host != "" {
		o.Title = host
	}
	dots := s.dots(host, pageDots)
	if n := len(dots); n > 0 {
		// The picture ends now while the host is in use, else at its last request.
		o.To = dots[n-1].End
		if now.Sub(o.To) < turnsWindow && !now.Before(o.To) {
			o.To = now
		}
		o.From = dots[0].Start
		if first := o.To.Add(-turnsWindow); o.From.Before(first) {
			o.From = first
		}
		dots = slices.DeleteFunc(dots, func(d Dot) bool { return d.Start.Before(o.From) })
	}
	return TurnsSVG(w, dots, o)
}

// serveTurns is the picture as a file: /live.svg?host=.
func (s *Server) serveTurns(w http.ResponseWriter, r *http.Request) error {
	host := strings.ToLower(r.URL.Query().Get("host"))
	if len(host) > maxFilter {
		return &BadInput{"a filter is longer than 512 bytes"}
	}
	if hs := s.busiest(1); host == "" && len(hs) > 0 {
		host = hs[0]
	}
	var b bytes.Buffer
	if err := s.drawTurns(&b, host, time.Now(), true); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'") // its own colours
	h.Set("Content-Type", "image/svg+xml")
	_, err := w.Write(b.Bytes())
	return err
}

// viewExplain answers the page's form; what goes wrong is shown beside it.
func (s *Server) viewExplain(r *http.Request, q url.Values) explainView {
	e := explainView{URL: q.Get("explain"), Client: q.Get("as"), Profile: q.Get("profile"), At: q.Get("at")}
	ask := r.Clone(r.Context())
	ask.URL = &url.URL{Path: "/api/explain", RawQuery: url.Values{
		"url": {e.URL}, "client": {e.Client}, "profile": {e.Profile}, "at": {e.At},
	}.Encode()}
	got, err := s.explainURL(ask)
	var bad *BadInput
	var he *httpError
	switch {
	case errors.As(err, &bad):
		e.Error = bad.Text
	case errors.As(err, &he):
		e.Error = he.text
	case err != nil:
		s.log.Error("explain failed", "err", err)
		e.Error = "this could not be explained; the gate's log says why"
	default:
		e.Text = explainText(got)
	}
	return e
}

// explainText shows an explanation as `crawlgate check` prints it, or its JSON.
func explainText(v any) string {
	var text string
	if t, ok := v.(interface{ Text() string }); ok {
		text = t.Text()
	} else {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // the template escapes
		if err := enc.Encode(v); err != nil {
			return "the explanation can't be written as JSON"
		}
		text = b.String()
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = clean(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// pretty is the event without its empty fields, one a line, for reading.
func (r *record) pretty() string {
	r.laidOut.Do(func() {
		var m orderedObject
		if err := json.Unmarshal(r.raw(), &m); err != nil {
			r.text = clean(string(r.raw()))
			return
		}
		var b strings.Builder
		m.write(&b, "")
		r.text = b.String()
	})
	return r.text
}
