package main

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crawlgate/sign"
)

// verifyFiles writes what verify needs out of the vectors of package sign: a capture of one request, and the key set.
func verifyFiles(t *testing.T, id string) (capture, keys string) {
	t.Helper()
	data, err := os.ReadFile("../../sign/testdata/webbotauth.json")
	if err != nil {
		t.Fatal(err)
	}
	type one struct {
		ID      string
		Request struct {
			Method, URL string
			Headers     [][2]string
		}
		Input     string `json:"signature_input"`
		Signature string
	}
	var f struct {
		Keys map[string]struct {
			JWK json.RawMessage `json:"public_jwk"`
		}
		Vectors, Negative []one
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, v := range append(f.Vectors, f.Negative...) {
		if v.ID == id {
			headers := append(v.Request.Headers, [2]string{"Signature-Input", v.Input}, [2]string{"Signature", v.Signature})
			capture = write("capture.json", map[string]any{"method": v.Request.Method, "url": v.Request.URL, "headers": headers})
		}
	}
	if capture == "" {
		t.Fatalf("no vector %s", id)
	}
	return capture, write("keys.json", map[string]any{"keys": []any{f.Keys["k1"].JWK}})
}

func TestVerifyCommand(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	const id = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
	for _, c := range []struct {
		name, vector string
		args         []string
		out, errs    string
		code         int
	}{
		{"verified", "cg-dict-url", nil, "1  verified  GET \"https://example.com/\"  \"" + id + "\"\n", "1 requests: 1 verified, 0 invalid, 0 unverified\n", 0},
		{"invalid", "neg-agent-params", nil, "1  invalid  agent-member-parameters  GET \"https://example.com/\"  \"" + id + "\"  (Signature-Agent has the parameter type)\n", "1 requests: 0 verified, 1 invalid, 0 unverified\n", 1},
		{"undecided", "neg-unknown-key", nil, "1  unverified  unknown-key  GET ", "1 requests: 0 verified, 0 invalid, 1 unverified\n", 2},
		{"clock", "cg-dict-url", []string{"--now", "1735689661"}, "1  invalid  expired ", "1 invalid", 1},
		{"skew", "neg-created-future", []string{"--skew", "30s"}, "1  verified ", "1 verified", 0},
		{"lifetime", "wg01-ed25519", []string{"--max-lifetime", "0"}, "1  verified ", "1 verified", 0},
		{"lifetime cap", "cg-dict-url", []string{"--max-lifetime", "59s"}, "1  invalid  lifetime-too-long ", "1 invalid", 1},
		{"json", "neg-expired", []string{"--json", "--now", "1735689720"}, `{"n":1,"method":"GET","target":"https://example.com/","outcome":"invalid","reason":"expired","detail":"60 s ago","label":"sig1","key_id":"` + id + `",`, "", 1},
		{"proof of a file", "cg-dict-url", []string{"--require-proof"}, "", "a bare key set carries no proof", 2},
		{"scheme", "cg-dict-url", []string{"--scheme", "ftp"}, "", `--scheme "ftp" is not one of http, https`, 2},
		{"no such capture", "cg-dict-url", []string{"--capture", "none.json"}, "", "none.json", 2},
		{"no such keys", "cg-dict-url", []string{"--keys", "none.json"}, "", "none.json", 2},
		{"keys over http", "cg-dict-url", []string{"--keys", "http://bot.example.com/"}, "", "only https is fetched", 2},
		{"keys at a private address", "cg-dict-url", []string{"--keys", "https://127.0.0.1/"}, "", "addr_loopback", 2},
		{"negative skew", "cg-dict-url", []string{"--skew", "-1s"}, "", "--skew -1s is negative", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			capture, keys := verifyFiles(t, c.vector)
			args := append([]string{"verify", "--capture", capture, "--keys", keys, "--now", "1735689610"}, c.args...)
			out, errs, code := runKeysCLI(t, "", args...)
			if code != c.code || !strings.HasPrefix(out, c.out) || c.out == "" && out != "" || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit %d, want %d\n%s%s", code, c.code, out, errs)
			}
		})
	}
}

// TestVerifyCommandWorst: the exit status is that of the worst request, and invalid is worse than undecided.
func TestVerifyCommandWorst(t *testing.T) {
	good, keys := verifyFiles(t, "cg-dict-url")
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	bad, _ := verifyFiles(t, "neg-wrong-authority")
	unknown, _ := verifyFiles(t, "neg-unknown-key")
	raw := "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
	for _, c := range []struct {
		in   string
		code int
	}{
		{read(good) + read(good), 0},
		{read(good) + read(unknown), 2},
		{read(unknown) + read(bad) + read(good), 1},
		{raw, 2},
		{"", 2},
		{read(good) + "{", 2},
	} {
		if out, errs, code := runKeysCLI(t, c.in, "verify", "--capture", "-", "--keys", keys, "--now", "1735689610"); code != c.code {
			t.Errorf("exit %d, want %d\n%s%s", code, c.code, out, errs)
		}
	}
	for _, args := range [][]string{{"verify"}, {"verify", "--capture", good}, {"verify", "--capture", good, "--keys", keys, "more"}} {
		if _, errs, code := runKeysCLI(t, "", args...); code != 2 || errs == "" {
			t.Errorf("%v: exit %d %s", args, code, errs)
		}
	}
}

// TestVerifyCommandFetches: the keys come from a directory on loopback, which the configuration must open.
func TestVerifyCommandFetches(t *testing.T) {
	var signer *sign.Signer
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { signer.ServeDirectory(w, r) }))
	defer server.Close()
	dir := t.TempDir()
	made, err := sign.NewFile(filepath.Join(dir, "k.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = sign.Open(sign.Defaults(), dir, []sign.Agent{{Name: "a", SignatureAgent: server.URL, KeyFile: made.File}}, nil); err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Host": {"example.com"}}
	if _, err := signer.Sign(sign.Request{Agent: "a", Method: "GET", Authority: "example.com", Path: "/"}, h); err != nil {
		t.Fatal(err)
	}
	var raw strings.Builder
	raw.WriteString("GET / HTTP/1.1\r\n")
	if err := h.Write(&raw); err != nil {
		t.Fatal(err)
	}
	raw.WriteString("\r\n")
	roots := filepath.Join(dir, "roots.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(roots, block, 0o600); err != nil {
		t.Fatal(err)
	}
	port := server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	config := filepath.Join(dir, "c.yaml")
	text := "egress: {ports: [" + port + "], allow_private: [{prefix: 127.0.0.1/32, ports: [" + port + "]}], root_ca_file: " + roots + "}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := []string{"--config", config, "verify", "--capture", "-", "--require-proof", "--keys"}
	out, errs, code := runKeysCLI(t, raw.String(), append(verify, server.URL+sign.DirectoryPath)...)
	if code != 0 || !strings.HasPrefix(out, "1  verified  GET") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := runKeysCLI(t, raw.String(), append(verify, server.URL+"/other")...); code != 2 || out != "" || !strings.Contains(errs, "status 404") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if _, errs, code := runKeysCLI(t, raw.String(), append([]string{"verify", "--capture", "-", "--keys"}, server.URL+sign.DirectoryPath)...); code != 2 || !strings.Contains(errs, "port_denied") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
