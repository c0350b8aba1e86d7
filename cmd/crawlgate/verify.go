package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// maxKeySetFile bounds a file of keys, bytes.
const maxKeySetFile = 1 << 20

// keySetClient is the client that key sets are fetched with: it reaches public addresses only, as the configuration's
// egress block says, and never goes through a proxy.
func keySetClient(a *app) (*http.Client, error) {
	c, _, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	d, err := guard.New(c.Egress, log)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	roots, err := extraRoots(c.Egress.RootCAFile)
	if err != nil {
		return nil, usage("egress.root_ca_file: %w", err)
	}
	return &http.Client{Transport: &http.Transport{Proxy: nil, DialContext: d.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 5 * time.Second, DisableKeepAlives: true}}, nil
}

// extraRoots adds a file of certificates to the system's; nil, which means those alone, without a file.
func extraRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}

// verifyFlags are the flags of verify.
type verifyFlags struct {
	capture, keys, scheme string
	now                   int64
	skew, maxLifetime     time.Duration
	requireProof, asJSON  bool
}

func newVerifyCmd(a *app) *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify --capture FILE --keys FILE|URL",
		Short: "verify captured requests against a key directory",
		Long: `Verifies the Web Bot Auth signatures of captured requests, by rules stricter
than RFC 9421 alone. For each request it prints verified, invalid or unverified
(can't be decided: no signature, or the key is not known) and one reason word.

A capture is JSON, one object for each request:
  {"method":"GET","url":"https://example.com/","headers":[["Host","example.com"],...]}
or with "scheme", "target" and a flat list of names and values, as Node's
rawHeaders, or raw request heads, as bytes. All header fields must be in it.

Keys are a JWK Set, a public JWK or PEM in a FILE, or the https URL of a key
directory, or a directory's captured answer. A set that was fetched verifies only
requests whose Signature-Agent leads to that URL.

Exit status: 0 all verified, 1 one or more invalid, 2 one or more undecided, or
wrong usage.`,
		Example: "  crawlgate verify --capture requests.jsonl --keys keys.json\n" +
			"  crawlgate verify --capture - --keys https://bot.example.com/.well-known/http-message-signatures-directory --require-proof --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(a, cmd) },
	}
	l := cmd.Flags()
	l.StringVar(&f.capture, "capture", "", "`FILE` of captured requests, - for standard input")
	l.StringVar(&f.keys, "keys", "", "`FILE|URL` of the keys")
	l.Int64Var(&f.now, "now", 0, "the clock to verify at, `UNIX` seconds (default: the time)")
	l.DurationVar(&f.skew, "skew", sign.DefaultSkew, "how far ahead created may be")
	l.DurationVar(&f.maxLifetime, "max-lifetime", sign.DefaultMaxLifetime, "longest time from created to expires; 0: any")
	l.StringVar(&f.scheme, "scheme", "https", "scheme of captures that don't say it, http or https")
	l.BoolVar(&f.requireProof, "require-proof", false, "take only keys that the directory proves")
	l.BoolVar(&f.asJSON, "json", false, "print one JSON object for each request")
	return cmd
}

func (f *verifyFlags) check() error {
	switch {
	case f.capture == "":
		return usage("--capture FILE is needed")
	case f.keys == "":
		return usage("--keys FILE or URL is needed")
	case f.scheme != "http" && f.scheme != "https":
		return usage("--scheme %q is not one of http, https", f.scheme)
	case f.skew < 0:
		return usage("--skew %s is negative", f.skew)
	case f.maxLifetime < 0:
		return usage("--max-lifetime %s is negative", f.maxLifetime)
	case f.now < 0:
		return usage("--now %d is negative", f.now)
	}
	return nil
}

func (f *verifyFlags) run(a *app, cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	now := time.Now()
	if cmd.Flags().Changed("now") {
		now = time.Unix(f.now, 0)
	}
	keys, err := f.readKeys(a, cmd, now)
	if err != nil {
		return err
	}
	in := io.NopCloser(a.stdin)
	if f.capture != "-" {
		if in, err = os.Open(f.capture); err != nil {
			return usage("%w", err)
		}
	}
	defer in.Close() //nolint:errcheck // read only
	v := sign.Verifier{Keys: keys, Now: now, Skew: f.skew, MaxLifetime: f.maxLifetime}
	worst, count := sign.Verified, map[string]int{}
	n := 0
	err = sign.ReadCaptures(in, f.scheme, func(c sign.Capture) error {
		n++
		r := v.Verify(c)
		count[r.Outcome]++
		worst = sign.Worse(worst, r.Outcome)
		return f.print(a.stdout, n, c, r)
	})
	if err != nil {
		return usage("%s: %w", f.capture, err)
	}
	if !f.asJSON {
		fmt.Fprintf(a.stderr, "%d requests: %d verified, %d invalid, %d unverified\n", n, count[sign.Verified], count[sign.Invalid], count[sign.Unverified])
	}
	switch worst {
	case sign.Invalid:
		return &exitError{code: exitFailed}
	case sign.Unverified:
		return &exitError{code: exitUsage}
	}
	return nil
}

// readKeys reads a file, or fetches an https URL.
func (f *verifyFlags) readKeys(a *app, cmd *cobra.Command, now time.Time) (*sign.KeySet, error) {
	if strings.HasPrefix(f.keys, "http://") {
		return nil, usage("--keys %s: only https is fetched", f.keys)
	}
	var set *sign.KeySet
	var proofs []sign.Proof
	if strings.HasPrefix(f.keys, "https://") {
		client, err := keySetClient(a)
		if err != nil {
			return nil, err
		}
		fetcher := sign.KeyFetcher{Client: client, Now: now, Skew: f.skew, RequireProof: f.requireProof}
		set, proofs, err = fetcher.Fetch(cmd.Context(), f.keys)
		if err != nil {
			f.printProofs(a.stderr, proofs)
			return nil, usage("%w", err)
		}
	} else {
		data, err := readSome(f.keys, maxKeySetFile)
		if err == nil {
			set, proofs, err = sign.ReadKeys(data, now, f.skew, f.requireProof)
		}
		if err != nil {
			f.printProofs(a.stderr, proofs)
			return nil, usage("keys %s: %w", f.keys, err)
		}
	}
	f.printProofs(a.stderr, proofs)
	return set, nil
}

// printProofs tells a person which keys of a directory are not proven.
func (f *verifyFlags) printProofs(w io.Writer, proofs []sign.Proof) {
	for _, p := range proofs {
		if !p.Proves {
			fmt.Fprintf(w, "directory: the proof %s of key %s does not hold: %s (%s)\n", p.Label, p.KeyID, p.Reason, p.Detail)
		}
	}
}

// verifyLine is one object of `verify --json`.
type verifyLine struct {
	N      int    `json:"n"`
	Method string `json:"method"`
	Target string `json:"target"`
	sign.Result
}

func (f *verifyFlags) print(w io.Writer, n int, c sign.Capture, r sign.Result) error {
	if f.asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(verifyLine{n, c.Method, c.Target, r})
	}
	line := fmt.Sprintf("%d  %s", n, r.Outcome)
	if r.Reason != "" {
		line += "  " + r.Reason
	}
	line += fmt.Sprintf("  %s %q", c.Method, c.Target)
	if r.KeyID != "" {
		line += fmt.Sprintf("  %q", r.KeyID)
	}
	if r.Detail != "" {
		line += "  (" + r.Detail + ")"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// readSome reads a file of at most limit bytes.
func readSome(path string, limit int64) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return data, err
}
