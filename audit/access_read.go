package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	maxAccessLine = 1 << 20 // bytes; longer lines are malformed and never held in memory
	blockBytes    = 1 << 20
	progressEvery = 100 * time.Millisecond
)

// logBlock is a piece of an input, cut at line ends.
type logBlock struct {
	input    int32
	data     []byte
	buf      []byte // of the pool; data lies in it
	format   *logFormat
	fields   *w3cFields // columns in force at its start
	skip     int        // lines at its start that are an overlap
	overlong int        // lines before it that were too long
	dropped  int        // such lines of the overlap
}

// reading is the one goroutine that reads; workers take its blocks.
type reading struct {
	a      *auditor
	ctx    context.Context
	blocks chan *logBlock
	busy   sync.WaitGroup // blocks under work
	bufs   sync.Pool
	parser lineParser

	report AccessProgress
	done   int64 // bytes of finished inputs
	last   time.Time
}

// read reads all inputs and counts; only the end of ctx is an error.
func (a *auditor) read(ctx context.Context) (*accessCounts, error) {
	r := &reading{a: a, ctx: ctx, blocks: make(chan *logBlock, a.o.Workers)}
	r.bufs.New = func() any { b := make([]byte, maxAccessLine+blockBytes); return &b }
	for _, in := range a.inputs {
		if in.info != nil && in.skipped == "" && !in.stream {
			r.report.Total += in.info.Size()
		}
		if in.stream {
			r.report.Total = -1 << 62
		}
	}
	r.report.Total = max(r.report.Total, 0)
	workers := make([]*accessWorker, a.o.Workers)
	var wg sync.WaitGroup
	for i := range workers {
		w := newAccessWorker(a, ctx)
		workers[i] = w
		wg.Go(func() {
			for b := range r.blocks {
				w.block(b)
				r.bufs.Put(&b.buf)
				r.busy.Done()
			}
		})
	}
	for i, in := range a.inputs {
		if in.skipped != "" || ctx.Err() != nil {
			continue
		}
		r.input(int32(i), in)
		if a.seen != nil {
			r.busy.Wait() // equal lines are counted file by file
		}
	}
	close(r.blocks)
	wg.Wait()
	total := newAccessCounts(a)
	for _, w := range workers {
		total.merge(w.counts)
	}
	if err := ctx.Err(); err != nil {
		total.close()
		return nil, err
	}
	return total, nil
}

// input reads one input to its end.
func (r *reading) input(index int32, in *accessInput) {
	o, err := in.open()
	if err != nil {
		in.err = err
		return
	}
	defer o.Close()
	defer func() { r.done += o.raw.n.Load() }()
	in.format = r.a.format
	buf := r.buffer()
	var fields *w3cFields
	n, overlong, dropped, skip := 0, 0, 0, in.overlap
	skipping, started := false, false
	send := func(data, from []byte) {
		b := &logBlock{input: index, data: data, buf: from, format: in.format, fields: fields, skip: skip, overlong: overlong, dropped: dropped}
		lines := bytes.Count(data, []byte{'\n'})
		skip = max(0, skip-lines)
		overlong, dropped = 0, 0
		r.report.Lines += int64(lines)
		fields = lastFields(data, in.format, fields)
		r.busy.Add(1)
		r.blocks <- b
	}
	for {
		var rerr error
		for end := n + blockBytes; n < end && rerr == nil; {
			var m int
			m, rerr = o.Read(buf[n:end])
			n += m
			if r.ctx.Err() != nil {
				return
			}
		}
		if !started && n > 0 {
			started = true
			if bytes.HasPrefix(buf[:n], []byte("\xef\xbb\xbf")) {
				n = copy(buf, buf[3:n])
			}
		}
		if skipping {
			i := bytes.IndexByte(buf[:n], '\n')
			if i < 0 {
				n = 0
			} else {
				n = copy(buf, buf[i+1:n])
				skipping = false
			}
		}
		if in.format == nil {
			in.format = r.parser.detect(buf[:n])
		}
		cut := bytes.LastIndexByte(buf[:n], '\n') + 1
		if rerr == io.EOF {
			cut = n // the last line counts without LF
		}
		switch {
		case cut > 0 || rerr != nil:
			next := r.buffer()
			m := copy(next, buf[cut:n])
			send(buf[:cut], buf)
			buf, n = next, m
		case n > maxAccessLine:
			n, skipping = 0, true
			if skip > 0 {
				skip--
				dropped++
			} else {
				overlong++
			}
		}
		r.progress(in, o, rerr != nil)
		if rerr != nil {
			if rerr != io.EOF {
				in.err = cutShort(rerr)
			}
			r.bufs.Put(&buf)
			return
		}
	}
}

func (r *reading) buffer() []byte { return *r.bufs.Get().(*[]byte) }

// cutShort says what a reader's error means.
func cutShort(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("cut short: it ends in the middle")
	}
	return fmt.Errorf("could not be read to its end: %w", err)
}

// lastFields finds the columns in force after a block of a W3C log.
func lastFields(data []byte, f *logFormat, fields *w3cFields) *w3cFields {
	if f == nil || f.kind != formatW3C {
		return fields
	}
	mark := []byte("\n" + fieldsDirective)
	i := bytes.LastIndex(data, mark) + 1
	if i == 0 && !bytes.HasPrefix(data, mark[1:]) {
		return fields
	}
	line, _ := nextLine(data[i:])
	return parseFields(line)
}

func (r *reading) progress(in *accessInput, o *opened, end bool) {
	if r.a.o.Progress == nil || !end && time.Since(r.last) < progressEvery {
		return
	}
	r.last = time.Now()
	r.report.Input, r.report.Done = in.path, r.done+o.raw.n.Load()
	r.a.o.Progress(r.report)
}
