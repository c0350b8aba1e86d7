package pacing

import (
	"sync/atomic"
	"time"
)

type sharing struct{}

func (s *sharing) close()     {}
func (s *sharing) away() bool { return false }

type asker struct{}

type lease struct{ gone atomic.Bool }

func (l *lease) valid(int64) bool { return true }

func (p *Pacer) kick(*shard, *entry)                                                       {}
func (p *Pacer) joinShared(s *shard, k *entry, w *waiter, now int64, full string) *Busy    { return nil }
func (p *Pacer) endShared(pt *part, o *Outcome, v verdict, after time.Duration, now int64) {}
func (p *Pacer) observeShared(r *Request, after time.Duration)                             {}
func (p *Pacer) resumeShared(key string)                                                   {}
func (p *Pacer) refresh(key string)                                                        {}
