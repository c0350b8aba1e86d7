package audit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// syslogSink sends each head as one message of RFC 5424: a datagram over UDP or to a local socket, with its length before
// it over TCP and TLS (RFC 6587 section 3.4.1, RFC 5425 section 4.3).
type syslogSink struct {
	to   *target
	net  network
	host string // HOSTNAME
	pid  string
}

// 13 is the facility "log audit", 6 the severity "informational" (RFC 5424 section 6.2.1).
const syslogPriority = 13*8 + 6

// Syslog says nothing back. A stream is ended and the other side given this long to end it too, which shows a reset; over
// UDP a closed port shows by then on the way back.
const (
	streamEnd     = 2 * time.Second
	datagramCheck = 100 * time.Millisecond
)

func newSyslogSink(t *target, n network) *syslogSink {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	return &syslogSink{to: t, net: n, host: syslogName(name, 255), pid: strconv.Itoa(os.Getpid())}
}

// syslogName is a field of the header: printable ASCII, "-" for none.
func syslogName(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return -1
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), limit)]
}

// message is a head in the form of RFC 5424. What a checkpoint holds is ASCII, so no byte order mark stands before it.
func (s *syslogSink) message(h *signedHead) []byte {
	b := fmt.Appendf(nil, "<%d>1 ", syslogPriority)
	b = h.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = fmt.Appendf(b, " %s crawlgate %s checkpoint - ", s.host, s.pid)
	return append(b, h.line...)
}

func (s *syslogSink) send(ctx context.Context, h *signedHead) error {
	msg := s.message(h)
	network := s.to.network
	if network == "tls" {
		network = "tcp"
	}
	conn, err := s.net.dial(ctx, network, s.to.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	switch s.to.network {
	case "udp", "unixgram":
		return s.datagram(conn, msg)
	case "tls":
		secure := tls.Client(conn, s.net.tls(s.to.host))
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		return stream(secure, msg)
	}
	return stream(conn, msg)
}

// datagram sends a message, and over UDP looks whether the host says that nobody listens there. That it arrived cannot
// be known.
func (s *syslogSink) datagram(conn net.Conn, msg []byte) error {
	if _, err := conn.Write(msg); err != nil || s.to.network != "udp" {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(datagramCheck))
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// stream sends a message on a connection of its own. One that is kept open takes a first message after the other side
// went away without any error, and it is lost.
func stream(conn net.Conn, msg []byte) error {
	framed := append(strconv.AppendInt(nil, int64(len(msg)), 10), ' ')
	if _, err := conn.Write(append(framed, msg...)); err != nil {
		return err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(streamEnd))
	_, err := io.Copy(io.Discard, io.LimitReader(conn, answerRead))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // it keeps the connection open: some do
	}
	return err
}
