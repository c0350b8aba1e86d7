package sign

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/yaronf/httpsign"
)

const (
	// DirectoryPath is where a key directory lives on its host.
	DirectoryPath = "/.well-known/http-message-signatures-directory"
	// DirectoryType is its media type, without parameters.
	DirectoryType = "application/http-message-signatures-directory+json"

	maxDirectory = 64 << 10 // bytes
)

// directory is one key set with its proofs, ready to be served or written. It never changes.
type directory struct {
	authority string
	body      []byte
	header    http.Header // everything that also a 304 repeats
	built     time.Time
	expires   time.Time // of the proofs; zero when no key has one
}

// buildDirectory makes the key set of an authority and one proof for each key whose private half is known. The proof
// covers "@authority" of the request (what registries demand) and Content-Digest (what the drafts demand).
func buildDirectory(authority string, keys []key, p PublishConfig) (*directory, error) {
	d := &directory{authority: authority, built: time.Now()}
	set := struct {
		Keys []jwk `json:"keys"`
	}{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.jwk())
	}
	body, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	if len(body) > maxDirectory {
		return nil, fmt.Errorf("the key set is %d bytes, more than %d", len(body), maxDirectory)
	}
	d.body = body
	digest, err := contentDigest(body)
	if err != nil {
		return nil, err
	}
	d.header = http.Header{
		"Content-Type":                {DirectoryType},
		"Cache-Control":               {"public, max-age=" + strconv.FormatInt(int64(p.MaxAge/time.Second), 10) + ", no-transform"},
		"Access-Control-Allow-Origin": {"*"},
		"Content-Digest":              {digest},
	}
	var inputs, signatures []string
	for i, k := range keys {
		if k.private == nil {
			continue
		}
		input, signature, err := d.prove("key"+strconv.Itoa(i), k, p.ProofLifetime)
		if err != nil {
			return nil, fmt.Errorf("proof of key %s: %w", k.id, err)
		}
		inputs, signatures = append(inputs, input), append(signatures, signature)
	}
	if len(inputs) > 0 {
		d.header["Signature-Input"] = []string{strings.Join(inputs, ", ")}
		d.header["Signature"] = []string{strings.Join(signatures, ", ")}
		d.expires = time.Unix(d.built.Unix(), 0).Add(p.ProofLifetime).UTC()
	}
	sum := sha256.Sum256(strconv.AppendInt(bytes.Clone(body), d.built.Unix(), 10))
	d.header["Etag"] = []string{`"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`}
	return d, nil
}

// prove signs the response with one key. The authority is always the configured one, never that of a request.
func (d *directory) prove(label string, k key, lifetime time.Duration) (input, signature string, err error) {
	fields := httpsign.NewFields().AddHeaderExt("@authority", false, false, true, false).AddHeader("content-digest")
	config := httpsign.NewSignConfig().SetExpires(d.built.Add(lifetime).Unix()).SetTag(tagDirectory).SetKeyID(k.id)
	signer, err := httpsign.NewEd25519Signer(k.private, config, *fields)
	if err != nil {
		return "", "", err
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Digest": d.header["Content-Digest"]}}
	req := &http.Request{Method: http.MethodGet, Host: d.authority, URL: &url.URL{Scheme: "https", Host: d.authority, Path: DirectoryPath}}
	return httpsign.SignResponse(label, *signer, res, req)
}

// contentDigest is the RFC 9530 field value for a body.
func contentDigest(body []byte) (string, error) {
	sum := sha256.Sum256(body)
	d := httpsfv.NewDictionary()
	d.Add("sha-256", httpsfv.NewItem(sum[:]))
	return httpsfv.Marshal(d)
}

// published gives the keys that each authority shows: those of every agent that signs, under publish.authority or, when
// that is empty, under the host of its signature_agent.
func (st *state) published(p PublishConfig) (byAuthority map[string][]key, order []string) {
	byAuthority = map[string][]key{}
	for _, a := range st.agents {
		if a.why != "" {
			continue
		}
		authority := directoryAuthority(a.agentURL, p)
		if authority == "" {
			continue
		}
		have, known := byAuthority[authority]
		if !known {
			order = append(order, authority)
		}
		for _, k := range a.keys.published {
			if !(keys{published: have}).has(k.id) {
				have = append(have, k)
			}
		}
		byAuthority[authority] = have
	}
	return byAuthority, order
}

// directoryAuthority is the host of the directory of an agent, "" for an agent without one.
func directoryAuthority(agentURL string, p PublishConfig) string {
	raw := p.Authority
	if raw == "" {
		u, err := parseAgentURL(agentURL)
		if err != nil {
			return ""
		}
		raw = u.Host
	}
	authority, err := normalAuthority(raw)
	if err != nil {
		return ""
	}
	return authority
}
