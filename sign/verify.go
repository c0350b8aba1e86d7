package sign

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dunglas/httpsfv"
)

// Outcomes of a verification.
const (
	Verified   = "verified"   // signed by a known key under all rules
	Invalid    = "invalid"    // breaks a rule
	Unverified = "unverified" // can't be decided: no signature, or the key is not known
)

// Result is the outcome for one request.
type Result struct {
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"` // one word, "" when verified
	Detail   string `json:"detail,omitempty"` // what exactly
	Label    string `json:"label,omitempty"`
	KeyID    string `json:"key_id,omitempty"`
	AgentURL string `json:"agent_url,omitempty"` // value of Signature-Agent
	Created  int64  `json:"created,omitempty"`   // Unix seconds
	Expires  int64  `json:"expires,omitempty"`   // Unix seconds
	Covered  string `json:"covered,omitempty"`   // components, as in Signature-Input

	// Others are the outcomes of further Web Bot Auth signatures of the same request, the result being the best of all.
	Others []Result `json:"others,omitempty"`
}

// Verifier judges captured requests, more strictly than RFC 9421 alone asks for.
type Verifier struct {
	Keys        *KeySet
	Now         time.Time     // zero: the time of the call
	Skew        time.Duration // how far ahead created may be
	MaxLifetime time.Duration // longest expires minus created; 0: no limit
}

// Defaults of a Verifier's fields, for flags.
const (
	DefaultSkew        = 5 * time.Second
	DefaultMaxLifetime = 24 * time.Hour
)

// failure is a reason word with its detail.
type failure struct{ reason, detail string }

func (f *failure) Error() string { return f.reason + ": " + f.detail }

func failed(reason, format string, args ...any) *failure {
	return &failure{reason, fmt.Sprintf(format, args...)}
}

func (f *failure) outcome() string {
	if f.reason == "unknown-key" || f.reason == "no-signature" {
		return Unverified
	}
	return Invalid
}

func (r *Result) set(f *failure) {
	if f == nil {
		r.Outcome, r.Reason, r.Detail = Verified, "", ""
		return
	}
	r.Outcome, r.Reason, r.Detail = f.outcome(), f.reason, f.detail
}

// rank orders outcomes: the worse, the higher.
func rank(outcome string) int {
	switch outcome {
	case Verified:
		return 0
	case Unverified:
		return 1
	}
	return 2
}

// Worse gives the worse of two outcomes: invalid before unverified before verified.
func Worse(a, b string) string {
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// Verify judges one request. A request with several Web Bot Auth signatures is as good as the best of them.
func (v Verifier) Verify(c Capture) Result {
	var whole Result
	m, err := requestMessage(c)
	fields, f := readSignatureFields(m)
	switch {
	case f != nil && f.reason == "no-signature":
		// Said first: an unsigned request over http breaks no rule.
	case err != nil:
		f = failed("malformed-request", "%s", err)
	case m.scheme != "https":
		f = failed("signed-over-http", "the scheme is %s", m.scheme)
	}
	if f != nil {
		whole.set(f)
		return whole
	}
	labels, f := fields.pick(tagRequest)
	if f != nil {
		whole.set(f)
		return whole
	}
	results := make([]Result, 0, len(labels))
	best := 0
	for i, label := range labels {
		results = append(results, v.judge(m, fields, label))
		if rank(results[i].Outcome) < rank(results[best].Outcome) {
			best = i
		}
	}
	whole = results[best]
	for i, r := range results {
		if i != best {
			whole.Others = append(whole.Others, r)
		}
	}
	return whole
}

// judge decides about one label.
func (v Verifier) judge(m *message, fields *signatureFields, label string) Result {
	r := Result{Label: label}
	s := fields.signature(label)
	f := s.parse()
	r.KeyID, r.Created, r.Expires, r.Covered = s.keyID, s.created, s.expires, s.covered()
	if f == nil {
		f = s.checkTimes(v.now(), v.Skew, v.MaxLifetime)
	}
	if f == nil {
		f = s.checkAlg()
	}
	if f == nil {
		f = s.checkRequestCoverage()
	}
	if f == nil {
		r.AgentURL, f = fields.checkAgent(s)
	}
	var k setKey
	if f == nil {
		k, f = v.Keys.find(r.AgentURL, s.keyID)
	}
	if f == nil {
		f = s.checkSignature(m, k.public)
	}
	r.set(f)
	return r
}

func (v Verifier) now() int64 {
	if v.Now.IsZero() {
		return time.Now().Unix()
	}
	return v.Now.Unix()
}

// oneSignature is one label's Signature-Input and Signature.
type oneSignature struct {
	label            string
	input            httpsfv.InnerList
	value            []byte
	keyID            string
	created, expires int64
	ids              []string // components with sorted parameters
	malformed        *failure
}

// parse reads the parameters every signature needs.
func (s *oneSignature) parse() *failure {
	if s.malformed != nil {
		return s.malformed
	}
	var f *failure
	if s.created, f = s.integer("created"); f != nil {
		return f
	}
	if s.expires, f = s.integer("expires"); f != nil {
		return f
	}
	v, found := s.input.Params.Get("keyid")
	if !found {
		return failed("missing-keyid", "no keyid parameter")
	}
	id, ok := v.(string)
	if !ok || id == "" {
		return failed("malformed-keyid", "keyid is not a string")
	}
	s.keyID = id
	return nil
}

func (s *oneSignature) integer(name string) (int64, *failure) {
	v, found := s.input.Params.Get(name)
	if !found {
		return 0, failed("missing-"+name, "no %s parameter", name)
	}
	n, ok := v.(int64)
	if !ok || n < 0 {
		return 0, failed("malformed-"+name, "%s is not a whole number of seconds", name)
	}
	return n, nil
}

// checkTimes takes now in Unix seconds.
func (s *oneSignature) checkTimes(now int64, skew, longest time.Duration) *failure {
	switch {
	case s.created > now+int64(skew/time.Second):
		return failed("created-in-future", "created is %d s ahead", s.created-now)
	case s.expires <= s.created:
		return failed("expires-before-created", "expires %d, created %d", s.expires, s.created)
	case now > s.expires:
		return failed("expired", "%d s ago", now-s.expires)
	case longest > 0 && s.expires-s.created > int64(math.Ceil(longest.Seconds())):
		return failed("lifetime-too-long", "%d s", s.expires-s.created)
	}
	return nil
}

// checkAlg: the algorithm comes from the key; the message may only agree.
func (s *oneSignature) checkAlg() *failure {
	if v, found := s.input.Params.Get("alg"); found && v != algEd25519 {
		return failed("wrong-alg", "alg is %v", v)
	}
	return nil
}

// checkRequestCoverage wants the host covered, and nothing twice.
func (s *oneSignature) checkRequestCoverage() *failure {
	if !s.covers(`"@authority"`) && !s.covers(`"@target-uri"`) {
		return failed("authority-not-covered", "neither @authority nor @target-uri is covered")
	}
	return s.checkDoubles()
}

func (s *oneSignature) checkDoubles() *failure {
	seen := map[string]bool{}
	for _, id := range s.ids {
		if seen[id] {
			return failed("duplicate-component", "%s is covered twice", id)
		}
		seen[id] = true
	}
	return nil
}

func (s *oneSignature) covers(id string) bool {
	for _, have := range s.ids {
		if have == id {
			return true
		}
	}
	return false
}

func (s *oneSignature) covered() string {
	out := ""
	for i, item := range s.input.Items {
		id, err := httpsfv.Marshal(item)
		if err != nil {
			return ""
		}
		if i > 0 {
			out += " "
		}
		out += id
	}
	return out
}

// checkSignature rebuilds the base and verifies the 64 bytes.
func (s *oneSignature) checkSignature(m *message, public ed25519.PublicKey) *failure {
	base, err := m.base(s.input)
	if err == nil && len(s.value) != ed25519.SignatureSize {
		err = fmt.Errorf("%d bytes, not %d", len(s.value), ed25519.SignatureSize)
	}
	if err == nil && !ed25519.Verify(public, []byte(base), s.value) {
		err = errors.New("the signature is not by this key over this request")
	}
	if err != nil {
		return failed("bad-signature", "%s", err)
	}
	return nil
}
