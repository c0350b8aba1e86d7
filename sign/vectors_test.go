package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
)

// vectorTime is when the cg-* vectors were made.
const vectorTime = 1735689600

type vectorFile struct {
	Keys     map[string]vectorKey
	Vectors  []vector
	Negative []vector
}

type vectorKey struct {
	PrivateJWK json.RawMessage `json:"private_jwk"`
	PublicJWK  json.RawMessage `json:"public_jwk"`
	PEM        string          `json:"pkcs8_pem"`
	Thumbprint string
}

type vector struct {
	ID, Kind, Key, Label, From, Reason, Authority, Base string
	Keys, Bases                                         []string
	Now                                                 int64
	MaxLifetime                                         int64 `json:"max_lifetime"`
	Request                                             struct {
		Method, URL string
		Headers     [][2]string
	}
	Response struct {
		Status  int
		Headers [][2]string
		Body    string
	}
	Input     string `json:"signature_input"`
	Signature string
	ExpectWBA string `json:"expect_wba"`
}

func readVectors(t testing.TB) vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/webbotauth.json")
	if err != nil {
		t.Fatal(err)
	}
	var f vectorFile
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Vectors) != 17 || len(f.Negative) != 16 {
		t.Fatalf("%d vectors, %d negative: not the whole file", len(f.Vectors), len(f.Negative))
	}
	return f
}

func (f vectorFile) key(t testing.TB, name string) key {
	t.Helper()
	k, err := parsePrivateKey(f.Keys[name].PrivateJWK)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (f vectorFile) set(t testing.TB, names ...string) *KeySet {
	t.Helper()
	var list []json.RawMessage
	for _, n := range names {
		list = append(list, f.Keys[n].PublicJWK)
	}
	data, err := json.Marshal(map[string]any{"keys": list})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseKeySet(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (v vector) capture() Capture {
	fields := append([][2]string{}, v.Request.Headers...)
	return Capture{Method: v.Request.Method, Target: v.Request.URL, Fields: append(fields, [2]string{"Signature-Input", v.Input}, [2]string{"Signature", v.Signature})}
}

func (v vector) directory() DirectoryCapture {
	fields := append([][2]string{}, v.Response.Headers...)
	return DirectoryCapture{URL: v.Request.URL, Status: v.Response.Status, Body: []byte(v.Response.Body),
		Fields: append(fields, [2]string{"Signature-Input", v.Input}, [2]string{"Signature", v.Signature})}
}

func (v vector) verifier(keys *KeySet) Verifier {
	out := Verifier{Keys: keys, Now: time.Unix(v.Now, 0), Skew: DefaultSkew, MaxLifetime: DefaultMaxLifetime}
	if v.MaxLifetime != 0 {
		out.MaxLifetime = time.Duration(v.MaxLifetime) * time.Second
	}
	return out
}

func TestVectorKeys(t *testing.T) {
	f := readVectors(t)
	for name, k := range f.Keys {
		fromJWK := f.key(t, name)
		fromPEM, err := parsePrivateKey([]byte(k.PEM))
		if err != nil {
			t.Fatal(err)
		}
		if fromJWK.id != k.Thumbprint || fromPEM.id != k.Thumbprint {
			t.Errorf("%s: thumbprints %s and %s, want %s", name, fromJWK.id, fromPEM.id, k.Thumbprint)
		}
		out, err := fromJWK.pem()
		if err != nil || string(out) != k.PEM {
			t.Errorf("%s: PEM written as %s (%v)", name, out, err)
		}
	}
}

// TestVectorBases rebuilds every base from the message, and makes every signature by Ed25519 alone.
func TestVectorBases(t *testing.T) {
	f := readVectors(t)
	for _, v := range f.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			m, err := requestMessage(v.capture())
			if err != nil {
				t.Fatal(err)
			}
			names, bases := []string{v.Key}, []string{v.Base}
			if v.Kind == "directory" {
				res := newMessage(v.directory().Fields)
				res.status, res.request = v.Response.Status, m
				m = res
				if v.Keys != nil {
					names, bases = v.Keys, v.Bases
				}
			}
			fields, fail := readSignatureFields(m)
			if fail != nil {
				t.Fatal(fail)
			}
			for i, label := range fields.input.Names() {
				one := fields.signature(label)
				base, err := m.base(one.input)
				if err != nil || base != bases[i] {
					t.Errorf("base of %s (%v):\n%s\nwant\n%s", label, err, base, bases[i])
				}
				if made := ed25519.Sign(f.key(t, names[i]).private, []byte(bases[i])); !bytes.Equal(made, one.value) {
					t.Errorf("signature of %s differs", label)
				}
			}
		})
	}
}

func TestVectorsVerify(t *testing.T) {
	f := readVectors(t)
	for _, v := range f.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			if v.Kind == "directory" {
				set, proofs, err := VerifyDirectory(v.directory(), time.Unix(v.Now, 0), DefaultSkew, true)
				want := max(1, len(v.Keys))
				if err != nil || set.Len() != want || len(proofs) != want {
					t.Errorf("%v, proofs %+v", err, proofs)
				}
				return
			}
			r := v.verifier(f.set(t, "k1", "k2")).Verify(v.capture())
			if word := r.Outcome; word != v.ExpectWBA && r.Reason != v.ExpectWBA {
				t.Errorf("%+v, want %s", r, v.ExpectWBA)
			}
		})
	}
}

func TestVectorsNegative(t *testing.T) {
	f := readVectors(t)
	for _, v := range f.Negative {
		t.Run(v.ID, func(t *testing.T) {
			r := v.verifier(f.set(t, "k1")).Verify(v.capture())
			if r.Reason != v.Reason {
				t.Errorf("%+v, want %s", r, v.Reason)
			}
			want := Invalid
			if v.Reason == "unknown-key" {
				want = Unverified
			}
			if r.Outcome != want {
				t.Errorf("outcome %s, want %s", r.Outcome, want)
			}
		})
	}
}

// sevens stands in for the random source of the nonce vector.
type sevens struct{}

func (sevens) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 7
	}
	return len(b), nil
}

// TestVectorsSign makes the cg-* vectors through a Signer, byte for byte.
func TestVectorsSign(t *testing.T) {
	f := readVectors(t)
	made := 0
	for _, v := range f.Vectors {
		if !strings.HasPrefix(v.ID, "cg-") || v.Kind != "request" {
			continue
		}
		made++
		t.Run(v.ID, func(t *testing.T) {
			keyFile := filepath.Join(t.TempDir(), "key.pem")
			if err := os.WriteFile(keyFile, []byte(f.Keys[v.Key].PEM), 0o600); err != nil {
				t.Fatal(err)
			}
			c := Defaults()
			c.AllowTestKey = true
			m, err := requestMessage(v.capture())
			if err != nil {
				t.Fatal(err)
			}
			agentURL := agentURLOf(t, m)
			if strings.HasPrefix(v.ID, "cg-legacy") {
				c.Form = FormString
			}
			if strings.HasPrefix(v.ID, "cg-bound") {
				c.Components = ComponentsBound
			}
			if v.ID == "cg-nonce" {
				c.Nonce = true
				old := rand.Reader
				rand.Reader = sevens{}
				defer func() { rand.Reader = old }()
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Unix(vectorTime, 0)))
				s, err := Open(c, t.TempDir(), []Agent{{Name: "a", SignatureAgent: agentURL, KeyFile: keyFile}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				authority, err := normalAuthority(strings.Split(strings.TrimPrefix(v.Request.URL, "https://"), "/")[0])
				if err != nil || authority != v.Authority {
					t.Fatalf("authority %q, %v, want %q", authority, err, v.Authority)
				}
				path, _, _ := strings.Cut(m.path, "?")
				h := http.Header{}
				info, err := s.Sign(Request{Agent: "a", Method: v.Request.Method, Authority: authority, Path: path}, h)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := h.Get("Signature-Input"), v.Input; got != want {
					t.Errorf("Signature-Input\n%s\nwant\n%s", got, want)
				}
				if got, want := h.Get("Signature"), v.Signature; got != want {
					t.Errorf("Signature %s, want %s", got, want)
				}
				if got, want := h.Get("Signature-Agent"), m.fields["signature-agent"][0]; got != want {
					t.Errorf("Signature-Agent %s, want %s", got, want)
				}
				want := Info{State: Signed, KeyID: f.Keys[v.Key].Thumbprint, Label: v.Label, AgentURL: agentURL,
					Created: vectorTime, Expires: vectorTime + 60,
					Components: v.Input[strings.Index(v.Input, "(")+1 : strings.Index(v.Input, ")")]}
				if info != want {
					t.Errorf("info %+v, want %+v", info, want)
				}
			})
		})
	}
	if made != 11 {
		t.Errorf("%d vectors were made", made)
	}
}

func agentURLOf(t *testing.T, m *message) string {
	t.Helper()
	lines := m.fields["signature-agent"]
	if item, err := httpsfv.UnmarshalItem(lines); err == nil {
		return item.Value.(string)
	}
	d, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		t.Fatal(err)
	}
	member, _ := d.Get(d.Names()[0])
	return member.(httpsfv.Item).Value.(string)
}

// TestVectorDirectory builds the two-key directory of the vectors, byte for byte.
func TestVectorDirectory(t *testing.T) {
	f := readVectors(t)
	for _, v := range f.Vectors {
		if v.ID != "cg-directory-two-keys" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Unix(vectorTime, 0)))
			d, err := buildDirectory("bot.example.com", []key{f.key(t, "k1"), f.key(t, "k2")}, PublishDefaults())
			if err != nil {
				t.Fatal(err)
			}
			if string(d.body) != v.Response.Body {
				t.Errorf("body %s", d.body)
			}
			if got := d.header.Get("Signature-Input"); got != v.Input {
				t.Errorf("Signature-Input\n%s\nwant\n%s", got, v.Input)
			}
			if got := d.header.Get("Signature"); got != v.Signature {
				t.Errorf("Signature\n%s\nwant\n%s", got, v.Signature)
			}
			for _, h := range v.Response.Headers {
				if got := d.header.Get(h[0]); !strings.HasPrefix(got, h[1]) {
					t.Errorf("%s: %s, want %s", h[0], got, h[1])
				}
			}
		})
	}
}
