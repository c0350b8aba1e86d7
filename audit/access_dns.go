package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	dnsSchema   = "crawlgate.dns-cache/1"
	dnsParallel = 16
	dnsTimeout  = 2 * time.Second
	dnsKeep     = 7 * 24 * time.Hour
	dnsNames    = 20 // names of one address that are looked up
)

// DNSResolver asks the DNS. A name or address that does not exist is a *net.DNSError with IsNotFound.
type DNSResolver interface {
	LookupPTR(ctx context.Context, addr netip.Addr) ([]string, error)
	LookupAddr(ctx context.Context, name string) ([]netip.Addr, error)
}

// NetResolver asks the system's resolver.
type NetResolver struct{}

// LookupPTR gives the names of an address.
func (NetResolver) LookupPTR(ctx context.Context, a netip.Addr) ([]string, error) {
	return net.DefaultResolver.LookupAddr(ctx, a.String())
}

// LookupAddr gives the addresses of a name.
func (NetResolver) LookupAddr(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// dnsAnswer is one entry of the cache file. At is when it was asked for; without it an entry never ages.
type dnsAnswer struct {
	Names     []string   `json:"names,omitempty"`
	Addresses []string   `json:"addresses,omitempty"`
	Error     string     `json:"error,omitempty"` // nxdomain, servfail, timeout
	At        *time.Time `json:"at,omitempty"`
}

// dnsBook answers from the cache file and, when live, from the DNS: each address and name once, at most 16 at a time.
type dnsBook struct {
	mode     string
	path     string
	resolver DNSResolver

	mu      sync.Mutex
	ptr     map[string]dnsAnswer
	forward map[string]dnsAnswer
	asked   map[string]*dnsCall
	slots   chan struct{}
	changed bool
}

type dnsCall struct {
	done   chan struct{}
	answer dnsAnswer
}

func openDNSBook(o *AccessOptions) (*dnsBook, error) {
	b := &dnsBook{mode: o.DNS, path: o.DNSCache, resolver: o.Resolver, ptr: map[string]dnsAnswer{}, forward: map[string]dnsAnswer{},
		asked: map[string]*dnsCall{}, slots: make(chan struct{}, dnsParallel)}
	if b.mode == "off" || b.path == "" {
		return b, nil
	}
	body, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) && b.mode == "live" {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	var f struct {
		Schema  string               `json:"schema"`
		PTR     map[string]dnsAnswer `json:"ptr"`
		Forward map[string]dnsAnswer `json:"forward"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", b.path, err)
	}
	if f.Schema != dnsSchema {
		return nil, fmt.Errorf("%s: schema %q is not %q", b.path, f.Schema, dnsSchema)
	}
	aged := func(a dnsAnswer) bool { return b.mode == "live" && a.At != nil && time.Since(*a.At) > dnsKeep }
	for k, a := range f.PTR {
		addr, err := netip.ParseAddr(k)
		if err != nil {
			return nil, fmt.Errorf("%s: ptr: %q is not an address", b.path, k)
		}
		if !aged(a) {
			b.ptr[addr.WithZone("").Unmap().String()] = a
		}
	}
	for k, a := range f.Forward {
		for _, text := range a.Addresses {
			if _, err := netip.ParseAddr(text); err != nil {
				return nil, fmt.Errorf("%s: forward: %s: %q is not an address", b.path, k, text)
			}
		}
		if !aged(a) {
			b.forward[dnsName(k)] = a
		}
	}
	return b, nil
}

// dnsName is a name in lower case, without final dot.
func dnsName(s string) string { return strings.TrimSuffix(strings.ToLower(s), ".") }

type dnsVerdict int8

const (
	dnsUnknown dnsVerdict = iota // no data
	dnsNo
	dnsYes
)

// confirms tells whether an address has a name equal to or below one of the suffixes that leads back to it.
func (b *dnsBook) confirms(ctx context.Context, addr netip.Addr, suffixes []string) dnsVerdict {
	if len(suffixes) == 0 || b.mode == "off" {
		return dnsUnknown
	}
	ptr, ok := b.lookup(ctx, addr.String(), addr)
	if !ok || ptr.Error != "" && ptr.Error != "nxdomain" {
		return dnsUnknown
	}
	verdict := dnsNo
	for i, name := range ptr.Names {
		name = dnsName(name)
		if i >= dnsNames {
			break
		}
		if !slices.ContainsFunc(suffixes, func(s string) bool { return name == s || strings.HasSuffix(name, "."+s) }) {
			continue
		}
		fwd, ok := b.lookup(ctx, name, netip.Addr{})
		if !ok || fwd.Error != "" && fwd.Error != "nxdomain" {
			verdict = dnsUnknown
			continue
		}
		for _, text := range fwd.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && a.WithZone("").Unmap() == addr {
				return dnsYes
			}
		}
	}
	return verdict
}

// lookup answers for an address, or for a name when addr is the zero Addr.
func (b *dnsBook) lookup(ctx context.Context, key string, addr netip.Addr) (dnsAnswer, bool) {
	known := b.forward
	if addr.IsValid() {
		known = b.ptr
	}
	b.mu.Lock()
	if a, ok := known[key]; ok || b.mode != "live" {
		b.mu.Unlock()
		return a, ok
	}
	c, ok := b.asked[key]
	if !ok {
		c = &dnsCall{done: make(chan struct{})}
		b.asked[key] = c
	}
	b.mu.Unlock()
	if ok {
		<-c.done
		return c.answer, true
	}
	b.slots <- struct{}{}
	c.answer = b.ask(ctx, key, addr)
	<-b.slots
	b.mu.Lock()
	if c.answer.Error == "" || c.answer.Error == "nxdomain" {
		known[key] = c.answer
		b.changed = true
	}
	b.mu.Unlock()
	close(c.done)
	return c.answer, true
}

func (b *dnsBook) ask(ctx context.Context, key string, addr netip.Addr) dnsAnswer {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Second)
	a := dnsAnswer{At: &now}
	var err error
	if addr.IsValid() {
		if a.Names, err = b.resolver.LookupPTR(ctx, addr); err == nil {
			for i := range a.Names {
				a.Names[i] = dnsName(a.Names[i])
			}
			slices.Sort(a.Names)
		}
	} else {
		var addrs []netip.Addr
		if addrs, err = b.resolver.LookupAddr(ctx, key); err == nil {
			slices.SortFunc(addrs, netip.Addr.Compare)
			for _, x := range addrs {
				a.Addresses = append(a.Addresses, x.WithZone("").Unmap().String())
			}
		}
	}
	if err == nil {
		return a
	}
	a = dnsAnswer{Error: "servfail", At: &now}
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsNotFound:
		a.Error = "nxdomain"
	case errors.As(err, &d) && d.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		a.Error = "timeout"
	}
	return a
}

// save writes new answers into the cache file.
func (b *dnsBook) save() error {
	if !b.changed || b.path == "" {
		return nil
	}
	body, err := json.MarshalIndent(struct {
		Schema  string               `json:"schema"`
		PTR     map[string]dnsAnswer `json:"ptr"`
		Forward map[string]dnsAnswer `json:"forward"`
	}{dnsSchema, b.ptr, b.forward}, "", " ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(b.path), ".dns-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(body, '\n'))
	err = cmp.Or(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), b.path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
