package main

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"crawlgate/sign"
)

// rfc9421Key is the private test key of RFC 9421 B.1.4, which everyone has.
const rfc9421Key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n"

// TestServeBadSigning: signing that is configured and can't work stops the start, and the setting is named (web bot auth,
// section 12).
func TestServeBadSigning(t *testing.T) {
	t.Parallel()
	made, err := sign.NewFile(filepath.Join(t.TempDir(), "good.pem"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(made.File)
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	xKey, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	const agent = `[{name: example, product_token: ExampleBot, user_agent: ExampleBot/1.0, info_url: "https://bot.example/", signature_agent: "https://bot.example", key_file: KEY}]`
	for name, c := range map[string]struct {
		text   string // of the key file
		mode   os.FileMode
		agents string // "": agent
		more   string
		want   string // DIR is the test's folder
	}{
		"absent":                 {"", 0, "", "", `agents\[0\]\.key_file: open DIR/k\.pem: no such file or directory`},
		"readable by all":        {good, 0o644, "", "", `agents\[0\]\.key_file: DIR/k\.pem: mode 0644, 0600 or stricter is needed`},
		"readable by a group":    {good, 0o640, "", "", `agents\[0\]\.key_file: DIR/k\.pem: mode 0640, 0600 or stricter is needed`},
		"group allowed to all":   {good, 0o644, "", "sign: {allow_group_read: true}\n", `agents\[0\]\.key_file: DIR/k\.pem: mode 0644, 0640 or stricter is needed`},
		"empty":                  {"", 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: empty`},
		"cut":                    {good[:60], 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: a damaged or truncated PEM block`},
		"two keys":               {good + good, 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: more than one key in the file`},
		"RSA":                    {keyPEM(t, rsaKey), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: an RSA key; only Ed25519 is supported`},
		"EC":                     {keyPEM(t, ecKey), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: an EC key; only Ed25519 is supported`},
		"X25519":                 {keyPEM(t, xKey), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: an X25519 key; only Ed25519 is supported`},
		"encrypted":              {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: an encrypted key; .*`},
		"OpenSSH":                {"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: an OpenSSH key; .*`},
		"large":                  {good + strings.Repeat("\n", 16<<10), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: \d+ bytes, more than 16384`},
		"public":                 {fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":"%s"}`, strings.Repeat("A", 43)), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: a public JWK, the private half is missing`},
		"halves":                 {fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","d":"%s","x":"%s"}`, strings.Repeat("A", 43), strings.Repeat("A", 43)), 0o600, "", "", `agents\[0\]\.key_file: DIR/k\.pem: a JWK whose x is not the public key of d`},
		"test key":               {rfc9421Key, 0o600, "", "", `agents\[0\]\.key_file: the test key of RFC 9421 B\.1\.4, which everyone has; sign\.allow_test_key admits it in tests`},
		"published":              {good, 0o600, strings.Replace(agent, "key_file: KEY", "key_file: KEY, publish_key_files: [DIR/other.pem]", 1), "", `agents\[0\]\.publish_key_files\[0\]: open DIR/other\.pem: no such file or directory`},
		"published alone":        {"", 0, strings.Replace(agent, "key_file: KEY", "publish_key_files: [DIR/other.pem]", 1), "", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  agents\[0\]\.publish_key_files: needs key_file`},
		"label":                  {good, 0o600, "", "sign: {label: Bad Label}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.label: "Bad Label" is not a label: .*`},
		"form":                   {good, 0o600, "", "sign: {form: both}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.form: "both" is not one of dictionary, string`},
		"form of a site":         {good, 0o600, "", "sign:\n  sites:\n    - {host: a.test, form: x}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.sites\[0\]\.form: "x" is not one of dictionary, string`},
		"components":             {good, 0o600, "", "sign: {components: all}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.components: "all" is not one of minimal, bound`},
		"lifetime":               {good, 0o600, "", "sign: {lifetime: 1h}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.lifetime: 1h0m0s is not a whole number of seconds from 10s to 5m0s`},
		"lifetime too short":     {good, 0o600, "", "sign: {lifetime: 20s}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  sign\.lifetime: 20s is shorter than dialling, handshake and 30s together .*`},
		"agent over http":        {good, 0o600, strings.Replace(agent, "https://bot.example\"", "http://bot.example\"", 1), "", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  agents\[0\]\.signature_agent: "http://bot\.example": not an absolute https URL`},
		"agent with a user":      {good, 0o600, strings.Replace(agent, "https://bot.example\"", "https://u@bot.example\"", 1), "", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  agents\[0\]\.signature_agent: .* has user info`},
		"agent with fragment":    {good, 0o600, strings.Replace(agent, "https://bot.example\"", "https://bot.example/#k\"", 1), "", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  agents\[0\]\.signature_agent: .* has a fragment`},
		"authority":              {good, 0o600, "", "publish: {authority: \"bot example\"}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  publish\.authority: .*not a host name`},
		"proof lifetime":         {good, 0o600, "", "publish: {proof_lifetime: 1h}\n", `DIR/crawlgate\.yaml: 1 problem\n  line \d+  publish\.proof_lifetime: .*`},
		"required without key":   {"", 0, strings.Replace(agent, ", key_file: KEY", "", 1), "sign: {required: true}\n", `sign\.required: agent example has no key; crawlgate keys new --agent example makes one`},
		"required without agent": {"", 0, strings.Replace(agent, `, signature_agent: "https://bot.example", key_file: KEY`, "", 1), "sign: {required: true}\n", `sign\.required: no agent has a signature_agent and a key`},
		"one key for two agents": {good, 0o600, strings.Replace(agent, "}]", `}, {name: b, product_token: BBot, user_agent: BBot/1.0, info_url: "https://b.example/", signature_agent: "https://b.example", key_file: KEY}]`, 1), "", `agents\[1\]\.key_file: key \S{43} also belongs to agent example; each signature_agent needs its own key`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := c.agents
			if text == "" {
				text = agent
			}
			file := filepath.Join(dir, "k.pem")
			conf := gateConfig{agents: strings.NewReplacer("KEY", file, "DIR", dir).Replace(text), more: c.more, profiles: "[{name: crawl, agent: example, pacing: {gap: 1s}}]"}
			g := &gate{bin: binary(t), dir: dir, file: conf.write(t, dir), state: filepath.Join(dir, "state")}
			if c.mode != 0 {
				writeFile(t, file, c.text, c.mode)
			}
			badStart(t, g, "crawlgate: (?:"+strings.ReplaceAll(c.want, "DIR", regexp.QuoteMeta(dir))+")")
		})
	}
	// What mounted secrets look like, and a test key that was asked for.
	for name, c := range map[string]struct {
		text, more string
		mode       os.FileMode
		said       string
	}{
		"group":    {good, "sign: {allow_group_read: true}\n", 0o440, "signs requests"},
		"test key": {rfc9421Key, "sign: {allow_test_key: true}\n", 0o400, "warning: sign: allow_test_key: signatures made with a published test key prove nothing; anyone can make them"},
		"own key":  {keyPEM(t, edKey), "", 0o600, "signs requests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "k.pem")
			writeFile(t, file, c.text, c.mode)
			g := startGate(t, gateConfig{agents: strings.ReplaceAll(agent, "KEY", file), more: c.more})
			if !strings.Contains(g.err.String(), c.said) {
				t.Errorf("said %s", g.err)
			}
		})
	}
}

// TestUnsignedIsSaid: without a key the gate runs unsigned, and says so at the start, on /readyz and in every event.
func TestUnsignedIsSaid(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, tlsH1, nil, "site.test")
	g := startGate(t, gateConfig{origins: []*origin{o}, agents: signedAgents})
	const why = "unsigned: no key; crawlgate keys new --agent example makes one"
	if !strings.Contains(g.err.String(), "crawlgate: agent  example, "+agentUA+", "+why+"\n") {
		t.Errorf("said %s", g.err)
	}
	if status, _, body := ask(t, "GET", g.admin+"/readyz", ""); status != 200 || !strings.Contains(body, why) {
		t.Errorf("readyz: %d %s", status, body)
	}
	if a := curl(t, g, o.url("/a")); a.status != 200 {
		t.Errorf("%+v", a)
	}
	unsigned(t, o.arrivals()...)
	for _, e := range g.waitEvents(t, 1) {
		if e.Sig.State != "disabled" || e.Sig.KeyID != "" {
			t.Errorf("%+v", e.Sig)
		}
	}
	// The first key ends that, without a restart.
	r := g.cli(t, "keys", "new")
	if r.code != 0 || !strings.Contains(r.out, " (active)\n") {
		t.Fatalf("%+v", r)
	}
	if a := curl(t, g, o.url("/b")); a.status != 200 {
		t.Errorf("%+v", a)
	}
	list := o.pages()
	if id := signedBy(list[len(list)-1]); id == "" || !strings.Contains(r.out, id) {
		t.Errorf("after keys new: %q", id)
	}
}
