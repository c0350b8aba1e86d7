package audit

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// delaySpill is how many times are held in memory before they go to a temporary file: 256 MiB of them.
const delaySpill = 256 << 20 / 8

// delayTimes holds the times of each crawler's requests to each host.
type delayTimes struct {
	limit int
	held  int
	times map[delayKey]*[]int64
	runs  map[delayKey][]delayRun
	file  *os.File
	files []*os.File // of merged ones too
	size  int64
	err   error
}

type delayKey struct {
	crawler int32
	host    string
}

// delayRun is a sorted list in a temporary file.
type delayRun struct {
	file      *os.File
	offset, n int64
}

func newDelayTimes(limit int) *delayTimes {
	return &delayTimes{limit: max(limit, 1), times: map[delayKey]*[]int64{}, runs: map[delayKey][]delayRun{}}
}

func (d *delayTimes) add(crawler int32, host string, t int64) {
	k := delayKey{crawler, host}
	list := d.times[k]
	if list == nil {
		list = new([]int64)
		d.times[k] = list
	}
	*list = append(*list, t)
	if d.held++; d.held >= d.limit {
		d.spill()
	}
}

// spill writes what is in memory to a temporary file that has no name any more.
func (d *delayTimes) spill() {
	if d.err != nil {
		return
	}
	if d.file == nil {
		if d.file, d.err = os.CreateTemp("", "crawlgate-delay-*"); d.err != nil {
			return
		}
		_ = os.Remove(d.file.Name())
		d.files = append(d.files, d.file)
	}
	w := bufio.NewWriterSize(d.file, 1<<20)
	var b [8]byte
	for k, list := range d.times {
		slices.Sort(*list)
		d.runs[k] = append(d.runs[k], delayRun{d.file, d.size, int64(len(*list))})
		d.size += int64(len(*list)) * 8
		for _, t := range *list {
			binary.LittleEndian.PutUint64(b[:], uint64(t))
			_, _ = w.Write(b[:])
		}
	}
	d.err = w.Flush()
	clear(d.times)
	d.held = 0
}

func (d *delayTimes) merge(o *delayTimes) {
	for k, list := range o.times {
		if have := d.times[k]; have == nil {
			d.times[k] = list
		} else {
			*have = append(*have, *list...)
		}
	}
	for k, runs := range o.runs {
		d.runs[k] = append(d.runs[k], runs...)
	}
	d.files = append(d.files, o.files...)
	if d.err == nil {
		d.err = o.err
	}
}

func (d *delayTimes) close() {
	for _, f := range d.files {
		f.Close()
	}
	d.files = nil
}

// each gives the times of one crawler at one host in order.
func (d *delayTimes) each(k delayKey, f func(t int64)) error {
	type source struct {
		r    io.Reader
		left int64
		next int64
	}
	var list []int64
	if l := d.times[k]; l != nil {
		list = *l
		slices.Sort(list)
	}
	var sources []*source
	read := func(s *source) error {
		var b [8]byte
		s.left--
		_, err := io.ReadFull(s.r, b[:])
		s.next = int64(binary.LittleEndian.Uint64(b[:]))
		return err
	}
	for _, r := range d.runs[k] {
		s := &source{r: bufio.NewReader(io.NewSectionReader(r.file, r.offset, r.n*8)), left: r.n}
		if err := read(s); err != nil {
			return err
		}
		sources = append(sources, s)
	}
	for {
		best := -1
		for i, s := range sources {
			if best < 0 || s.next < sources[best].next {
				best = i
			}
		}
		if best < 0 || len(list) > 0 && list[0] <= sources[best].next {
			if len(list) == 0 {
				return nil
			}
			f(list[0])
			list = list[1:]
			continue
		}
		s := sources[best]
		f(s.next)
		if s.left == 0 {
			sources = slices.Delete(sources, best, best+1)
		} else if err := read(s); err != nil {
			return err
		}
	}
}

// keys are all crawlers and hosts with times.
func (d *delayTimes) keys() []delayKey {
	seen := map[delayKey]bool{}
	var out []delayKey
	add := func(k delayKey) {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	for k := range d.times {
		add(k)
	}
	for k := range d.runs {
		add(k)
	}
	return out
}
