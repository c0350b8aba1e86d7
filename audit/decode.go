package audit

import (
	"encoding/json"
	"fmt"
	"time"
)

// stamp reads a time that may be "".
type stamp time.Time

// UnmarshalText reads RFC 3339, or nothing.
func (s *stamp) UnmarshalText(b []byte) error {
	*s = stamp{}
	if len(b) == 0 {
		return nil
	}
	return (*time.Time)(s).UnmarshalText(b)
}

// MarshalJSON writes the event as it stands in the log, with the keys of its type.
func (e *Event) MarshalJSON() ([]byte, error) {
	c := *e
	if c.Type == "" {
		c.Type = TypeRequest
	}
	if bitOf(c.Type) == 0 {
		return nil, fmt.Errorf("no event type %q", c.Type)
	}
	b := appendHead(nil, c.Type, c.Seq)
	b = appendBody(b, &c)
	b = append(b, `,"prev":`...)
	b, _ = appendString(b, c.Prev, 64)
	b = append(b, `,"hash":`...)
	b, _ = appendString(b, c.Hash, 64)
	return append(b, '}'), nil
}

// UnmarshalJSON reads an event. Keys that are unknown or absent are no error.
func (e *Event) UnmarshalJSON(b []byte) error {
	type bare Event
	type bareRobots Robots
	var in struct {
		*bare
		Time   stamp `json:"time"`
		SentAt stamp `json:"sent_at"`
		DoneAt stamp `json:"done_at"`
		Robots struct {
			bareRobots
			FetchedAt stamp `json:"fetched_at"`
		} `json:"robots"`
	}
	var out Event
	in.bare = (*bare)(&out)
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	out.Time, out.SentAt, out.DoneAt = time.Time(in.Time), time.Time(in.SentAt), time.Time(in.DoneAt)
	out.Robots = Robots(in.Robots.bareRobots)
	out.Robots.FetchedAt = time.Time(in.Robots.FetchedAt)
	*e = out
	return nil
}

// Decode reads one line of the log, with or without its end. It judges the form only; the chain is [Verify]'s.
func Decode(line []byte) (*Event, error) {
	e := new(Event)
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	if e.Schema != Schema {
		return nil, fmt.Errorf("read event: schema %q, want %q", e.Schema, Schema)
	}
	return e, nil
}
