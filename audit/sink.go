package audit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Dial opens connections to the sinks of checkpoint_to that are on the network. They are the operator's own, so the
// program gives a plain dialer here, not the guarded one that requests of fetchers go through.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// errNoNetwork is what a log that was opened without a Dial says.
var errNoNetwork = errors.New("this log was opened without a way to the network")

// sink takes one signed head. It returns when the head was taken, as far as the way there can tell.
type sink interface {
	send(ctx context.Context, h *signedHead) error
}

// signedHead is a checkpoint event on its way to a sink.
type signedHead struct {
	Head
	line []byte // as it stands in the log, without its end
}

// retryLater is a failure whose sink said when to come again.
type retryLater struct {
	error
	after time.Duration
}

// network is what the sinks on the network share.
type network struct {
	dial  Dial
	roots *x509.CertPool // nil: the system's
}

func newNetwork(dial Dial, caFile string) (network, error) {
	n := network{dial: dial}
	if n.dial == nil {
		n.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errNoNetwork }
	}
	if caFile == "" {
		return n, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return n, &keyError{"checkpoint_ca_file", err.Error()}
	}
	if n.roots, err = x509.SystemCertPool(); err != nil {
		n.roots = x509.NewCertPool()
	}
	if !n.roots.AppendCertsFromPEM(pem) {
		return n, &keyError{"checkpoint_ca_file", fmt.Sprintf("%s: no certificate in it", caFile)}
	}
	return n, nil
}

func (n network) tls(host string) *tls.Config {
	return &tls.Config{RootCAs: n.roots, ServerName: host, MinVersion: tls.VersionTLS12}
}

// sinkOf makes the way to a target.
func (n network) sinkOf(t *target) sink {
	switch t.kind {
	case SinkURL:
		return newURLSink(t, n)
	case SinkSyslog:
		return newSyslogSink(t, n)
	}
	return fileSink(t.address)
}

// fileSink appends heads to a file, one event a line, each on the disk when send returns. The file is opened anew each
// time: others may move it away, and a share may have come back.
type fileSink string

func (path fileSink) send(_ context.Context, h *signedHead) error {
	f, err := os.OpenFile(string(path), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(h.line[:len(h.line):len(h.line)], '\n'))
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
