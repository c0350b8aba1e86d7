package guard

import (
	"net"
	"strconv"
	"sync"
	"testing"
)

// sink accepts and closes connections.
func sink(b *testing.B) (address string, port int) {
	b.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	b.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), l.Addr().(*net.TCPAddr).Port
}

// BenchmarkDial compares a guarded dial with a plain one.
func BenchmarkDial(b *testing.B) {
	address, port := sink(b)
	d := newDialer(b, loopback([]int{port}, "127.0.0.1 shop.test"))
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		var plain net.Dialer
		for b.Loop() {
			c, err := plain.DialContext(b.Context(), "tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	for name, to := range map[string]string{"address": address, "name": "shop.test:" + strconv.Itoa(port)} {
		b.Run("guarded "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := d.DialContext(b.Context(), "tcp", to)
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

func BenchmarkParseURL(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := ParseURL("http://docs.example.org/a/b%2Fc?q=1"); err != nil {
			b.Fatal(err)
		}
	}
}
