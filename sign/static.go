package sign

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// StaticDirectory says what WriteDirectory wrote.
type StaticDirectory struct {
	Authority string    `json:"authority"`
	Body      string    `json:"body"`    // file of the key set, to be served at DirectoryPath
	Headers   string    `json:"headers"` // file of the fields that must be served with it
	Keys      int       `json:"keys"`
	Expires   time.Time `json:"expires,omitzero"` // write it again before
}

// WriteDirectory writes the key directory of an authority ("": the only one) below dir for static hosting: the body at its
// well-known path, and a file _headers with the fields, in the form that common static hosts read: the path, then one
// indented field a line. The proofs expire; it must be run again before Expires.
func (k Keyring) WriteDirectory(authority, dir string) (StaticDirectory, error) {
	var out StaticDirectory
	st, err := load(k.Config, k.StateDir, k.withAuthority(authority))
	if err != nil {
		return out, err
	}
	p := k.Publish
	byAuthority, order := st.published(p)
	switch {
	case len(order) == 0:
		return out, errors.New("no agent has a signature_agent and a key")
	case authority == "" && len(order) > 1:
		return out, fmt.Errorf("there are several directories (%s); name one", strings.Join(order, ", "))
	case authority == "":
		authority = order[0]
	default:
		if authority, err = normalAuthority(authority); err != nil {
			return out, err
		}
	}
	keys, ours := byAuthority[authority]
	if !ours {
		return out, fmt.Errorf("no agent's directory is on %s; there is %s", authority, strings.Join(order, ", "))
	}
	d, err := buildDirectory(authority, keys, p)
	if err != nil {
		return out, err
	}
	out = StaticDirectory{Authority: authority, Keys: len(keys), Expires: d.expires,
		Body: filepath.Join(dir, filepath.FromSlash(DirectoryPath)), Headers: filepath.Join(dir, "_headers")}
	if err := os.MkdirAll(filepath.Dir(out.Body), 0o755); err != nil { //nolint:gosec // public files
		return out, err
	}
	if err := replaceFile(out.Body, d.body, 0o644); err != nil {
		return out, err
	}
	return out, replaceFile(out.Headers, d.headersFile(), 0o644)
}

// withAuthority lets a single agent without signature_agent be published where the caller says.
func (k Keyring) withAuthority(authority string) []Agent {
	if authority == "" || len(k.Agents) != 1 || k.Agents[0].SignatureAgent != "" {
		return k.Agents
	}
	a := k.Agents[0]
	a.SignatureAgent = "https://" + authority
	return []Agent{a}
}

// headersFile leaves ETag out: the host makes its own.
func (d *directory) headersFile() []byte {
	var names []string
	for name := range d.header {
		if name != "Etag" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", DirectoryPath)
	for _, name := range names {
		fmt.Fprintf(&b, "  %s: %s\n", name, d.header.Get(name))
	}
	return b.Bytes()
}
