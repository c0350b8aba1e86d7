package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
)

// The signatures of Records Labs, verified by another implementation with the published key.

// RL-5: https requests to added sites are signed, and the published directory verifies them.
func checkSignatures(s *stage) error {
	away := s.site(tlsH1, everyone, nil, "elsewhere.test")
	one := s.site(tlsH1, everyone, paths(map[string]http.HandlerFunc{"/away": redirectTo(302, away.url("/"))}), "one.acme.test")
	two := s.site(tlsH2, everyone, nil, "two.acme.test")
	plain := s.site(plainHTTP, everyone, nil, "plain.acme.test")
	s.client("org-a", "crawl", one.url("/"), two.url("/"), plain.url("/"))
	s.configure(quickly)
	if r := s.command("keys", "new", "--agent", "ingestion"); r.code != 0 {
		s.t.Fatalf("keys new: %+v", r)
	}
	s.serve()
	for _, u := range []string{one.url("/"), one.url("/a?b=1"), one.url("/away"), two.url("/"), plain.url("/"), away.url("/")} {
		s.get("org-a", u, "Signature", "sig1=:AAAA:", "Signature-Input", `sig1=("@authority");created=1`)
	}
	key := s.publishedKey("recordslabs.ai")
	s.signed(key, one, one.arrivals(), `sig1="https://recordslabs.ai"`)
	s.signed(key, two, two.arrivals(), `sig1="https://recordslabs.ai"`)
	for _, o := range []*origin{plain, away} {
		for _, a := range o.pages() {
			if a.Header.Get("Signature") != "" {
				s.badly("%s%s is signed, which is promised for https to added sites alone", o.hosts[0], a.URI)
			}
		}
	}
	return s.done()
}

// publishedKey reads the key directory as a verifier would.
func (s *stage) publishedKey(host string) botKey {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.g.admin+"/.well-known/http-message-signatures-directory", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Host = host
	resp, err := direct.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var dir struct{ Keys []json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&dir); err != nil || len(dir.Keys) == 0 {
		s.badly("the key directory answers %d with %d keys (%v)", resp.StatusCode, len(dir.Keys), err)
		return botKey{}
	}
	var k struct{ Kid string }
	if err := json.Unmarshal(dir.Keys[0], &k); err != nil {
		s.t.Fatal(err)
	}
	return botKey{ID: k.Kid, JWK: dir.Keys[0]}
}

// signed has another implementation verify every request as the site got it.
func (s *stage) signed(key botKey, o *origin, list []arrival, agent string) {
	s.t.Helper()
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, a := range list {
		if a.Header.Get("Signature") == "" || a.Header.Get("Signature-Agent") != agent {
			s.badly("%s%s is not signed: %q", o.hosts[0], a.URI, a.Header["Signature-Agent"])
			continue
		}
		var fields [][2]string
		for name, values := range a.Header {
			for _, v := range values {
				fields = append(fields, [2]string{name, v})
			}
		}
		if err := enc.Encode(map[string]any{"id": a.URI, "now": a.At.Unix(), "jwk": key.JWK, "kid": key.ID, "method": a.Method, "targetUri": o.scheme + "://" + a.Host + a.URI, "fields": fields}); err != nil {
			s.t.Fatal(err)
		}
	}
	if in.Len() == 0 || key.ID == "" {
		s.badly("%s: no signed request to verify", o.hosts[0])
		return
	}
	cmd := exec.CommandContext(s.t.Context(), "node", "verify.mjs")
	cmd.Dir, cmd.Stdin, cmd.Env = nodeFolder(s.t), &in, bareEnv(s.dir)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("node verify.mjs: %v", err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		var r struct{ ID, Error string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Fatal(err)
		}
		n++
		if r.Error != "" {
			s.badly("%s%s: the signature is refused: %s", o.hosts[0], r.ID, r.Error)
		}
	}
	if n == 0 {
		s.badly("%s: nothing was verified", o.hosts[0])
	}
}
