package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKeptProof(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadProof(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	p := newProof()
	p.Sent, p.Proven, p.Unprovable = 5, 3, 2
	for i := range keptGaps + 7 {
		p.Gaps = append(p.Gaps, ProofGap{Host: fmt.Sprint(i)})
	}
	made := time.Now()
	for _, c := range []struct {
		allow  int64
		passed bool
	}{{0, false}, {2, true}} {
		if err := SaveProof(dir, p, made, "v1", c.allow); err != nil {
			t.Fatal(err)
		}
		k, err := LoadProof(dir)
		if err != nil {
			t.Fatal(err)
		}
		if k.Passed != c.passed || k.HostsLeftOut != 7 || len(k.Proof.Gaps) != keptGaps || !k.Made.Equal(made.Truncate(time.Millisecond)) || k.Version != "v1" || len(p.Gaps) != keptGaps+7 {
			t.Errorf("allowed %d: %+v", c.allow, k)
		}
		k.Proof.Gaps = p.Gaps
		if diff := cmp.Diff(p, k.Proof); diff != "" {
			t.Error(diff)
		}
	}
	st, err := os.Stat(ProofFile(dir))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "audit", "*")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	for text, want := range map[string]string{
		"": "not JSON", "[]": "not JSON", "{}": `schema ""`, `{"schema":"x\u001b[31m"}`: `schema "x\\u001b[31m"`,
		`{"schema":"` + KeptProofSchema + `"}`: "no proof", `{"schema":"` + KeptProofSchema + `","proof":{"schema":"x"}}`: "no proof",
	} {
		if err := os.WriteFile(ProofFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadProof(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzKeptProof(f *testing.F) {
	whole, err := json.Marshal(KeptProof{Schema: KeptProofSchema, Proof: newProof()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"schema":"` + KeptProofSchema + `","passed":true,"proof":{"schema":"` + ProofSchema + `","checks":{"rules":null,"pace":{"violations":3},"new":{"violations":9}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKeptProof(b)
		if err != nil {
			return
		}
		for _, name := range ProofChecks() {
			if k.Proof.Checks[name] == nil {
				t.Errorf("no check %s", name)
			}
		}
		if len(k.Proof.Checks) != len(proofChecks) || k.Passed != (k.Proof.Violations() == 0 && k.Proof.Unprovable <= k.AllowUnprovable) {
			t.Errorf("%+v", k)
		}
	})
}
