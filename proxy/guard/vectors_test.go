package guard

import (
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
)

// addressCase is a case of testdata/addresses.json.
type addressCase struct {
	ID, Kind, Want, Class, Canonical string
	Input                            json.RawMessage
	Port                             *uint16
	Config                           struct {
		Exceptions []struct {
			Prefix string
			Ports  []int
		}
		Deny  []string
		Ports []int
		NAT64 []string `json:"nat64_prefixes"`
		Self  []netip.AddrPort
	}
}

func readVectors[T any](t testing.TB, file string) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Cases []T }
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) == 0 {
		t.Fatalf("%s holds no case", file)
	}
	return v.Cases
}

// classOf is the class in an error of this package, Public for nil.
func classOf(err error) string {
	var host *HostError
	var denied *Denied
	var resolve *ResolveError
	var dial *DialError
	switch {
	case err == nil:
		return Public
	case errors.As(err, &host):
		return host.Class
	case errors.As(err, &denied):
		return denied.Class
	case errors.As(err, &resolve):
		return resolve.Class
	case errors.As(err, &dial):
		return dial.Class
	}
	return "untyped: " + err.Error()
}

// TestAddressVectors runs all of addresses.json: kind addr is one address, kind
// host the host of an authority, kind set a name with its answers.
func TestAddressVectors(t *testing.T) {
	kinds := map[string]int{}
	for _, c := range readVectors[addressCase](t, "addresses.json") {
		kinds[c.Kind]++
		t.Run(c.ID, func(t *testing.T) {
			d := caseDialer(t, c)
			port := uint16(443)
			if c.Port != nil {
				port = *c.Port
			}
			var got string
			switch c.Kind {
			case "addr":
				var text string
				unmarshal(t, c.Input, &text)
				a, err := netip.ParseAddr(text)
				if err != nil {
					t.Fatal(err)
				}
				got = Classify(a)
			case "host":
				var text string
				unmarshal(t, c.Input, &text)
				h, err := ParseHost(text)
				if err == nil {
					err = d.CheckHost(h, port)
				}
				got = classOf(err)
				if c.Canonical != "" && strings.Trim(h.Name, "[]") != c.Canonical {
					t.Errorf("canonical host %q, want %q", h.Name, c.Canonical)
				}
			case "set":
				got = answerClass(t, d, c.Input, port)
			default:
				t.Fatalf("kind %q is unknown", c.Kind)
			}
			if got != c.Class {
				t.Errorf("%s %s: class %s, want %s", c.Kind, c.Input, got, c.Class)
			}
			if allowed := got == Public; allowed != (c.Want == "allow") {
				t.Errorf("allowed is %v, want %s", allowed, c.Want)
			}
		})
	}
	if kinds["addr"] != 212 || kinds["host"] != 84 || kinds["set"] != 35 {
		t.Errorf("cases run: %v", kinds)
	}
}

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func caseDialer(t *testing.T, c addressCase) *Dialer {
	t.Helper()
	conf := Defaults()
	for _, e := range c.Config.Exceptions {
		conf.AllowPrivate = append(conf.AllowPrivate, Exception{Prefix: e.Prefix, Ports: e.Ports})
	}
	conf.Deny = c.Config.Deny
	conf.NAT64Prefixes = c.Config.NAT64
	if c.Config.Ports != nil {
		conf.Ports = c.Config.Ports
	}
	d := newDialer(t, conf)
	d.SetSelf(func() []netip.AddrPort { return c.Config.Self })
	return d
}

// answerClass judges the first answer of a set, and of a sequence each one in
// its turn: rebinding passes once and is refused at the next dial.
func answerClass(t *testing.T, d *Dialer, input json.RawMessage, port uint16) string {
	t.Helper()
	var in struct {
		Host     string
		Answers  []netip.Addr
		Sequence [][]netip.Addr
	}
	unmarshal(t, input, &in)
	h, err := ParseHost(in.Host)
	if err != nil {
		t.Fatal(err)
	}
	if in.Sequence == nil {
		return classOf(d.CheckAnswers(h, port, in.Answers))
	}
	first := classOf(d.CheckAnswers(h, port, in.Sequence[0]))
	for _, later := range in.Sequence[1:] {
		if got := classOf(d.CheckAnswers(h, port, later)); got != ClassLoopback {
			t.Errorf("later answer %v: class %s, want %s", later, got, ClassLoopback)
		}
	}
	return first
}

func newDialer(t testing.TB, c Config) *Dialer {
	t.Helper()
	d, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hostCase is a case of testdata/hosts.json of the kinds url, connect and
// config. The kind mismatch compares the parts of one request with each other;
// package proxy runs those cases.
type hostCase struct {
	ID, Kind, Input, Want, Host, Key, Code string
	Port                                   uint16
}

// TestHostVectors runs the kinds url, connect and config of hosts.json.
func TestHostVectors(t *testing.T) {
	d := newDialer(t, Defaults())
	kinds := map[string]int{}
	for _, c := range readVectors[hostCase](t, "hosts.json") {
		kinds[c.Kind]++
		if c.Kind == "mismatch" {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			var h Host
			var port uint16
			var err error
			var u *url.URL
			switch c.Kind {
			case "url":
				u, h, port, err = ParseTarget(c.Input)
			case "connect":
				h, port, err = ParseAuthority(c.Input, 0)
			case "config":
				h, err = ConfigHost(c.Input)
				port = 443
			default:
				t.Fatalf("kind %q is unknown", c.Kind)
			}
			if c.Want == "ok" {
				if err != nil {
					t.Fatalf("%q: %v", c.Input, err)
				}
				if got := strings.Trim(h.Name, "[]"); got != c.Host || port != c.Port || h.Key(port) != c.Key {
					t.Errorf("%q: host %q port %d key %q, want %q %d %q", c.Input, got, port, h.Key(port), c.Host, c.Port, c.Key)
				}
				if u != nil && (u.User != nil || u.Fragment != "" || !strings.HasPrefix(u.Path, "/")) {
					t.Errorf("%q: %#v is not normalised", c.Input, u)
				}
				return
			}
			// What spelling does not refuse, the rules for ports and names do.
			if err == nil {
				err = d.CheckPort(h, port)
			}
			if err == nil {
				err = d.CheckHost(h, port)
			}
			if got := classOf(err); got != c.Code {
				t.Errorf("%q: class %s, want %s", c.Input, got, c.Code)
			}
		})
	}
	if kinds["url"] != 72 || kinds["connect"] != 20 || kinds["config"] != 11 || kinds["mismatch"] != 34 {
		t.Errorf("cases: %v", kinds)
	}
}
