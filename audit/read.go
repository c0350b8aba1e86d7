package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Query chooses events. Empty members choose all.
type Query struct {
	Types    []string // request, robots, ...
	ID       string
	Client   string
	Agent    string
	Profile  string
	Job      string
	Kind     string
	Host     string // also every host below it when it begins with a dot
	URL      string // as it stands in the log
	URLHash  string
	Reason   string
	Class    string
	Decision string

	Since, Until time.Time // half-open, by the time of receipt
	After        uint64    // seq above this

	Limit int // the last so many of Last; the first so many of Read; 0: all
}

// Match tells whether an event is chosen.
func (q *Query) Match(e *Event) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	if len(q.Types) > 0 && !slices.Contains(q.Types, e.Type) {
		return false
	}
	if q.URL != "" || q.URLHash != "" {
		// By hash when it is known: a masked text stands for many URLs.
		byHash := q.URLHash != "" && e.URLHash == q.URLHash
		byText := q.URL != "" && e.URL.s == q.URL && (q.URLHash == "" || e.URLHash == "")
		if !byHash && !byText {
			return false
		}
	}
	return is(q.ID, e.ID) && is(q.Client, e.Client.Name) && is(q.Agent, e.Agent) && is(q.Profile, e.Profile) && is(q.Job, e.Job) &&
		is(q.Kind, e.Kind) && matchHost(q.Host, e.Host) && is(q.Reason, e.Reason) && is(q.Class, e.Class) && is(q.Decision, e.Decision) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Until.IsZero() || e.Time.Before(q.Until)) && e.Seq > q.After
}

func matchHost(want, have string) bool {
	if want == "" || strings.EqualFold(want, have) {
		return true
	}
	return strings.HasPrefix(want, ".") && (strings.EqualFold(want[1:], have) || len(have) > len(want) && strings.EqualFold(have[len(have)-len(want):], want))
}

// needles are texts that stand in every line that can match, so that most lines need no decoding.
func (q *Query) needles() [][]byte {
	var n [][]byte
	add := func(key, value string) {
		if value == "" {
			return
		}
		quoted, cut := appendString(nil, value, MaxLine)
		if !cut {
			n = append(n, append([]byte(`"`+key+`":`), quoted...))
		}
	}
	add("id", q.ID)
	add("agent", q.Agent)
	add("profile", q.Profile)
	add("job", q.Job)
	add("kind", q.Kind)
	add("reason", q.Reason)
	add("class", q.Class)
	add("decision", q.Decision)
	if q.Host != "" && !strings.HasPrefix(q.Host, ".") && q.Host == strings.ToLower(q.Host) {
		add("host", q.Host)
	}
	if q.URL == "" {
		add("url_hash", q.URLHash)
	} else if q.URLHash == "" {
		add("url", q.URL)
	}
	return n
}

// Record is one event as read: decoded, and the line as it stands in the file (without its end).
type Record struct {
	Event *Event
	Line  []byte
	File  string
	N     int // line, from 1
}

// errEnough ends a reading early.
var errEnough = errors.New("enough")

// Read gives the chosen events of files in order, the first Limit of them. Lines that are no events are passed to bad (nil: passed over). An
// error of f or of ctx ends the reading and is returned. A record and its line belong to f.
func Read(ctx context.Context, files []string, q Query, f func(Record) error, bad func(file string, line int)) error {
	left := q.Limit
	for _, path := range files {
		err := readFile(ctx, path, &q, func(r Record) error {
			if err := f(r); err != nil {
				return err
			}
			if left--; left == 0 {
				return errEnough
			}
			return nil
		}, bad)
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Last gives the newest Limit chosen events, oldest of them first; files are given oldest first and read newest first.
func Last(ctx context.Context, files []string, q Query, bad func(file string, line int)) ([]Record, error) {
	var out []Record
	for _, path := range slices.Backward(files) {
		want := 0
		if q.Limit > 0 {
			if want = q.Limit - len(out); want <= 0 {
				break
			}
		}
		var ring []Record
		err := readFile(ctx, path, &q, func(r Record) error {
			ring = append(ring, r)
			if want > 0 && len(ring) >= 2*want {
				ring = append(ring[:0], ring[len(ring)-want:]...)
			}
			return nil
		}, bad)
		if err != nil {
			return nil, err
		}
		if want > 0 && len(ring) > want {
			ring = ring[len(ring)-want:]
		}
		out = append(ring, out...)
		// A whole file older than the window: nothing before it can be chosen.
		if first, err := firstLink(path); err == nil && !q.Since.IsZero() {
			if at, err := time.Parse(time.RFC3339, first.time); err == nil && at.Before(q.Since.Add(-timeSlack)) {
				break
			}
		}
	}
	return out, nil
}

// timeSlack is how much later an event may stand in the log than a younger one: events are written at their end, and carry
// the time of receipt.
const timeSlack = 24 * time.Hour

// readFile gives the chosen events of one file.
func readFile(ctx context.Context, path string, q *Query, f func(Record) error, bad func(string, int)) error {
	r, err := openLog(path)
	if err != nil {
		return err
	}
	defer r.Close()
	needles := q.needles()
	lines := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			// Not a line of the gate: pass over the rest of it.
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = []byte("?")
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("%s: %w", path, err)
		}
		whole := err == nil
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) > 0 && hasAll(line, needles) {
			e, derr := Decode(line)
			switch {
			case derr == nil && q.Match(e):
				if err := f(Record{Event: e, Line: bytes.Clone(line), File: path, N: n}); err != nil {
					return err
				}
			case derr != nil && whole && bad != nil:
				bad(path, n)
			}
		}
		if !whole {
			return nil
		}
	}
}

func hasAll(line []byte, needles [][]byte) bool {
	for _, n := range needles {
		if !bytes.Contains(line, n) {
			return false
		}
	}
	return true
}

// Normalise gives a URL the form that the log has it in: scheme and host in lower case, no default port, user info or
// fragment, and a path. It is for people's input to a query; the gate's own normalisation is stricter.
func Normalise(raw string) (*url.URL, error) {
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(escapeStray(raw))
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not an http or https URL", raw)
	}
	host, port := splitHost(strings.ToLower(u.Host))
	host = strings.TrimSuffix(host, ".")
	if port != 0 && !(u.Scheme == "http" && port == 80 || u.Scheme == "https" && port == 443) {
		host = fmt.Sprintf("%s:%d", host, port)
	}
	u.Host, u.User, u.Fragment, u.RawFragment = host, nil, "", ""
	if u.Path == "" {
		u.Path = "/"
	}
	// What people type raw, clients send escaped.
	if raw := escapeRaw(u.RawPath); raw != u.RawPath {
		u.RawPath = raw
	}
	u.RawQuery = escapeRaw(u.RawQuery)
	return u, nil
}

// escapeRaw escapes what never stands raw on the wire: spaces, control characters and bytes beyond ASCII.
func escapeRaw(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
