package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Variables that name a file of trusted certificates and replace the client's own store, so they get system roots and
// our CA together.
var bundleVariables = []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT"}

// systemBundles are where distributions keep the system's roots.
var systemBundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// childEnv is the environment of a program that is sent through a gate.
func childEnv(env []string, g *gateAt, o runOptions) ([]string, error) {
	vars, err := proxyVariables(g, o)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		for _, v := range vars {
			if v.name == name {
				return true
			}
		}
		return false
	})
	for _, v := range vars {
		out = append(out, v.name+"="+v.value)
	}
	return out, nil
}

type variable struct{ name, value string }

// proxyVariables are the variables that common clients read, in the order they are shown.
func proxyVariables(g *gateAt, o runOptions) ([]variable, error) {
	u, err := url.Parse(g.proxy)
	if err != nil {
		return nil, err
	}
	if o.profile != "" || o.job != "" {
		name := "run"
		if u.User != nil {
			name = u.User.Username()
		}
		profile := o.profile
		if profile == "" {
			profile = g.profile
		}
		if profile == "" {
			return nil, usage("--job beside --proxy needs --profile: the proxy user name reads CLIENT+PROFILE+JOB")
		}
		name += "+" + profile
		if o.job != "" {
			name += "+" + o.job
		}
		secret := "x"
		if u.User != nil {
			if s, ok := u.User.Password(); ok {
				secret = s
			}
		}
		u.User = url.UserPassword(name, secret)
	}
	proxy := u.String()
	bundle, err := writeBundle(g.caFile)
	if err != nil {
		return nil, err
	}
	var vars []variable
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"} {
		vars = append(vars, variable{name, proxy})
	}
	vars = append(vars, variable{"NO_PROXY", o.skipTo}, variable{"no_proxy", o.skipTo},
		variable{"NODE_USE_ENV_PROXY", "1"}, variable{"NODE_EXTRA_CA_CERTS", g.caFile})
	for _, name := range bundleVariables {
		vars = append(vars, variable{name, bundle})
	}
	if opts, err := javaOptions(u, g.caFile); err == nil {
		if old := os.Getenv("JAVA_TOOL_OPTIONS"); old != "" {
			opts = old + " " + opts
		}
		vars = append(vars, variable{"JAVA_TOOL_OPTIONS", opts})
	}
	if rc, err := writeWgetrc(g.caFile); err == nil {
		vars = append(vars, variable{"WGETRC", rc})
	}
	return append(vars, variable{"CRAWLGATE_PROXY", proxy}, variable{"CRAWLGATE_CA", g.caFile}, variable{"CRAWLGATE_SPKI", g.spki}), nil
}

// writeBundle writes system roots and the CA into one file beside the CA and returns its name.
func writeBundle(caFile string) (string, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	for _, f := range systemBundles {
		if roots, err := os.ReadFile(f); err == nil {
			b.Write(roots)
			b.WriteByte('\n')
			break
		}
	}
	b.Write(ca)
	// During a renewal both CAs are trusted, and leaves of the old one while connections last.
	for _, other := range []string{"ca-next.pem", "ca-old.pem"} {
		if pem, err := os.ReadFile(filepath.Join(filepath.Dir(caFile), other)); err == nil {
			b.Write(pem)
		}
	}
	name := filepath.Join(filepath.Dir(caFile), "bundle.pem")
	if err := writeIfChanged(name, b.Bytes()); err != nil {
		return "", fmt.Errorf("certificate bundle: %w", err)
	}
	return name, nil
}

// writeWgetrc names the bundle for wget, which reads no certificate variable.
func writeWgetrc(caFile string) (string, error) {
	dir := filepath.Dir(caFile)
	name := filepath.Join(dir, "wgetrc")
	return name, writeIfChanged(name, []byte("ca_certificate = "+filepath.Join(dir, "bundle.pem")+"\n"))
}

// writeIfChanged replaces a file in one step; several programs may do so at once.
func writeIfChanged(name string, data []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tmp-*")
	if err != nil {
		return err
	}
	_, werr := f.Write(data)
	merr := f.Chmod(0o644)
	if err := errors.Join(werr, merr, f.Close()); err != nil {
		os.Remove(f.Name())
		return err
	}
	return os.Rename(f.Name(), name)
}

// javaOptions points Java at the proxy and at a trust store made by keytool; without keytool there is no Java to point.
func javaOptions(proxy *url.URL, caFile string) (string, error) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		return "", err
	}
	store := filepath.Join(filepath.Dir(caFile), "truststore.p12")
	ca, err := os.Stat(caFile)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(store); err != nil || st.ModTime().Before(ca.ModTime()) {
		// Programs may be started side by side the first time; each makes a store of its own and one stays.
		dir, err := os.MkdirTemp(filepath.Dir(caFile), ".tmp-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		tmp := filepath.Join(dir, "truststore.p12")
		cmd := exec.Command(keytool, "-importcert", "-noprompt", "-alias", "crawlgate", "-file", caFile, "-keystore", tmp, "-storetype", "PKCS12", "-storepass", "changeit")
		cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("keytool: %w: %s", err, out)
		}
		if err := os.Rename(tmp, store); err != nil {
			return "", err
		}
	}
	host, port := proxy.Hostname(), proxy.Port()
	return strings.Join([]string{
		"-Dhttp.proxyHost=" + host, "-Dhttp.proxyPort=" + port, "-Dhttps.proxyHost=" + host, "-Dhttps.proxyPort=" + port, "-Dhttp.nonProxyHosts=",
		"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStoreType=PKCS12", "-Djavax.net.ssl.trustStorePassword=changeit",
	}, " "), nil
}

// spkiOf is the pin of a certificate file for Chromium.
func spkiOf(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return "", fmt.Errorf("%s holds no PEM certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}
