package audit

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// idAlphabet is Crockford's base 32: no I, L, O, U, and in ASCII order, so that ids sort as their times do.
const idAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// idClock is the last id's high half: milliseconds since 1970 times 65536, plus a counter inside the millisecond.
var idClock atomic.Uint64

// NewID returns a request id of 20 characters: later ids of one process are greater as text, ids of different processes
// differ by 35 random bits beside the time.
func NewID() string {
	now := uint64(time.Now().UnixMilli()) << 16
	var high uint64
	for {
		last := idClock.Load()
		high = max(now, last+1)
		if idClock.CompareAndSwap(last, high) {
			break
		}
	}
	low := rand.Uint64()
	var b [20]byte
	for i := 12; i >= 0; i-- {
		b[i] = idAlphabet[high&31]
		high >>= 5
	}
	for i := 19; i >= 13; i-- {
		b[i] = idAlphabet[low&31]
		low >>= 5
	}
	return string(b[:])
}
