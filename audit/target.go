package audit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Kinds of places that signed heads are delivered to; a closed set, for labels of metrics.
const (
	SinkFile   = "file"
	SinkURL    = "url"
	SinkSyslog = "syslog"
)

// SinkKinds is that set.
func SinkKinds() []string { return []string{SinkFile, SinkURL, SinkSyslog} }

// target is one item of checkpoint_to, understood.
type target struct {
	text  string // as configured; it may hold credentials
	kind  string
	label string // for logs and pages: never a credential, a path of a URL or its query, which may be one

	url     *url.URL // of kind url, without its user
	user    *url.Userinfo
	network string // of kind syslog: udp, tcp, tls, unixgram
	address string // of kind syslog: host:port, or the path of a socket; of kind file: the path
	host    string // of kind syslog: the name that a certificate must have
}

// Ports of syslog over UDP and TCP, and over TLS (RFC 5425).
const (
	syslogPort    = "514"
	syslogTLSPort = "6514"
)

var schemes = []string{"https", "http", "syslog+tls", "syslog+tcp", "syslog+udp", "syslog"}

var errTarget = errors.New("is neither a file nor a URL like https://heads.example/gate or syslog+tls://logs.example")

// parseTarget reads one item of checkpoint_to. No error repeats the item: it may hold a password.
func parseTarget(text string) (*target, error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return fileTarget(text)
	}
	scheme = strings.ToLower(scheme)
	known := false
	for _, s := range schemes {
		known = known || s == scheme
	}
	if !known {
		return nil, fmt.Errorf("the scheme %s is none of %s (a file is named without one)", strconv.Quote(Printable(scheme, 20)), strings.Join(schemes, ", "))
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errTarget
	}
	if u.Fragment != "" {
		return nil, errors.New("a URL with a # part cannot be sent to")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("port %s is not between 1 and 65535", Printable(p, 8))
		}
	}
	if scheme == "https" || scheme == "http" {
		return urlTarget(text, u)
	}
	return syslogTarget(text, scheme, u)
}

func fileTarget(path string) (*target, error) {
	for _, s := range schemes {
		if strings.HasPrefix(strings.ToLower(path), s+":") {
			return nil, fmt.Errorf("write %s:// and then the host", s)
		}
	}
	switch {
	case path == "":
		return nil, errors.New("is empty")
	case strings.HasSuffix(path, string(filepath.Separator)):
		return nil, fmt.Errorf("%q is a folder: name a file", path)
	}
	return &target{text: path, kind: SinkFile, label: path, address: path}, nil
}

func urlTarget(text string, u *url.URL) (*target, error) {
	if u.Hostname() == "" {
		return nil, errors.New("the URL names no host")
	}
	t := &target{text: text, kind: SinkURL, label: u.Scheme + "://" + u.Host, user: u.User}
	u.User = nil
	t.url = u
	return t, nil
}

func syslogTarget(text, scheme string, u *url.URL) (*target, error) {
	t := &target{text: text, kind: SinkSyslog}
	port := syslogPort
	switch scheme {
	case "syslog", "syslog+udp":
		t.network = "udp"
	case "syslog+tcp":
		t.network = "tcp"
	case "syslog+tls":
		t.network, port = "tls", syslogTLSPort
	}
	if u.User != nil || u.RawQuery != "" {
		return nil, errors.New("syslog knows no credentials and no query: give host and port alone")
	}
	if u.Host == "" && scheme == "syslog" && len(u.Path) > 1 {
		t.network, t.address, t.label = "unixgram", u.Path, "syslog://"+u.Path
		return t, nil
	}
	if t.host = u.Hostname(); t.host == "" {
		return nil, errors.New("the URL names no host (a local socket is syslog:///dev/log)")
	}
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("syslog knows no path: give host and port alone")
	}
	if p := u.Port(); p != "" {
		port = p
	}
	t.address = net.JoinHostPort(t.host, port)
	t.label = scheme + "://" + t.address
	return t, nil
}

// bare tells whether a password goes over the network unencrypted.
func (t *target) bare() bool {
	if t.kind != SinkURL || t.url.Scheme != "http" || t.user == nil {
		return false
	}
	host := t.url.Hostname()
	a, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !a.IsLoopback())
}

// parseTargets reads checkpoint_to; what Validate refused is left out.
func parseTargets(list Texts) (out []*target) {
	for _, text := range list {
		if t, err := parseTarget(text); err == nil {
			out = append(out, t)
		}
	}
	return out
}
