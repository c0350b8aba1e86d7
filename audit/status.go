package audit

import (
	"os"
	"path/filepath"
)

// Status is what a page about the log shows.
type Status struct {
	File       string       `json:"file"`
	Size       int64        `json:"size"` // bytes of the live file
	Seq        uint64       `json:"seq"`
	Head       string       `json:"head"`
	Signed     Head         `json:"signed"`      // last signed head of this process; File is the log
	Sinks      []SinkStatus `json:"sinks"`       // how its delivery stands, for each item of checkpoint_to
	Queued     int          `json:"queued"`      // events that wait for the disk
	QueueLimit int          `json:"queue_limit"` // as many may
	Lost       int64        `json:"lost"`        // events lost since the start
	Free       int64        `json:"free"`        // bytes left on the disk, -1 if that is not known
	Err        error        `json:"-"`           // what Ready says
}

// Status tells how the log is. It asks the file system, so it is not for each request.
func (l *Log) Status() Status {
	l.mu.Lock()
	s := Status{
		File: l.path, Seq: l.seq, Head: l.head, Signed: l.signed, Queued: l.queued, QueueLimit: l.set.Load().Queue,
		Lost: l.totalLost, Free: -1,
	}
	l.mu.Unlock()
	s.Sinks = l.push.status()
	if st, err := os.Stat(l.path); err == nil {
		s.Size = st.Size()
	}
	if free, err := freeBytes(filepath.Dir(l.path)); err == nil {
		s.Free = free
	}
	s.Err = l.Ready()
	return s
}
