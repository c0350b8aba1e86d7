package admin

import (
	"net/http"
	"path/filepath"
	"strings"

	"crawlgate/audit"
)

// What the page shows of a proof at most; the download has the rest.
const (
	pageFindings = 5 // violations of one check
	pageProofs   = 8 // lines of each list
)

// proofView is the last proof as the page shows it. Hosts, URLs and reasons in it come from the log, so from strangers.
type proofView struct {
	Available bool   // this gate can show one
	Error     string // there is one, but it cannot be shown
	*audit.KeptProof
	Checks   []checkRow
	Later    uint64 // events since
	Smallest *audit.ProofGap
}

// checkRow is one check of a proof.
type checkRow struct {
	Name, Means         string
	Checked, Violations int64
	Findings            []findingRow
	More                int64
}

// findingRow is one violation in words.
type findingRow struct {
	Where  string // file and line
	What   string // URL or host
	Text   string
	Reason string
	Seq    uint64
}

// checkMeans says what a check looks at.
var checkMeans = map[string]string{
	audit.CheckChain:    "no line of the log was altered, removed or moved",
	audit.CheckRules:    "robots.txt in effect allowed it",
	audit.CheckPace:     "the gap and the back-off that were owed had passed",
	audit.CheckOne:      "one request at a time for each host",
	audit.CheckAddress:  "a public address that the name had given",
	audit.CheckIdentity: "the agent's own name, signed where promised",
	audit.CheckComplete: "no event is missing",
}

// serveProof hands out the last proof as a file.
func (s *Server) serveProof(w http.ResponseWriter, _ *http.Request) error {
	if s.o.Proof == nil {
		return &httpError{http.StatusNotFound, "proofs are not available here"}
	}
	k, err := s.o.Proof()
	switch {
	case err != nil:
		return &httpError{http.StatusInternalServerError, "the kept proof cannot be read; the gate's log says why"}
	case k == nil:
		return &httpError{http.StatusNotFound, "there is no proof yet: crawlgate audit prove on this machine makes one"}
	}
	w.Header().Set("Content-Disposition", `attachment; filename="crawlgate-proof-`+k.Made.UTC().Format("20060102T150405Z")+`.json"`)
	writeJSON(w, http.StatusOK, k)
	return nil
}

// viewProof lays the last proof out.
func (s *Server) viewProof(chain LiveChain) proofView {
	v := proofView{Available: s.o.Proof != nil}
	if !v.Available {
		return v
	}
	k, err := s.o.Proof()
	if err != nil {
		v.Error = "The last proof cannot be read; the gate's log says why."
		return v
	}
	if k == nil {
		return v
	}
	v.KeptProof = k
	p := k.Proof
	if chain.Seq > p.Log.Last {
		v.Later = chain.Seq - p.Log.Last
	}
	if len(p.Gaps) > 0 {
		v.Smallest = &p.Gaps[0]
	}
	for _, name := range audit.ProofChecks() {
		c := p.Checks[name]
		row := checkRow{Name: strings.ReplaceAll(name, "_", " "), Means: checkMeans[name], Checked: c.Checked, Violations: c.Violations}
		for _, f := range c.Findings[:min(len(c.Findings), pageFindings)] {
			what := f.URL
			if what == "" {
				what = f.Host
			}
			where := filepath.Base(f.File)
			if f.Line > 0 {
				where += ", line " + number(f.Line)
			}
			row.Findings = append(row.Findings, findingRow{Where: where, What: what, Text: f.Text, Reason: f.Reason, Seq: f.Seq})
		}
		row.More = c.Violations - int64(len(row.Findings))
		v.Checks = append(v.Checks, row)
	}
	return v
}

// Exempt are the profiles that were taken out of a check, as far as the page shows them.
func (v proofView) Exempt() []audit.ProofExempt {
	l := v.Proof.ExemptProfiles
	return l[:min(len(l), pageProofs)]
}
