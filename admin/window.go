package admin

import "time"

// window counts happenings over the last hour, day and week in fixed memory:
// one slot a minute for an hour, one an hour for a week. A slot is reused when
// its turn comes again, so nothing has to be swept.
type window struct {
	minutes [60]slot
	hours   [7 * 24]slot
	total   uint64
	first   time.Time
	last    time.Time
}

type slot struct {
	at int64 // minutes or hours since 1970
	n  uint64
}

func (w *window) add(now time.Time) {
	s := now.Unix()
	bump(&w.minutes[mod(s/60, 60)], s/60)
	bump(&w.hours[mod(s/3600, 7*24)], s/3600)
	if w.total == 0 {
		w.first = now
	}
	w.last = now
	w.total++
}

func bump(s *slot, at int64) {
	if s.at != at {
		*s = slot{at: at}
	}
	s.n++
}

func mod(a, n int64) int64 { return (a%n + n) % n }

// hour counts the last 60 minutes, day the last 24 hours, week the last 7 days;
// the running minute or hour included.
func (w *window) hour(now time.Time) uint64 { return sum(w.minutes[:], now.Unix()/60, 60) }
func (w *window) day(now time.Time) uint64  { return sum(w.hours[:], now.Unix()/3600, 24) }
func (w *window) week(now time.Time) uint64 { return sum(w.hours[:], now.Unix()/3600, 7*24) }

func sum(slots []slot, now, n int64) uint64 {
	var t uint64
	for _, s := range slots {
		if s.n > 0 && s.at > now-n && s.at <= now {
			t += s.n
		}
	}
	return t
}
