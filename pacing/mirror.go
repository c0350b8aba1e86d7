package pacing

import (
	"errors"
	"fmt"
	"time"
)

// args are the arguments of one call, in microseconds.
type args struct {
	Now       int64   `json:"now,omitempty"` // tests only
	Inst      string  `json:"inst"`
	Name      string  `json:"name"`
	Channel   string  `json:"channel"`
	Token     string  `json:"token"`
	Class     int     `json:"class"`
	Prio      int     `json:"prio"`
	Free      int     `json:"free"`
	Gap       int64   `json:"gap"`
	Delay     int64   `json:"delay"`
	Slow      int64   `json:"slow"`
	NotBefore int64   `json:"notbefore"`
	Age       int64   `json:"age"` // how long the client that is asked for has had its place
	Parallel  int     `json:"parallel"`
	Wide      int     `json:"wide"`
	Rides     int     `json:"rides"`
	Page      string  `json:"page"`
	Granted   int64   `json:"granted"`
	Verdict   string  `json:"verdict"`
	Incidents int     `json:"incident"`
	Bad       int     `json:"bad"`
	After     int64   `json:"after"`
	Jitter    float64 `json:"jitter"`
	Robots    int     `json:"robots"`
	Window    int     `json:"window"`
	Waiting   int64   `json:"waiting"`
	Again     int     `json:"again"`
	End       int64   `json:"e"`
	EndGap    int64   `json:"eg"`
	EndLevel  int     `json:"el"`
	RobotsEnd int64   `json:"re"`
	RobotsGap int64   `json:"rg"`
	Hold      int64   `json:"hold"`
	Incident  int64   `json:"i"`
	Fails     int     `json:"f"`
	Level     int     `json:"lv"`
	KeyDelay  int64   `json:"dl"`
	Open      int64   `json:"open"`
	Opens     int     `json:"op"`
}

func us(d time.Duration) int64 { return int64((d + 999) / 1000) }

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// of fills in what a want says.
func (a *args) of(w *want) {
	a.Class, a.Free, a.Gap, a.Delay, a.Parallel = int(w.class), bit(w.free), us(w.gap), us(w.delay), int(max(w.parallel, 1))
	a.Prio = map[class]int{classRobots: 0, classRedirect: 1, classPage: 2, classRider: 3}[w.class]
}

// Statuses of a reply.
const (
	stWait = iota
	stGranted
	stRides
	stStopped
	stLeft
	stRideLater
	stHeld
	stLost
)

// reply is the answer to a call: what was decided and the state of the key, in microseconds of the server's clock.
type reply struct {
	status, wait, now                            int64
	end, endGap, robotsEnd, robotsGap            int64
	slow, delay, hold, incident, fails, goodRun  int64
	level, levelAt, endLevel, openUntil, opens   int64
	leases, heldClass, heldGap, heldFree, npages int64
}

const replyFields = 23

var errReply = errors.New("store answered something else than it should")

func readReply(v []int64) (reply, error) {
	if len(v) != replyFields {
		return reply{}, fmt.Errorf("%w: %d fields", errReply, len(v))
	}
	return reply{
		v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15], v[16], v[17], v[18],
		v[19], v[20], v[21], v[22],
	}, nil
}

// mirror copies a reply into the key, at is our time of it. What the mirror says is a lower bound for forecasts; the
// store alone decides.
func (p *Pacer) mirror(k *entry, r *reply, at int64) {
	x := k.extra()
	if late := x.server - r.now; late > 0 && late < us(callTimeout) { // overtaken by a younger reply
		return
	}
	x.server = r.now
	local := func(t int64) int64 {
		if t <= -1e14 {
			return never
		}
		return at + (t-r.now)*1000
	}
	d := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	k.lastEnd, k.endGap, k.robotsEnd, k.robotsGap = local(r.end), d(r.endGap), local(r.robotsEnd), d(r.robotsGap)
	k.slow, k.delay, k.holdUntil, k.incidentAt = d(r.slow), d(r.delay), local(r.hold), local(r.incident)
	k.fails, k.goodRun, k.level, k.levelAt, k.endLevel = small(r.fails), small(r.goodRun), uint8(r.level), local(r.levelAt), uint8(r.endLevel) //nolint:gosec // small
	k.openUntil, k.opens, k.window = 0, small(r.opens), nil                                                                                    //nolint:gosec // small
	if o := local(r.openUntil); o != never {
		k.openUntil = o
		if o == 0 {
			k.openUntil = 1
		}
	}
	x.synced, x.counted = at, r.npages > 0
	x.remote = nil
	if r.status == stHeld && k.turns == nil {
		x.remote = &part{want: want{class: class(r.heldClass), free: r.heldFree == 1, gap: d(r.heldGap)}} //nolint:gosec // 0..2
	}
}
