package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// attempts is a dial function with a script: what each address does and after
// how long. It notes when each attempt began and which connections stay open.
type attempts struct {
	script map[string]attempt
	begun  time.Time

	mu   sync.Mutex
	log  []string
	open int
}

type attempt struct {
	after time.Duration
	err   error // nil: connects
}

// counted is a connection that notes its closing.
type counted struct {
	net.Conn
	close func()
}

func (c *counted) Close() error { c.close(); return nil }

func (a *attempts) dial(ctx context.Context, t target) (net.Conn, error) {
	a.mu.Lock()
	a.log = append(a.log, time.Since(a.begun).String()+" "+t.to.Addr().String())
	a.mu.Unlock()
	s := a.script[t.to.Addr().String()]
	if s.after < 0 { // connects at once, even when the race is over
		s.after = -s.after
		<-time.After(s.after)
	} else {
		select {
		case <-time.After(s.after):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
	return &counted{close: func() { a.mu.Lock(); a.open--; a.mu.Unlock() }}, nil
}

const never = time.Hour

func TestHappyEyeballs(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	const a, b, c, d, e = "2606:4700::1", "2606:4700::2", "93.184.215.14", "93.184.215.15", "93.184.215.16"
	for _, tc := range []struct {
		name    string
		answers []string
		script  map[string]attempt
		log     []string
		winner  string
		class   string
		took    time.Duration
	}{
		{
			name: "first family answers in time", answers: []string{a, c},
			script: map[string]attempt{a: {after: 200 * time.Millisecond}},
			log:    []string{"0s " + a}, winner: a, took: 200 * time.Millisecond,
		},
		{
			name: "second family after 250 ms", answers: []string{a, c},
			script: map[string]attempt{a: {after: never}, c: {after: 20 * time.Millisecond}},
			log:    []string{"0s " + a, "250ms " + c}, winner: c, took: 270 * time.Millisecond,
		},
		{
			name: "second family at once after a failure", answers: []string{a, c},
			script: map[string]attempt{a: {after: time.Millisecond, err: refused}, c: {after: time.Millisecond}},
			log:    []string{"0s " + a, "1ms " + c}, winner: c, took: 2 * time.Millisecond,
		},
		{
			name: "the loser that connects late is closed", answers: []string{a, c},
			script: map[string]attempt{a: {after: -260 * time.Millisecond}, c: {after: 5 * time.Millisecond}},
			log:    []string{"0s " + a, "250ms " + c}, winner: c, took: 260 * time.Millisecond,
		},
		{
			name: "IPv4 first when the answer says so", answers: []string{c, a},
			script: map[string]attempt{c: {after: time.Millisecond}},
			log:    []string{"0s " + c}, winner: c, took: time.Millisecond,
		},
		{
			name: "one after the other within a family", answers: []string{c, d, e},
			script: map[string]attempt{c: {after: 300 * time.Millisecond, err: refused}, d: {after: 300 * time.Millisecond, err: refused}, e: {}},
			log:    []string{"0s " + c, "300ms " + d, "600ms " + e}, winner: e, took: 600 * time.Millisecond,
		},
		{
			name: "a dead first address does not eat the time", answers: []string{c, d},
			script: map[string]attempt{c: {after: never}, d: {after: time.Millisecond}},
			log:    []string{"0s " + c, "5s " + d}, winner: d, took: 5*time.Second + time.Millisecond,
		},
		{
			name: "all dead: 10 s in all", answers: []string{a, b, c, d},
			script: map[string]attempt{a: {after: never}, b: {after: never}, c: {after: never}, d: {after: never}},
			log:    []string{"0s " + a, "250ms " + c, "5s " + b, "5.125s " + d}, class: classConnectTimeout, took: 10 * time.Second,
		},
		{
			name: "all refuse: the first error", answers: []string{a, c},
			script: map[string]attempt{a: {err: refused}, c: {err: errors.New("other")}},
			log:    []string{"0s " + a, "0s " + c}, class: classConnectFailed,
		},
		{
			name:    "four addresses of a family at most",
			answers: []string{"93.184.215.1", "93.184.215.2", "93.184.215.3", "93.184.215.4", "93.184.215.5", "93.184.215.6"},
			script: map[string]attempt{
				"93.184.215.1": {err: refused}, "93.184.215.2": {err: refused}, "93.184.215.3": {err: refused}, "93.184.215.4": {err: refused},
			},
			log: []string{"0s 93.184.215.1", "0s 93.184.215.2", "0s 93.184.215.3", "0s 93.184.215.4"}, class: classConnectFailed,
		},
		{
			name: "the kernel's own time-out", answers: []string{c},
			script: map[string]attempt{c: {after: time.Second, err: &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}}},
			log:    []string{"0s " + c}, class: classConnectTimeout, took: time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dl := newDialer(t, Defaults())
				f := &attempts{script: tc.script, begun: time.Now()}
				dl.dialAddr = f.dial
				dl.lookup = func(context.Context, string) ([]netip.Addr, error) { return addrs(tc.answers...), nil }
				conn, err := dl.DialContext(t.Context(), "tcp", "www.example.net:443")
				if took := time.Since(f.begun); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				want := tc.class
				if want == "" {
					want = Public
				}
				if got := classOf(err); got != want {
					t.Fatalf("class %s, want %s", got, want)
				}
				if !slices.Equal(f.log, tc.log) {
					t.Errorf("attempts %q, want %q", f.log, tc.log)
				}
				if err != nil {
					var de *DialError
					if errors.As(err, &de) && de.Timeout() != (tc.class == classConnectTimeout) {
						t.Errorf("Timeout() is %v", de.Timeout())
					}
					return
				}
				cc := conn.(*Conn)
				if got := cc.Remote().Addr().String(); got != tc.winner {
					t.Errorf("connected to %s, want %s", got, tc.winner)
				}
				if len(cc.Resolved()) != len(tc.answers) || cc.Exception() != "" {
					t.Errorf("resolved %v, exception %q", cc.Resolved(), cc.Exception())
				}
				if f.open != 1 {
					t.Errorf("%d connections are open", f.open)
				}
				conn.Close()
			})
		})
	}
}

// TestDialCancelled: the caller's leaving ends all attempts at once.
func TestDialCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(t, Defaults())
		f := &attempts{script: map[string]attempt{"2606:4700::1": {after: never}, "93.184.215.14": {after: never}}, begun: time.Now()}
		d.dialAddr = f.dial
		d.lookup = func(context.Context, string) ([]netip.Addr, error) {
			return addrs("2606:4700::1", "93.184.215.14"), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := d.DialContext(ctx, "tcp", "www.example.net:443")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if took := time.Since(f.begun); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
	})
}

// TestDeadline: a deadline of the caller is a time-out of the site.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(t, Defaults())
		f := &attempts{script: map[string]attempt{"93.184.215.14": {after: never}}, begun: time.Now()}
		d.dialAddr = f.dial
		d.lookup = func(context.Context, string) ([]netip.Addr, error) { return addrs("93.184.215.14"), nil }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := d.DialContext(ctx, "tcp", "www.example.net:443")
		if got := classOf(err); got != classConnectTimeout {
			t.Errorf("class %s, want %s", got, classConnectTimeout)
		}
		d.lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
		began := time.Now()
		if got := classOf(dial(t, d, "www.example.net:443")); got != classDNSTimeout {
			t.Errorf("class %s, want %s", got, classDNSTimeout)
		}
		if took := time.Since(began); took != DefaultDNSTimeout {
			t.Errorf("lookup took %v, want %v", took, DefaultDNSTimeout)
		}
	})
}

// TestNetworks: the network of a dial narrows the family, after the whole
// answer was checked.
func TestNetworks(t *testing.T) {
	for _, c := range []struct {
		network string
		answers []netip.Addr
		want    string
		dialled []string
	}{
		{"tcp4", addrs("2606:4700::1", "93.184.215.14"), Public, []string{"93.184.215.14:443"}},
		{"tcp6", addrs("93.184.215.14", "2606:4700::1"), Public, []string{"[2606:4700::1]:443"}},
		{"tcp4", addrs("::1", "93.184.215.14"), ClassLoopback, nil},
		{"tcp6", addrs("93.184.215.14"), classDNSNoAddress, nil},
	} {
		d := newDialer(t, Defaults())
		f := &fakeDial{}
		d.dialAddr = f.dial
		d.lookup = func(context.Context, string) ([]netip.Addr, error) { return c.answers, nil }
		conn, err := d.DialContext(t.Context(), c.network, "www.example.net:443")
		if got := classOf(err); got != c.want || !slices.Equal(f.dialled(), c.dialled) {
			t.Errorf("%s %v: class %s, dialled %v, want %s, %v", c.network, c.answers, got, f.dialled(), c.want, c.dialled)
		}
		if err == nil {
			conn.Close()
		}
	}
	d := newDialer(t, Defaults())
	d.lookup = func(context.Context, string) ([]netip.Addr, error) { return addrs("93.184.215.14"), nil }
	for _, network := range []string{"udp", "unix", ""} {
		if _, err := d.DialContext(t.Context(), network, "www.example.net:443"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q: error %v", network, err)
		}
	}
}

// TestCache: an answer that passed whole is kept for the time given, a refused
// or failed one is asked for again.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.DNSCache = 10 * time.Second
		d := newDialer(t, c)
		d.dialAddr = (&fakeDial{}).dial
		asked := 0
		answer, fail := addrs("93.184.215.14"), error(nil)
		d.lookup = func(context.Context, string) ([]netip.Addr, error) { asked++; return answer, fail }
		step := func(name string, want string, total int) {
			t.Helper()
			if got := classOf(dial(t, d, "www.example.net:443")); got != want || asked != total {
				t.Errorf("%s: class %s after %d lookups, want %s after %d", name, got, asked, want, total)
			}
		}
		step("first", Public, 1)
		answer = addrs("10.0.0.1")
		time.Sleep(9 * time.Second)
		step("kept", Public, 1)
		time.Sleep(time.Second)
		step("expired", ClassPrivate, 2)
		step("a refused answer is not kept", ClassPrivate, 3)
		answer, fail = nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
		step("failure", classDNSError, 4)
		step("a failure is not kept", classDNSError, 5)
		answer, fail = addrs("93.184.215.14"), nil
		step("good again", Public, 6)
		d.SetSelf(func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("93.184.215.14:443")} })
		step("a kept answer is judged again", ClassSelf, 6)
		d.SetSelf(nil)
		step("and dropped when it is refused", Public, 7)
	})
}

func TestCacheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAnswers(time.Second)
		for i := range maxAnswers + 10 {
			s.put(netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}).String(), nil)
		}
		if len(s.of) != maxAnswers {
			t.Errorf("%d names kept, want %d", len(s.of), maxAnswers)
		}
		time.Sleep(time.Second)
		s.put("a.example", nil)
		if len(s.of) != 1 {
			t.Errorf("%d names kept after all expired, want 1", len(s.of))
		}
	})
}
