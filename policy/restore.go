package policy

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// restore compiles the last version of a file, as long as it is good for anything.
func (a *Archive) restore(k key, token string, fallback []string) (*state, error) {
	v, ok := a.Latest(k.url(), k.agent)
	if !ok || time.Since(v.Fetched) > 30*maxAge {
		return nil, nil
	}
	return a.compile(&v, token, fallback)
}

// restoreAt compiles the version in force at a moment.
func (a *Archive) restoreAt(k key, t time.Time, token string, fallback []string) (*state, error) {
	v, ok := a.At(k.url(), k.agent, t)
	if !ok {
		return nil, nil
	}
	return a.compile(&v, token, fallback)
}

func (a *Archive) compile(v *Version, token string, fallback []string) (*state, error) {
	st := &state{}
	good := v
	if !v.isGood() {
		st.fail = v.failure(nil)
		good = v.Good
	}
	if good == nil {
		return st, nil
	}
	c := good.copied(token, fallback)
	if c.class == ClassNoMatch {
		body, err := readBodyFile(a.dir, c.sha)
		if err != nil {
			return nil, err
		}
		if c.group, c.named, err = compileBody(body, token, fallback); err != nil {
			return nil, err
		}
	}
	st.good = c
	return st, nil
}

// readBodyFile reads a body, and refuses one whose bytes are not those of its name.
func readBodyFile(dir, sha string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(bodyFile(sha))))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	body, err := io.ReadAll(io.LimitReader(f, MaxBody+2))
	if err != nil {
		return nil, err
	}
	if got := hexSum(body); got != sha {
		return nil, fmt.Errorf("archived body %s is damaged", sha)
	}
	return body, nil
}
