package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// An answer that fits into the system's buffers is written at once; if it is not read, it does not stay there.
func TestHTTPAnswerThatIsNotTaken(t *testing.T) {
	const size = 1 << 20
	r := newRig(t)
	o := r.origin("buffered.test", false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	r.start(rigOptions{rules: func(ru *Rules) { ru.Server.StallTimeout, ru.Server.Idle = 2*time.Second, time.Minute }})
	c := r.rawConn(o, false)
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.url("http", "/"), o.hostport())
	must(t, err)
	<-time.After(5 * time.Second)
	if n, err := io.Copy(io.Discard, c); n >= size || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes: %v", n, err)
	}
	r.noTurnsLeft()
}
