package proxy

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AnswersConfig bounds the store of answers.
type AnswersConfig struct {
	MaxSize   int64 // bytes on disk, heads and bodies
	FullEvery int   // one 304 in so many is followed by a request in full; 0: none
	Lastmod   bool  // what a sitemap says has not changed is given without asking the site
}

// Answers keeps whole answers of sites on disk, for one gate, so that the site can be asked whether a page has changed
// instead of for the page. It is a store for validation: nothing in it is given out before the site has said that it
// still holds, by a 304 or, with Lastmod, by its sitemap. It is bounded, and what was used longest ago goes first.
//
// An answer is two files of one name, NAME.body and NAME.head, both written aside and renamed, the head last. A body is
// never changed. Nothing waits for the disk's own caches: after a crash a file may be torn, and then its digest tells.
type Answers struct {
	dir     string
	log     *slog.Logger
	max     int64
	largest int64 // of one body
	lastmod bool

	mu     sync.Mutex
	byURL  map[[16]byte][]*answerEntry
	recent *list.List // of *answerEntry, the last used in front
	size   int64      // of the files, and of bodies that are being written
	gen    uint64     // the last name given
	full   picker
	odd    map[string]struct{} // sites whose 304 named another validator than they were asked about
	warned time.Time           // the last word about a fault
}

// answerEntry is an answer in the index. Its name says what it is looked up by, so that a start reads no file.
type answerEntry struct {
	url   [16]byte // digest of the URL
	owner [8]byte  // of client and agent
	key   [8]byte  // of the fields it varies by
	gen   uint64
	size  int64
	elem  *list.Element
	held  time.Time // when the site last said that it holds, in this run
}

const (
	block        = 4 << 10 // what a file takes on disk comes in these
	maxVariants  = 8       // of one URL and owner
	largestShare = 8       // an answer takes at most this part of the store
	maxOdd       = 10_000
	faultsEvery  = time.Minute // the log hears of faults of the disk no more often
)

// OpenAnswers opens the store in a folder, which it makes. Files that do not belong together are removed.
func OpenAnswers(dir string, c AnswersConfig, log *slog.Logger) (*Answers, error) {
	s := &Answers{dir: dir, log: log, max: c.MaxSize, largest: c.MaxSize / largestShare, lastmod: c.Lastmod, byURL: map[[16]byte][]*answerEntry{},
		recent: list.New(), odd: map[string]struct{}{}, full: newPicker(c.FullEvery, rand.Uint64())}
	if err := os.RemoveAll(s.aside("")); err != nil {
		return nil, fmt.Errorf("kept answers: %w", err)
	}
	if err := os.MkdirAll(s.aside(""), 0o700); err != nil {
		return nil, fmt.Errorf("kept answers: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("kept answers: %w", err)
	}
	s.mu.Lock()
	gone := s.shrink()
	s.mu.Unlock()
	s.unlink(gone)
	return s, nil
}

// load builds the index from the files' names, oldest use first.
func (s *Answers) load() error {
	type found struct {
		e    *answerEntry
		used time.Time
		head bool
		body bool
	}
	var all []*found
	folders, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if !folder.IsDir() || len(folder.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(filepath.Join(s.dir, folder.Name()))
		if err != nil {
			return err
		}
		byName := map[string]*found{}
		for _, file := range files {
			name, ext, _ := strings.Cut(file.Name(), ".")
			e, ok := parseAnswerName(name)
			info, err := file.Info()
			if !ok || err != nil || ext != "head" && ext != "body" {
				continue
			}
			f := byName[name]
			if f == nil {
				f = &found{e: e}
				byName[name] = f
			}
			e = f.e
			e.size += onDisk(info.Size())
			if ext == "head" {
				f.head, f.used = true, info.ModTime()
			} else {
				f.body = true
			}
		}
		for _, f := range byName {
			if !f.head || !f.body { // the end of the program came between the two
				s.unlink([]*answerEntry{f.e})
				continue
			}
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *found) int { return a.used.Compare(b.used) })
	for _, f := range all {
		s.unlink(s.add(f.e))
		s.size += f.e.size
		s.gen = max(s.gen, f.e.gen)
	}
	return nil
}

func onDisk(n int64) int64 { return (n + block - 1) / block * block }

// name is the name of an entry's files, without their ending.
func (e *answerEntry) name() string {
	return hex.EncodeToString(e.url[:]) + "-" + hex.EncodeToString(e.owner[:]) + "-" + hex.EncodeToString(e.key[:]) + "-" + strconv.FormatUint(e.gen, 16)
}

func parseAnswerName(name string) (*answerEntry, bool) {
	p := strings.Split(name, "-")
	if len(p) != 4 {
		return nil, false
	}
	e := &answerEntry{}
	gen, err := strconv.ParseUint(p[3], 16, 64)
	e.gen = gen
	return e, err == nil && unhex(e.url[:], p[0]) == nil && unhex(e.owner[:], p[1]) == nil && unhex(e.key[:], p[2]) == nil && e.name() == name
}

func (s *Answers) path(e *answerEntry, ext string) string {
	name := e.name()
	return filepath.Join(s.dir, name[:2], name+ext)
}

// aside is where files are written before they get their name.
func (s *Answers) aside(name string) string { return filepath.Join(s.dir, "aside", name) }

func urlKey(url string) [16]byte {
	sum := sha256.Sum256([]byte(url))
	return [16]byte(sum[:16])
}

func ownerKey(owner string) [8]byte {
	sum := sha256.Sum256([]byte(owner))
	return [8]byte(sum[:8])
}

// add puts an entry in front, and takes out the one that it replaces and variants beyond the bound. The caller holds the
// lock (or nobody else is there yet), adds the size, and unlinks what is returned.
func (s *Answers) add(e *answerEntry) (gone []*answerEntry) {
	variants := 1
	for _, old := range slices.Backward(s.byURL[e.url]) {
		if old.owner != e.owner {
			continue
		}
		if variants++; old.key == e.key || variants > maxVariants {
			s.take(old)
			gone = append(gone, old)
		}
	}
	s.byURL[e.url] = append(s.byURL[e.url], e)
	e.elem = s.recent.PushFront(e)
	return gone
}

// take takes an entry out of the index and reports whether it was there. The caller holds the lock.
func (s *Answers) take(e *answerEntry) bool {
	if e.elem == nil {
		return false
	}
	s.recent.Remove(e.elem)
	e.elem = nil
	list := s.byURL[e.url]
	if n := slices.Index(list, e); n >= 0 {
		list = slices.Delete(list, n, n+1)
	}
	if len(list) == 0 {
		delete(s.byURL, e.url)
	} else {
		s.byURL[e.url] = list
	}
	s.size -= e.size
	return true
}

// shrink takes out what was used longest ago until the rest fits. The caller holds the lock and unlinks.
func (s *Answers) shrink() (gone []*answerEntry) {
	for s.size > s.max && s.recent.Len() > 0 {
		e := s.recent.Back().Value.(*answerEntry)
		s.take(e)
		gone = append(gone, e)
	}
	return gone
}

// unlink removes files of entries that are out of the index: no other entry ever gets their names.
func (s *Answers) unlink(gone []*answerEntry) {
	for _, e := range gone {
		for _, ext := range []string{".head", ".body"} {
			if err := os.Remove(s.path(e, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.fault("kept answer not removed", err)
			}
		}
	}
}

// drop removes entries.
func (s *Answers) drop(list ...*answerEntry) {
	s.mu.Lock()
	list = slices.DeleteFunc(list, func(e *answerEntry) bool { return !s.take(e) })
	s.mu.Unlock()
	s.unlink(list)
}

// forget removes all that is kept of a URL, for whichever client: a request has changed it (RFC 9111 4.4).
func (s *Answers) forget(url string) {
	s.mu.Lock()
	list := slices.Clone(s.byURL[urlKey(url)])
	s.mu.Unlock()
	s.drop(list...)
}

// reserve counts bytes that are being written, and makes room for them.
func (s *Answers) reserve(n int64) {
	s.mu.Lock()
	s.size += n
	var gone []*answerEntry
	if n > 0 {
		gone = s.shrink()
	}
	s.mu.Unlock()
	s.unlink(gone)
}

// distrust notes a site whose 304s cannot be believed; trusts tells whether there is no such note.
func (s *Answers) distrust(site string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.odd) >= maxOdd {
		clear(s.odd)
	}
	s.odd[site] = struct{}{}
}

func (s *Answers) trusts(site string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, odd := s.odd[site]
	return !odd
}

// fault tells of a fault of the disk. The request goes on without the store, so once in a while is enough.
func (s *Answers) fault(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.warned) >= faultsEvery {
		s.warned = now
		s.log.Warn(what+"; pages are asked for in full meanwhile", "error", err.Error())
	}
}

// Size tells how many answers are kept, and the bytes that they take on disk.
func (s *Answers) Size() (answers int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.Len(), s.size
}

// candidates are the entries that may answer a request, the last kept first.
func (s *Answers) candidates(url, owner string) (list []*answerEntry) {
	of := ownerKey(owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.byURL[urlKey(url)]) {
		if e.owner == of {
			list = append(list, e)
		}
	}
	return list
}

// touch notes the use of an entry.
func (s *Answers) touch(e *answerEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.elem != nil {
		s.recent.MoveToFront(e.elem)
	}
}

// confirmed notes that the site has said that an answer holds.
func (s *Answers) confirmed(e *answerEntry, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.held = at
}

// heldAt tells when the site last said that a kept answer holds, as far as it is known.
func (s *Answers) heldAt(a *keptAnswer) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.e.held.After(a.head.came) {
		return a.e.held
	}
	return a.head.came
}

// find gives what is kept of a URL for a request that leaves, with its body open and, unless it is large, read through
// once: a copy that is damaged makes an unconditional request and not a broken answer. nil: there is none.
func (s *Answers) find(target, owner string, request http.Header) *keptAnswer {
	matches := func(h *answerHead) bool {
		return h.url == target && h.owner == owner && h.key == varyKey(h.vary, request)
	}
	for _, e := range s.candidates(target, owner) {
		a, err := s.open(e, matches)
		switch {
		case errors.Is(err, errOtherAnswer) || errors.Is(err, fs.ErrNotExist) && s.replaced(e):
		case err != nil:
			s.fault("kept answer not usable", err)
			s.drop(e)
		default:
			s.touch(e)
			return a
		}
	}
	return nil
}

// ForgetHosts removes all that is kept of hosts, by their names: their owners asked for it. It reads every head, since
// files are not named by host.
func (s *Answers) ForgetHosts(covers func(host string) bool) {
	s.mu.Lock()
	all := make([]*answerEntry, 0, s.recent.Len())
	for _, list := range s.byURL {
		all = append(all, list...)
	}
	s.mu.Unlock()
	var gone []*answerEntry
	for _, e := range all {
		head, err := s.readHead(e)
		if err != nil { // of whatever host: it is no answer any more
			gone = append(gone, e)
			continue
		}
		if u, err := url.Parse(head.url); err != nil || covers(strings.TrimSuffix(u.Host, ":"+u.Port())) {
			gone = append(gone, e)
		}
	}
	s.drop(gone...)
}

// replaced tells whether an entry was taken out.
func (s *Answers) replaced(e *answerEntry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.elem == nil
}

// picker chooses one of every n, at a place in each n that cannot be told before: pages that come round in the same
// order would else always be the same ones.
type picker struct {
	n, at, chosen int
	rng           *rand.Rand
}

func newPicker(n int, seed uint64) picker {
	p := picker{n: n, rng: rand.New(rand.NewPCG(seed, 0))}
	if n > 0 {
		p.chosen = p.rng.IntN(n)
	}
	return p
}

func (p *picker) next() bool {
	if p.n <= 0 {
		return false
	}
	hit := p.at == p.chosen
	if p.at++; p.at == p.n {
		p.at, p.chosen = 0, p.rng.IntN(p.n)
	}
	return hit
}

// pickFull tells whether the page that a 304 has just come for is to be asked for in full at its next visit.
func (s *Answers) pickFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full.next()
}
