package sign

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// DirectoryCapture is the answer to a request for a key directory, as it was on the wire.
type DirectoryCapture struct {
	URL    string // that was asked
	Status int
	Fields [][2]string
	Body   []byte // as transferred, not decoded
}

// Proof is the outcome for one signature of a directory.
type Proof struct {
	Result
	Proves bool `json:"proves"` // a key of the set signed for this authority
}

// VerifyDirectory judges the answer of a key directory: status 200, the exact media type, a Content-Digest that fits, and
// the proofs, each of which must be made by a key of the set over "@authority";req. Keys whose proof fails are left out of
// the set that comes back, with requireProof also those that have none. now is the verifier's clock; a proof may be skew
// ahead of it. The error says why there is no usable set at all.
func VerifyDirectory(c DirectoryCapture, now time.Time, skew time.Duration, requireProof bool) (*KeySet, []Proof, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, nil, fmt.Errorf("%q is not an https URL", clip(c.URL, 100))
	}
	res := newMessage(c.Fields)
	res.status = c.Status
	if res.request, err = requestMessage(Capture{Method: "GET", Scheme: "https", Target: c.URL, Fields: [][2]string{{"Host", u.Host}}}); err != nil {
		return nil, nil, err
	}
	if err := checkDirectoryResponse(res, c.Body); err != nil {
		return nil, nil, err
	}
	set, err := ParseKeySet(c.Body)
	if err != nil {
		return nil, nil, err
	}
	set.source = u
	proofs := set.checkProofs(res, now.Unix(), skew)
	proven, broken := map[string]bool{}, map[string]bool{}
	for _, p := range proofs {
		proven[p.KeyID] = proven[p.KeyID] || p.Proves
		broken[p.KeyID] = broken[p.KeyID] || !p.Proves
	}
	for id := range set.keys {
		if !proven[id] && (requireProof || broken[id]) {
			delete(set.keys, id)
		}
	}
	if len(set.keys) == 0 {
		return nil, proofs, errors.New("no key of the directory has a valid proof")
	}
	return set, proofs, nil
}

// ReadKeys reads a file of keys: a key set as ParseKeySet takes it, or the captured answer of a directory as JSON,
// {"request":{"url"},"response":{"status","headers":[[name,value],...],"body"}}, which is judged as VerifyDirectory does.
func ReadKeys(data []byte, now time.Time, skew time.Duration, requireProof bool) (*KeySet, []Proof, error) {
	var c struct {
		Request  struct{ URL string }
		Response *struct {
			Status  int
			Headers json.RawMessage
			Body    string
		}
	}
	if json.Unmarshal(data, &c) == nil && c.Response != nil {
		fields, err := jsonFields(c.Response.Headers)
		if err != nil {
			return nil, nil, err
		}
		return VerifyDirectory(DirectoryCapture{URL: c.Request.URL, Status: c.Response.Status, Fields: fields, Body: []byte(c.Response.Body)}, now, skew, requireProof)
	}
	if requireProof {
		return nil, nil, errors.New("a bare key set carries no proof; give the URL of the directory or its captured answer")
	}
	set, err := ParseKeySet(data)
	return set, nil, err
}

func checkDirectoryResponse(res *message, body []byte) error {
	types := res.fields["content-type"]
	switch {
	case res.status != 200:
		return fmt.Errorf("status %d, not 200", res.status)
	case len(types) != 1 || !strings.EqualFold(types[0], DirectoryType):
		return fmt.Errorf("the media type is %q, not %s", clip(strings.Join(types, ", "), 100), DirectoryType)
	case len(body) > maxDirectory:
		return fmt.Errorf("more than %d bytes", maxDirectory)
	}
	for _, e := range res.fields["content-encoding"] {
		if !strings.EqualFold(e, "identity") {
			return fmt.Errorf("the content encoding is %q", clip(e, 40))
		}
	}
	return checkDigest(res.fields["content-digest"], body)
}

// checkDigest compares every digest of a Content-Digest field that it knows (RFC 9530 2); an absent field is no error.
func checkDigest(lines []string, body []byte) error {
	if len(lines) == 0 {
		return nil
	}
	d, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return errors.New("Content-Digest is not a dictionary")
	}
	known := 0
	for _, name := range d.Names() {
		var want []byte
		switch name {
		case "sha-256":
			sum := sha256.Sum256(body)
			want = sum[:]
		case "sha-512":
			sum := sha512.Sum512(body)
			want = sum[:]
		default:
			continue
		}
		member, _ := d.Get(name)
		item, _ := member.(httpsfv.Item)
		have, _ := item.Value.([]byte)
		if !bytes.Equal(have, want) {
			return fmt.Errorf("the %s of Content-Digest is not that of the body", name)
		}
		known++
	}
	if known == 0 {
		return errors.New("Content-Digest has neither sha-256 nor sha-512")
	}
	return nil
}

// checkProofs judges every signature with the directory's tag. A directory without any gives none.
func (s *KeySet) checkProofs(res *message, now int64, skew time.Duration) []Proof {
	fields, f := readSignatureFields(res)
	var labels []string
	if f == nil {
		labels, f = fields.pick(tagDirectory)
	}
	if f != nil {
		if f.reason == "no-signature" {
			return nil
		}
		var p Proof
		p.set(f)
		return []Proof{p}
	}
	var proofs []Proof
	for _, label := range labels {
		p := Proof{Result: Result{Label: label}}
		one := fields.signature(label)
		f := one.parse()
		p.KeyID, p.Created, p.Expires, p.Covered = one.keyID, one.created, one.expires, one.covered()
		if f == nil {
			f = one.checkTimes(now, skew, 0) // a proof lives for days
		}
		if f == nil {
			f = one.checkAlg()
		}
		if f == nil && !one.covers(`"@authority";req`) {
			f = failed("authority-not-covered", `"@authority";req is not covered`)
		}
		if f == nil {
			f = one.checkDoubles()
		}
		var k setKey
		if f == nil {
			k, f = s.lookup(one.keyID)
		}
		if f == nil {
			f = one.checkSignature(res, k.public)
		}
		p.set(f)
		p.Proves = f == nil
		proofs = append(proofs, p)
	}
	return proofs
}
