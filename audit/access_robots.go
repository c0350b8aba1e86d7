package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// robotsVersion is one robots.txt of one host, from a moment on.
type robotsVersion struct {
	index     int32 // among all versions of a report
	host      string
	effective int64 // ms; minTime: always
	status    int
	sha256    string
	body      []byte

	file   RobotsFile                    // 2xx only
	groups []atomic.Pointer[RobotsGroup] // by crawler, made when first asked for

	next int64 // the moment it ends
	open int64 // 5xx: from then on everything is allowed
}

type robotsKind int8

const (
	robotsRules robotsKind = iota
	robotsAllowAll
	robotsUnreachable
)

func (v *robotsVersion) kind() robotsKind {
	switch {
	case v.status >= 200 && v.status < 300:
		return robotsRules
	case v.status == 0 || v.status >= 500:
		return robotsUnreachable
	}
	return robotsAllowAll
}

// robotsHistory holds the versions of every host, oldest first; those of host "" are for every host without its own.
type robotsHistory struct {
	hosts  map[string][]*robotsVersion
	all    []*robotsVersion // by host and moment
	nobody RobotsGroup      // of an empty file: knows /robots.txt
	grace  int64
}

var versionName = regexp.MustCompile(`^(\d{8}T\d{6})Z(?:\.(\d{1,3}))?\.txt$`)

// loadRobots reads files and folders of versions, to judge so many crawlers.
func loadRobots(paths []string, judge Judge, crawlers int, limit, grace time.Duration) (*robotsHistory, error) {
	h := &robotsHistory{hosts: map[string][]*robotsVersion{}, grace: grace.Milliseconds()}
	h.nobody = judge.Parse(nil).Group([]string{"nobody"})
	for _, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !st.IsDir() {
			if err := h.addFile(path, "", minTime, 200); err != nil {
				return nil, err
			}
			continue
		}
		index := filepath.Join(path, "index.jsonl")
		if _, err := os.Stat(index); err == nil {
			err = h.addIndex(path, index)
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := h.addFolder(path); err != nil {
			return nil, err
		}
	}
	for host, vs := range h.hosts {
		slices.SortStableFunc(vs, func(a, b *robotsVersion) int { return cmp.Compare(a.effective, b.effective) })
		for i := 1; i < len(vs); i++ {
			if vs[i].effective == vs[i-1].effective {
				return nil, fmt.Errorf("two robots.txt versions of %s begin at the same moment", cmp.Or(host, "every host"))
			}
		}
		run := int64(0)
		for i, v := range vs {
			v.next = maxTime
			if i+1 < len(vs) {
				v.next = vs[i+1].effective
			}
			if v.kind() == robotsUnreachable {
				if i == 0 || vs[i-1].kind() != robotsUnreachable {
					run = v.effective
				}
				v.open = run + limit.Milliseconds()
			}
		}
		h.all = append(h.all, vs...)
	}
	slices.SortFunc(h.all, func(a, b *robotsVersion) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.effective, b.effective))
	})
	for i, v := range h.all {
		v.index = int32(i)
		if v.kind() == robotsRules {
			v.file = judge.Parse(v.body)
			v.groups = make([]atomic.Pointer[RobotsGroup], crawlers)
		}
		v.body = nil
	}
	return h, nil
}

func (h *robotsHistory) add(host string, at int64, status int, body []byte, sum string) {
	h.hosts[host] = append(h.hosts[host], &robotsVersion{host: host, effective: at, status: status, body: body, sha256: sum})
}

func (h *robotsHistory) addFile(path, host string, at int64, status int) error {
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	h.add(host, at, status, body, hex.EncodeToString(sum[:]))
	return nil
}

// addFolder reads DIR/<host>/<time>Z[.<status>].txt, and DIR/<time>Z[.<status>].txt for every host.
func (h *robotsHistory) addFolder(dir string) error {
	n := 0
	versions := func(dir, host string, entries []fs.DirEntry) error {
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() || strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".txt") {
				continue
			}
			path := filepath.Join(dir, name)
			m := versionName.FindStringSubmatch(name)
			if m == nil {
				return fmt.Errorf("%s: the name is not a time and a status, like 20260131T120000Z.txt or 20260131T120000Z.503.txt", path)
			}
			at, err := time.Parse("20060102T150405", m[1])
			if err != nil {
				return fmt.Errorf("%s: %s is not a time", path, m[1])
			}
			status := 200
			if m[2] != "" {
				status, _ = strconv.Atoi(m[2])
			}
			if !validStatus(status) {
				return fmt.Errorf("%s: status %d is not 0 or 200 to 599", path, status)
			}
			if err := h.addFile(path, host, at.UnixMilli(), status); err != nil {
				return err
			}
			n++
		}
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := versions(dir, "", entries); err != nil {
		return err
	}
	for _, e := range entries {
		sub := filepath.Join(dir, e.Name())
		if st, err := os.Stat(sub); err != nil || !st.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		in, err := os.ReadDir(sub)
		if err != nil {
			return err
		}
		host := hostName(folderHost(e.Name()))
		if err := versions(sub, host, in); err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("%s holds no robots.txt versions (HOST/20260131T120000Z.txt) and no index.jsonl", dir)
	}
	return nil
}

// folderHost undoes the `_` that stands for `:` before a port and in IPv6 addresses.
func folderHost(name string) string {
	if strings.HasPrefix(name, "[") {
		return strings.ReplaceAll(name, "_", ":")
	}
	if i := strings.LastIndexByte(name, '_'); i > 0 && isPort([]byte(":"+name[i+1:])) {
		return name[:i] + ":" + name[i+1:]
	}
	return name
}

func validStatus(s int) bool { return s == 0 || s >= 200 && s <= 599 }

// addIndex reads the archive that the gate itself keeps. A later line about the same host and moment replaces the one
// before.
func (h *robotsHistory) addIndex(dir, index string) error {
	f, err := os.Open(index)
	if err != nil {
		return err
	}
	defer f.Close()
	type line struct {
		Host      string    `json:"host"`
		Effective time.Time `json:"effective"`
		Status    int       `json:"status"`
		File      string    `json:"file"`
		SHA256    string    `json:"sha256"`
	}
	type key struct {
		host string
		at   int64
	}
	last := map[key]line{}
	var order []key
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("%s line %d: %w", index, n, err)
		}
		switch {
		case l.Effective.IsZero():
			return fmt.Errorf("%s line %d: no effective time", index, n)
		case !validStatus(l.Status):
			return fmt.Errorf("%s line %d: status %d is not 0 or 200 to 599", index, n, l.Status)
		case l.File != "" && !filepath.IsLocal(filepath.FromSlash(l.File)):
			return fmt.Errorf("%s line %d: file %q does not lie below the folder", index, n, l.File)
		case l.File == "" && l.Status >= 200 && l.Status < 300:
			return fmt.Errorf("%s line %d: status %d without a file", index, n, l.Status)
		}
		k := key{hostName(l.Host), l.Effective.UnixMilli()}
		if _, ok := last[k]; !ok {
			order = append(order, k)
		}
		last[k] = l
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", index, err)
	}
	if len(order) == 0 {
		return fmt.Errorf("%s holds no versions", index)
	}
	for _, k := range order {
		l := last[k]
		var body []byte
		if l.File != "" {
			if body, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(l.File))); err != nil {
				if !errors.Is(err, fs.ErrNotExist) || l.Status >= 200 && l.Status < 300 {
					return err
				}
			} else if sum := sha256.Sum256(body); l.SHA256 != "" && !strings.EqualFold(l.SHA256, hex.EncodeToString(sum[:])) {
				return fmt.Errorf("%s does not have the hash that %s says: it was altered", l.File, index)
			} else {
				l.SHA256 = hex.EncodeToString(sum[:])
			}
		}
		h.add(k.host, k.at, l.Status, body, strings.ToLower(l.SHA256))
	}
	return nil
}

// group is what binds a crawler in a 2xx version. An archive may hold many hosts that a log knows nothing of: a group is
// made when a request needs it.
func (v *robotsVersion) group(l *crawlerList, crawler int32) RobotsGroup {
	if g := v.groups[crawler].Load(); g != nil {
		return *g
	}
	g := v.file.Group(l.all[crawler].RobotsTokens)
	v.groups[crawler].Store(&g)
	return g
}

// onlyHost is the host of requests that name none: the one whose versions there are.
func (h *robotsHistory) onlyHost() string {
	if len(h.hosts) == 1 {
		for host := range h.hosts {
			return host
		}
	}
	return ""
}

// of gives the versions for a host.
func (h *robotsHistory) of(host string) []*robotsVersion {
	if vs, ok := h.hosts[host]; ok {
		return vs
	}
	return h.hosts[""]
}

// at is the place of the version in effect at t, -1 before the first.
func at(vs []*robotsVersion, t int64) int {
	if n := len(vs); n > 0 && vs[n-1].effective <= t {
		return n - 1
	}
	return sort.Search(len(vs), func(i int) bool { return vs[i].effective > t }) - 1
}
