package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// KeptProofSchema names the form of a kept proof.
const KeptProofSchema = "crawlgate.audit.proof-kept/1"

// Bounds of a kept proof.
const (
	proofFile    = "proof.json" // in the log's state folder
	keptGaps     = 1000         // hosts, those closest to what was owed first
	maxKeptProof = 32 << 20
)

// KeptProof is the last result of `audit prove` about a gate's own log, kept for its admin page.
type KeptProof struct {
	Schema          string    `json:"schema"`
	Made            time.Time `json:"made"`
	Version         string    `json:"version"` // of the program that proved
	Passed          bool      `json:"passed"`  // it ended with exit code 0
	AllowUnprovable int64     `json:"allow_unprovable"`
	HostsLeftOut    int       `json:"hosts_left_out"` // of the proof's gaps, which a file of this kind bounds
	Proof           *Proof    `json:"proof"`
}

// SaveProof keeps a proof in a state folder, in place of the one before. A reader sees one of them whole.
func SaveProof(stateDir string, p *Proof, made time.Time, version string, allowUnprovable int64) error {
	k := KeptProof{Schema: KeptProofSchema, Made: made.UTC().Truncate(time.Millisecond), Version: version, Passed: p.Passed(allowUnprovable), AllowUnprovable: allowUnprovable, Proof: p}
	if n := len(p.Gaps); n > keptGaps {
		short := *p
		short.Gaps = p.Gaps[:keptGaps]
		k.Proof, k.HostsLeftOut = &short, n-keptGaps
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Join(stateDir, "audit")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, proofFile), append(text, '\n'))
}

// ProofFile is where SaveProof keeps the proof of a state folder.
func ProofFile(stateDir string) string { return filepath.Join(stateDir, "audit", proofFile) }

// LoadProof reads the proof that a state folder keeps; an error that wraps fs.ErrNotExist says that there is none.
func LoadProof(stateDir string) (*KeptProof, error) {
	f, err := os.Open(ProofFile(stateDir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeptProof+1))
	if err != nil {
		return nil, err
	}
	k, err := parseKeptProof(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return k, nil
}

// parseKeptProof reads a kept proof so that whoever shows it finds every part there. Whether it passed is worked out
// again: what is shown must fit the violations beside it.
func parseKeptProof(text []byte) (*KeptProof, error) {
	if len(text) > maxKeptProof {
		return nil, errors.New("larger than a kept proof can be")
	}
	k := &KeptProof{}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, errors.New("not JSON of a kept proof")
	}
	switch {
	case k.Schema != KeptProofSchema:
		return nil, fmt.Errorf("schema %q, want %q", Printable(k.Schema, 60), KeptProofSchema)
	case k.Proof == nil || k.Proof.Schema != ProofSchema:
		return nil, errors.New("there is no proof in it")
	}
	checks := k.Proof.Checks
	k.Proof.Checks = map[string]*ProofCheck{}
	for _, name := range proofChecks {
		if k.Proof.Checks[name] = checks[name]; checks[name] == nil {
			k.Proof.Checks[name] = &ProofCheck{Findings: []ProofFinding{}}
		}
	}
	k.Passed = k.Proof.Passed(k.AllowUnprovable)
	return k, nil
}

// ProofChecks are the names of the checks, in the order in which they are shown.
func ProofChecks() []string { return append([]string{}, proofChecks...) }

// Violations counts them over all checks.
func (r *Proof) Violations() int64 { return r.violations() }
