package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

type fakeDNS struct {
	mu    sync.Mutex
	now   int
	most  int
	asked map[string]int
}

func (f *fakeDNS) enter(key string) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[key]++
	f.now++
	f.most = max(f.most, f.now)
	return func() { f.mu.Lock(); f.now--; f.mu.Unlock() }
}

func (f *fakeDNS) LookupPTR(ctx context.Context, a netip.Addr) ([]string, error) {
	defer f.enter(a.String())()
	time.Sleep(time.Second) // virtual
	switch b := a.As4(); {
	case b[3] == 250:
		<-ctx.Done()
		return nil, ctx.Err()
	case b[3] == 251:
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	case b[3] == 252:
		return nil, &net.DNSError{Err: "server misbehaving"}
	default:
		return []string{fmt.Sprintf("Crawl-%d.Unlob.com.", b[3])}, nil
	}
}

func (f *fakeDNS) LookupAddr(_ context.Context, name string) ([]netip.Addr, error) {
	defer f.enter(name)()
	var n byte
	if _, err := fmt.Sscanf(name, "crawl-%d.unlob.com", &n); err != nil {
		return nil, err
	}
	if n%2 == 1 {
		n++
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, n})}, nil
}

// TestAccessLiveDNS asks each address and name once, 16 at a time, and keeps what may be kept.
func TestAccessLiveDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log strings.Builder
		for i := range 40 {
			if i >= 37 {
				i += 213 // 250 to 252, which have no name
			}
			log.WriteString(accessLine(fmt.Sprintf("192.0.2.%d", i), "09:00:00", "/", "UnlobBot/1.0"))
		}
		dns := &fakeDNS{asked: map[string]int{}}
		o := AccessOptions{Logs: []string{"-"}, Stdin: &blockReader{text: log.String()}, Judge: prefixJudge{}, DNS: "live", DNSCache: dir + "/dns.json", Resolver: dns}
		rep, err := Access(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c := rep.Crawlers["UnlobBot"]
		if c.Verified != 19 || c.Unverified != 2 || c.Impersonated != 19 {
			t.Errorf("%+v", c)
		}
		for k, n := range dns.asked {
			if n != 1 {
				t.Errorf("%s asked %d times", k, n)
			}
		}
		if dns.most != dnsParallel {
			t.Errorf("%d at a time", dns.most)
		}
		var kept struct {
			PTR, Forward map[string]dnsAnswer
		}
		body, err := os.ReadFile(o.DNSCache)
		if err == nil {
			err = json.Unmarshal(body, &kept)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(kept.PTR) != 38 || kept.PTR["192.0.2.251"].Error != "nxdomain" || len(kept.Forward) != 37 || kept.PTR["192.0.2.4"].Names[0] != "crawl-4.unlob.com" {
			t.Errorf("%d and %d kept: %+v", len(kept.PTR), len(kept.Forward), kept.PTR["192.0.2.251"])
		}
		// From the cache alone: the same, without asking.
		o.Stdin, o.DNS, o.Resolver = strings.NewReader(log.String()), "cache", nil
		again, err := Access(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*c, *again.Crawlers["UnlobBot"]); d != "" {
			t.Error(d)
		}
		// After seven days the answers are asked for again.
		time.Sleep(dnsKeep)
		o.DNS, o.Resolver, dns.asked = "live", dns, map[string]int{}
		o.Stdin = strings.NewReader(log.String())
		if _, err := Access(t.Context(), o); err != nil || len(dns.asked) != 77 {
			t.Errorf("%v, %d asked", err, len(dns.asked))
		}
	})
}

// blockReader gives one line at a time, padded with a blank line to a block of its own, so that all workers have work.
type blockReader struct{ text string }

func (b *blockReader) Read(p []byte) (int, error) {
	line, rest, ok := strings.Cut(b.text, "\n")
	if !ok {
		return 0, os.ErrClosed
	}
	b.text = rest
	n := copy(p, line+"\n")
	for n < len(p)-1 {
		n += copy(p[n:len(p)-1], "                                                                ")
	}
	p[n] = '\n'
	return n + 1, nil
}
