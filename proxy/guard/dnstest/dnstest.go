// Package dnstest runs a real DNS server on loopback, over UDP and TCP, whose
// answers a test decides. It is for tests only.
//
//	addr := dnstest.Start(t, func(name string, _ dnsmessage.Type) []netip.Addr {
//		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
//	})
//
// Give addr to `egress.dns`. New takes a handler that also controls aliases,
// response codes, truncation, delay and silence, and counts the questions.
package dnstest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A Question is one query as it arrived.
type Question struct {
	Name    string          // lower case, without the trailing dot
	Type    dnsmessage.Type // TypeA, TypeAAAA, ...
	Network string          // udp or tcp
}

// A Reply is what the server does with a question. The zero Reply is an answer
// without records.
type Reply struct {
	// Addrs become A or AAAA records; those of the type not asked for are left
	// out. An IPv4-mapped address becomes an AAAA record, as it is.
	Addrs []netip.Addr
	// CNAME is a chain of aliases before the addresses: the name asked for
	// points to the first, and so on; the records carry the last name.
	CNAME []string
	// PTR are the names that an address has, for a question of that type.
	PTR []string
	// RCode is the response code: dnsmessage.RCodeNameError and so on.
	RCode dnsmessage.RCode
	// TTL of all records, in seconds.
	TTL uint32
	// Truncate sets the TC bit over UDP and leaves the records out, so that
	// the client asks again over TCP.
	Truncate bool
	// Delay passes before the reply is sent.
	Delay time.Duration
	// Drop sends nothing at all.
	Drop bool
}

// A Server is running until its test ends.
type Server struct {
	// Addr is the address:port of both sockets.
	Addr string

	handle func(Question) Reply
	udp    net.PacketConn
	tcp    net.Listener
	done   chan struct{} // closed when the test ends
	wg     sync.WaitGroup

	mu        sync.Mutex
	questions []Question
	conns     map[net.Conn]bool
}

// Start runs a server that answers with the addresses which answer gives for a
// name (lower case, no trailing dot) and a type; nil is a name without an
// address. It returns the server's address:port and stops with the test.
func Start(tb testing.TB, answer func(name string, qtype dnsmessage.Type) []netip.Addr) (addr string) {
	tb.Helper()
	return New(tb, func(q Question) Reply { return Reply{Addrs: answer(q.Name, q.Type)} }).Addr
}

// New runs a server that does what handle says, which may be called from
// several goroutines at once.
func New(tb testing.TB, handle func(Question) Reply) *Server {
	tb.Helper()
	s := &Server{handle: handle, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	var err error
	for range 20 { // the UDP port of a free TCP port can be taken
		if s.tcp, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			break
		}
		if s.udp, err = net.ListenPacket("udp4", s.tcp.Addr().String()); err == nil {
			break
		}
		s.tcp.Close()
	}
	if err != nil {
		tb.Fatalf("dnstest: %v", err)
	}
	s.Addr = s.tcp.Addr().String()
	s.wg.Add(2)
	go s.serveUDP()
	go s.serveTCP()
	tb.Cleanup(func() {
		close(s.done)
		s.udp.Close()
		s.tcp.Close()
		s.mu.Lock()
		for c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// Questions are all questions so far, in the order of arrival.
func (s *Server) Questions() []Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.questions)
}

// Count is how often a name was asked for with a type.
func (s *Server) Count(name string, qtype dnsmessage.Type) int {
	n := 0
	for _, q := range s.Questions() {
		if q.Name == name && q.Type == qtype {
			n++
		}
	}
	return n
}

func (s *Server) serveUDP() {
	defer s.wg.Done()
	for {
		buf := make([]byte, 4096)
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			if out := s.reply(buf[:n], "udp"); out != nil {
				s.udp.WriteTo(out, from)
			}
		}()
	}
}

func (s *Server) serveTCP() {
	defer s.wg.Done()
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		select {
		case <-s.done: // accepted while the test was ending
			c.Close()
		default:
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.serveStream(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
	}
}

// serveStream answers messages with a length in front (RFC 1035 4.2.2).
func (s *Server) serveStream(c net.Conn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, msg); err != nil {
			return
		}
		out := s.reply(msg, "tcp")
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// reply makes the answer to a message; nil sends none.
func (s *Server) reply(msg []byte, network string) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(msg)
	if err != nil || head.Response {
		return nil
	}
	asked, err := p.Question()
	if err != nil {
		return nil
	}
	q := Question{strings.ToLower(strings.TrimSuffix(asked.Name.String(), ".")), asked.Type, network}
	s.mu.Lock()
	s.questions = append(s.questions, q)
	s.mu.Unlock()
	r := s.handle(q)
	if r.Delay > 0 {
		wait := time.NewTimer(r.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-s.done:
			return nil
		}
	}
	if r.Drop {
		return nil
	}
	out, err := r.pack(head.ID, asked, network == "udp")
	if err != nil {
		return nil
	}
	return out
}

func (r Reply) pack(id uint16, q dnsmessage.Question, udp bool) ([]byte, error) {
	truncated := r.Truncate && udp
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: id, Response: true, RecursionDesired: true, RecursionAvailable: true,
		RCode: r.RCode, Truncated: truncated,
	})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q); err != nil {
		return nil, err
	}
	if truncated {
		return b.Finish()
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	owner := q.Name
	for _, alias := range r.CNAME {
		next, err := dnsmessage.NewName(strings.TrimSuffix(alias, ".") + ".")
		if err != nil {
			return nil, err
		}
		if err := b.CNAMEResource(r.header(owner, dnsmessage.TypeCNAME), dnsmessage.CNAMEResource{CNAME: next}); err != nil {
			return nil, err
		}
		owner = next
	}
	for _, a := range r.Addrs {
		var err error
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			err = b.AResource(r.header(owner, q.Type), dnsmessage.AResource{A: a.As4()})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			err = b.AAAAResource(r.header(owner, q.Type), dnsmessage.AAAAResource{AAAA: a.As16()})
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Type == dnsmessage.TypePTR {
		for _, name := range r.PTR {
			n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
			if err != nil {
				return nil, err
			}
			if err := b.PTRResource(r.header(owner, q.Type), dnsmessage.PTRResource{PTR: n}); err != nil {
				return nil, err
			}
		}
	}
	return b.Finish()
}

func (r Reply) header(name dnsmessage.Name, t dnsmessage.Type) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: name, Type: t, Class: dnsmessage.ClassINET, TTL: r.TTL}
}
