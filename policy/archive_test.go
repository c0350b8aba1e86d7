package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func openArchive(t testing.TB, dir string, c Config) *Archive {
	t.Helper()
	a, err := OpenArchive(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func indexLines(t *testing.T, dir string) (out []Version) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var v Version
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatalf("line %q: %v", sc.Text(), err)
		}
		out = append(out, v)
	}
	return out
}

func bodiesOn(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, bodiesName), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimSuffix(d.Name(), ".txt"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHistory follows one file through its changes, a failure and a restart, and asks for each moment of its past.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, dir, Defaults())
		s := &site{}
		p := New(Defaults(), s, a, nil)
		q := query(t, "https://a.test:8443/x")
		q.Profile.StaleOnError = Deny
		q.Profile.Retries = 0
		start := time.Now()
		read := func(status int, body, class string) {
			t.Helper()
			s.answer = always(status, body)
			if v := p.Check(t.Context(), q); v.Class != class {
				t.Errorf("%v: %s, want %s", time.Since(start), v.Class, class)
			}
			pass(24 * time.Hour)
		}
		read(200, "User-agent: *\nDisallow: /x\n", ClassRuleDisallow) // day 0
		read(200, "User-agent: *\nDisallow: /x\n", ClassRuleDisallow) // 1: the same; the daily tidying leaves one line
		read(404, "", ClassNoRobots)                                  // 2
		read(503, "", ClassUnreachable)                               // 3
		read(200, "User-agent: *\nDisallow: /y\n", ClassNoMatch)      // 4
		read(403, page("g-recaptcha"), ClassChallenge)                // 5
		read(200, "User-agent: *\nDisallow: /x\n", ClassRuleDisallow) // 6: the first again

		lines := indexLines(t, dir)
		var got []string
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%v %d %s %v", l.Effective.Sub(start), l.Status, l.Class, l.SHA256 != ""))
			if l.Host != "a.test:8443" || l.URL != "https://a.test:8443/robots.txt" || l.Agent != "a" || l.Until.Sub(l.Fetched) > 24*time.Hour {
				t.Errorf("%+v", l)
			}
			if l.SHA256 != "" {
				if b, err := a.Body(l.SHA256); err != nil || hexSum(b) != l.SHA256 {
					t.Errorf("body %s: %v", l.SHA256, err)
				}
				if l.File != "bodies/"+l.SHA256[:2]+"/"+l.SHA256+".txt" {
					t.Errorf("file %s", l.File)
				}
			}
		}
		want := []string{
			"0s 200 no_match true", "48h0m0s 404 no_robots false", "72h0m0s 503 robots_unreachable false",
			"96h0m0s 200 no_match true", "120h0m0s 0 robots_challenge false", "144h0m0s 200 no_match true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("index (-want +got):\n%s", diff)
		}
		if n := len(bodiesOn(t, dir)); n != 2 {
			t.Errorf("%d bodies: each distinct one is kept once", n)
		}

		check := func(a *Archive) {
			t.Helper()
			p := New(Defaults(), &site{answer: always(200, "")}, a, nil)
			for _, c := range []struct {
				at    time.Duration
				class string
			}{
				{-time.Second, ClassNoVersion}, {0, ClassRuleDisallow}, {30 * time.Hour, ClassRuleDisallow}, {49 * time.Hour, ClassNoRobots},
				{72*time.Hour + time.Second, ClassUnreachable}, {100 * time.Hour, ClassNoMatch}, {121 * time.Hour, ClassChallenge},
				{150 * time.Hour, ClassRuleDisallow},
			} {
				q := q
				q.At = start.Add(c.at)
				v := p.Check(t.Context(), q)
				if v.Class != c.class || v.Allowed && v.Reason != ReasonOK {
					t.Errorf("%v: %s, want %s (%v)", c.at, v.Class, c.class, v.Cause)
				}
			}
			q := q
			q.At = start.Add(500 * time.Hour)
			if v := p.Check(t.Context(), q); len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "not in use") {
				t.Errorf("long after: %q", v.Notes)
			}
			q.Agent = "another"
			if v := p.Check(t.Context(), q); v.Class != ClassNoVersion || v.Allowed {
				t.Errorf("another agent: %s", v.Class)
			}
		}
		check(a)
		if vs := a.Versions("https://a.test:8443/robots.txt", "a"); len(vs) != 6 || vs[5].SHA256 != vs[0].SHA256 {
			t.Errorf("%d versions", len(vs))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b := openArchive(t, dir, Defaults())
		check(b)
		if err := b.tidy(time.Now()); err != nil {
			t.Fatal(err)
		}
		check(b)
		if n := len(indexLines(t, dir)); n != 6 {
			t.Errorf("%d lines after tidying, want 6: one a version", n)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, dir, Defaults())
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n", "ETag", `"1"`, "Cache-Control", "max-age=3600")}
		q := query(t, "https://a.test/no")
		q.Profile.Retries = 0
		New(Defaults(), s, a, nil).Check(t.Context(), q)
		again := func(q Query) Verdict {
			t.Helper()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = openArchive(t, dir, Defaults())
			return New(Defaults(), s, a, nil).Check(t.Context(), q)
		}
		pass(30 * time.Minute)
		v := again(q)
		wants(t, v, false, ReasonDisallow, ClassRuleDisallow)
		if s.count() != 1 || v.Line != 2 {
			t.Errorf("%d fetches, line %d", s.count(), v.Line)
		}
		// The token is looked for in the body, not in what was compiled before.
		other := q
		other.Token = "Other"
		wants(t, again(other), false, ReasonDisallow, ClassRuleDisallow)
		third := q
		third.CacheOnly = true
		wants(t, again(third), false, ReasonDisallow, ClassRuleDisallow)
		if s.count() != 1 {
			t.Error("fetched")
		}
		// Not fresh: asked with the validator, confirmed without a body.
		pass(time.Hour)
		s.answer = func(_ int, r FetchRequest) (*FetchResponse, error) {
			if r.Header.Get("If-None-Match") != `"1"` {
				t.Error("no validator after the restart")
			}
			return reply(304, "", "Cache-Control", "max-age=60"), nil
		}
		wants(t, again(q), false, ReasonDisallow, ClassRuleDisallow)
		// A failure is remembered with its count and with the copy that stands in for it.
		pass(time.Hour)
		s.answer = inTurn(503)
		if v := again(q); v.Class != ClassRuleDisallow || !v.Stale {
			t.Errorf("%+v", v)
		}
		n := s.count()
		strict := q
		strict.Profile.StaleOnError = Deny
		if v := again(strict); v.Class != ClassUnreachable || v.RetryAfter != time.Minute || s.count() != n {
			t.Errorf("%+v after %d fetches", v, s.count()-n)
		}
		pass(time.Minute)
		if v := again(strict); v.RetryAfter != 2*time.Minute {
			t.Errorf("the restart forgot the first failure: %v", v.RetryAfter)
		}
		if v := again(q); v.Class != ClassRuleDisallow || !v.Stale {
			t.Errorf("stale copy lost in the restart: %+v", v)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClockSetBack: what was read at a time that has not come yet is of unknown age. It is read again, and neither it nor
// a failure of then holds for longer than a clock that runs right would have it.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = "User-agent: *\nDisallow: /no\n"
		then := time.Now().Add(100 * time.Hour).UTC()
		q := query(t, "https://a.test/no")
		q.Profile.Retries = 0
		good := Version{
			Host: "a.test", URL: "https://a.test/robots.txt", Agent: q.Agent, Class: ClassNoMatch, Status: 200, HTTPStatus: 200,
			Effective: then, Fetched: then, Until: then.Add(maxAge), SHA256: hexSum([]byte(body)), File: bodyFile(hexSum([]byte(body))),
		}
		fail := Version{
			Host: "a.test", URL: "https://a.test/robots.txt", Agent: q.Agent, Class: ClassUnreachable, Reason: ReasonUnreadable,
			Effective: then, Fetched: then, Until: then.Add(time.Minute), Failures: 1, Good: &good,
		}
		for _, c := range []struct {
			stored Version
			status int
			class  string
		}{
			{good, 404, ClassNoRobots},
			{good, 200, ClassRuleDisallow},
			{good, 503, ClassUnreachable}, // a copy of unknown age stands in for nothing
			{fail, 200, ClassRuleDisallow},
		} {
			a := openArchive(t, t.TempDir(), Defaults())
			if err := a.store(&good, []byte(body)); err != nil {
				t.Fatal(err)
			}
			if err := a.store(&c.stored, []byte(body)); err != nil {
				t.Fatal(err)
			}
			s := &site{answer: always(c.status, body)}
			p := New(Defaults(), s, a, nil)
			cached := q
			cached.CacheOnly = true
			if v := p.Check(t.Context(), cached); v.Class != ClassNotConsulted {
				t.Errorf("%s, cache only: %s", c.stored.Class, v.Class)
			}
			v := p.Check(t.Context(), q)
			if v.Class != c.class || s.count() != 1 {
				t.Errorf("%s, then %d: %s after %d fetches", c.stored.Class, c.status, v.Class, s.count())
			}
			if v := p.Check(t.Context(), q); v.Class != c.class || s.count() != 1 {
				t.Errorf("%s, then %d, asked again: %s after %d fetches", c.stored.Class, c.status, v.Class, s.count())
			}
			past := q
			past.At = time.Now()
			if v := p.Check(t.Context(), past); v.Class != c.class {
				t.Errorf("%s, then %d: the archive says %s of now", c.stored.Class, c.status, v.Class)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestEvictedIsCompiledAgain: with an archive, what memory has no room for is not asked for again.
func TestEvictedIsCompiledAgain(t *testing.T) {
	s := &site{answer: always(200, "User-agent: *\n"+strings.Repeat("Disallow: /a-rather-long-path/with-segments\nDisallow: /b*c\n", 200))}
	c := Defaults()
	c.CacheBytes = 1 << 20
	p := New(c, s, openArchive(t, t.TempDir(), c), nil)
	for range 2 {
		for i := range 100 {
			wants(t, p.Check(t.Context(), query(t, fmt.Sprintf("https://h%d.test/bc", i))), false, ReasonDisallow, ClassRuleDisallow)
		}
	}
	if n := s.count(); n != 100 {
		t.Errorf("%d fetches", n)
	}
	if st := p.Stats(); st.Entries == 100 {
		t.Error("nothing was evicted, so nothing was tested")
	}
}

func TestTruncatedBodyStaysTruncated(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, dir, Defaults())
	s := &site{answer: always(200, "User-agent: *\nDisallow: /x\n"+strings.Repeat("# pad pad\n", 51200)+"Disallow: /")}
	q := query(t, "https://a.test/y")
	for range 2 {
		v := New(Defaults(), s, a, nil).Check(t.Context(), q)
		wants(t, v, true, ReasonOK, ClassNoMatch)
		if !v.Truncated {
			t.Error("not marked")
		}
	}
	if s.count() != 1 {
		t.Error("fetched again")
	}
}

// TestCrash mends what a crash can leave, and refuses what damage leaves.
func TestCrash(t *testing.T) {
	fill := func(t *testing.T) (dir string, v Version) {
		dir = t.TempDir()
		a := openArchive(t, dir, Defaults())
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n")}
		for _, h := range []string{"a", "b"} {
			New(Defaults(), s, a, nil).Check(t.Context(), query(t, "https://"+h+".test/"))
		}
		v, ok := a.Latest("https://b.test/robots.txt", "a")
		if !ok {
			t.Fatal("not stored")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return dir, v
	}
	reopened := func(t *testing.T, dir string) (v Verdict, fetches int) {
		t.Helper()
		s := &site{answer: always(200, "User-agent: *\nDisallow: /new\n")}
		v = New(Defaults(), s, openArchive(t, dir, Defaults()), nil).Check(t.Context(), query(t, "https://b.test/no"))
		return v, s.count()
	}
	t.Run("line cut off", func(t *testing.T) {
		dir, _ := fill(t)
		path := filepath.Join(dir, indexName)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for cut := 1; cut < 200; cut += 7 {
			if err := os.WriteFile(path, append(raw, raw[:cut]...), 0o600); err != nil {
				t.Fatal(err)
			}
			if v, n := reopened(t, dir); v.Class != ClassRuleDisallow || n != 0 {
				t.Fatalf("cut at %d: %s after %d fetches", cut, v.Class, n)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != string(raw) {
				t.Fatalf("cut at %d: not mended", cut)
			}
		}
	})
	t.Run("damaged copy of a failure", func(t *testing.T) {
		for _, sha := range []string{`"x"`, `""`, `"../../../../etc/passwd"`} {
			dir, v := fill(t)
			a := openArchive(t, dir, Defaults())
			good := v
			good.SHA256, good.File = "SHA", ""
			now := time.Now().UTC()
			fail := Version{
				Host: v.Host, URL: v.URL, Agent: v.Agent, Class: ClassUnreachable, Reason: ReasonUnreadable,
				Effective: now, Fetched: now, Until: now.Add(time.Minute), Failures: 1, Good: &good,
			}
			line, err := json.Marshal(&fail)
			if err != nil {
				t.Fatal(err)
			}
			line = []byte(strings.Replace(string(line), `"SHA"`, sha, 1) + "\n")
			path := filepath.Join(dir, indexName)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(a.Close(), os.WriteFile(path, append(raw, line...), 0o600)); err != nil {
				t.Fatal(err)
			}
			// The line says nothing that can be used, and the file is read again.
			if v, n := reopened(t, dir); v.Class != ClassNoMatch || n != 1 {
				t.Errorf("%s: %s after %d fetches", sha, v.Class, n)
			}
		}
	})
	t.Run("damaged line", func(t *testing.T) {
		dir, _ := fill(t)
		path := filepath.Join(dir, indexName)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append([]byte("\x00\x00{\"url\":5}\n"), raw...), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, n := reopened(t, dir); v.Class != ClassRuleDisallow || n != 0 {
			t.Errorf("%s after %d fetches", v.Class, n)
		}
	})
	t.Run("body gone", func(t *testing.T) {
		dir, v := fill(t)
		if err := os.Remove(filepath.Join(dir, v.File)); err != nil {
			t.Fatal(err)
		}
		if v, n := reopened(t, dir); v.Class != ClassNoMatch || n != 1 {
			t.Errorf("%s after %d fetches", v.Class, n)
		}
	})
	t.Run("body damaged", func(t *testing.T) {
		dir, v := fill(t)
		if err := os.WriteFile(filepath.Join(dir, v.File), []byte("User-agent: *\nAllow: /no!\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, n := reopened(t, dir); v.Class != ClassNoMatch || n != 1 {
			t.Errorf("%s after %d fetches", v.Class, n)
		}
	})
	t.Run("leftovers", func(t *testing.T) {
		dir, v := fill(t)
		left := []string{filepath.Join(dir, tmpPrefix+"1"), filepath.Join(filepath.Dir(filepath.Join(dir, v.File)), tmpPrefix+"2")}
		for _, f := range left {
			if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := openArchive(t, dir, Defaults())
		if err := a.tidy(time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			if _, err := os.Stat(f); !os.IsNotExist(err) {
				t.Errorf("%s is left", f)
			}
		}
		if _, err := a.Body(v.SHA256); err != nil {
			t.Error(err)
		}
	})
	t.Run("a name that leads out", func(t *testing.T) {
		dir, v := fill(t)
		v.File, v.SHA256 = "../../secret", strings.Repeat("a", 64)
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, indexName), append(line, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, n := reopened(t, dir); v.Class != ClassNoMatch || n != 1 {
			t.Errorf("%s after %d fetches", v.Class, n)
		}
	})
}

// TestKilled kills a process that stores versions: what it said is stored must be there.
func TestKilled(t *testing.T) {
	const variable = "ROBOTS_ARCHIVE_TEST_DIR"
	if dir := os.Getenv(variable); dir != "" {
		a, err := OpenArchive(dir, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			body := fmt.Appendf(nil, "User-agent: *\nDisallow: /%d\n", i)
			v := &Version{
				Host: "a.test", URL: fmt.Sprintf("https://h%d.test/robots.txt", i), Agent: "a", Class: ClassNoMatch, Status: 200, HTTPStatus: 200,
				Effective: time.Now().UTC(), Fetched: time.Now().UTC(), Until: time.Now().UTC(), SHA256: hexSum(body), File: bodyFile(hexSum(body)), Bytes: int64(len(body)),
			}
			if err := a.store(v, body); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("stored %s %s\n", v.URL, v.SHA256)
		}
	}
	for round := range 4 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), variable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stored := map[string]string{}
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if f := strings.Fields(sc.Text()); len(f) == 3 && f[0] == "stored" && len(f[2]) == 64 {
				stored[f[1]] = f[2]
			}
			if len(stored) == 20+13*round {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if len(stored) < 20 {
			t.Fatalf("only %d were stored", len(stored))
		}
		a := openArchive(t, dir, Defaults())
		for url, sha := range stored {
			if v, ok := a.Latest(url, "a"); !ok || v.SHA256 != sha {
				t.Errorf("%s lost", url)
			}
			if _, err := a.Body(sha); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestArchiveAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Defaults()
		c.ArchiveMaxAge = 10 * 24 * time.Hour
		dir := t.TempDir()
		a := openArchive(t, dir, c)
		s := &site{}
		p := New(c, s, a, nil)
		q := query(t, "https://a.test/x")
		start := time.Now()
		for day := range 30 {
			s.answer = always(200, fmt.Sprintf("User-agent: *\nDisallow: /%d\n", day))
			wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
			pass(24 * time.Hour)
		}
		n := len(indexLines(t, dir))
		if n < 10 || n > 13 || len(bodiesOn(t, dir)) != n {
			t.Errorf("%d versions, %d bodies", n, len(bodiesOn(t, dir)))
		}
		q.At = start.Add(5 * 24 * time.Hour)
		if v := p.Check(t.Context(), q); v.Class != ClassNoVersion {
			t.Errorf("day 5: %s", v.Class)
		}
		q.At = start.Add(25*24*time.Hour + time.Hour)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestArchiveSize(t *testing.T) {
	c := Defaults()
	c.ArchiveMaxBytes = 1 << 20
	dir := t.TempDir()
	a := openArchive(t, dir, c)
	s := &site{}
	p := New(c, s, a, nil)
	for i := range 40 {
		s.answer = always(200, fmt.Sprintf("User-agent: *\nDisallow: /%d\n", i)+strings.Repeat("#", 50_000))
		wants(t, p.Check(t.Context(), query(t, fmt.Sprintf("https://h%d.test/x", i))), true, ReasonOK, ClassNoMatch)
		if i%4 != 3 {
			continue
		}
		total := a.size
		for _, sha := range bodiesOn(t, dir) {
			b, err := a.Body(sha)
			if err != nil {
				t.Fatal(err)
			}
			total += int64(len(b))
		}
		if total > c.ArchiveMaxBytes {
			t.Fatalf("%d bytes after %d", total, i+1)
		}
		if a.bodies+a.size != total {
			t.Fatalf("counted %d, are %d", a.bodies+a.size, total)
		}
	}
	lines := indexLines(t, dir)
	if n := len(lines); n < 10 || lines[n-1].Host != "h39.test" {
		t.Errorf("%d versions, the last of %s", n, lines[n-1].Host)
	}
}

// TestArchiveCannotStore: nothing is judged by a file that is not on disk, the site is not asked again meanwhile, and
// all goes on when the disk does.
func TestArchiveCannotStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := openArchive(t, dir, Defaults())
		bodies := filepath.Join(dir, bodiesName)
		if err := os.Remove(bodies); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(bodies, nil, 0o600); err != nil { // a file where the folder should be
			t.Fatal(err)
		}
		s := &site{answer: always(200, "User-agent: *\nDisallow: /no\n")}
		p := New(Defaults(), s, a, nil)
		q := query(t, "https://a.test/yes")
		for range 3 {
			v := p.Check(t.Context(), q)
			wants(t, v, false, ReasonAudit, ClassNotArchived)
			if v.RetryAfter <= 0 {
				t.Error("no time to come back")
			}
			wants(t, p.Check(t.Context(), query(t, "https://b.test/yes")), false, ReasonAudit, ClassNotArchived)
			files := q
			files.CacheOnly = true
			wants(t, p.Check(t.Context(), files), false, ReasonAudit, ClassNotArchived)
			pass(time.Second)
		}
		if s.count() != 1 {
			t.Errorf("asked %d times", s.count())
		}
		pass(10 * time.Second)
		wants(t, p.Check(t.Context(), q), false, ReasonAudit, ClassNotArchived)
		if err := os.Remove(bodies); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		wants(t, p.Check(t.Context(), q), true, ReasonOK, ClassNoMatch)
		wants(t, p.Check(t.Context(), query(t, "https://b.test/no")), false, ReasonDisallow, ClassRuleDisallow)
		if s.count() != 2 || len(indexLines(t, dir)) != 2 {
			t.Errorf("asked %d times, %d lines", s.count(), len(indexLines(t, dir)))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClosedArchive(t *testing.T) {
	a := openArchive(t, t.TempDir(), Defaults())
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, ok := a.Latest("https://a.test/robots.txt", "a"); ok {
		t.Error("found something")
	}
	p := New(Defaults(), &site{answer: inTurn(200)}, a, nil)
	wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), false, ReasonAudit, ClassNotArchived)
	if _, err := a.Body("../x"); err == nil {
		t.Error("a name that is no hash")
	}
	if _, err := OpenArchive(filepath.Join("/dev/null", "x"), Defaults()); err == nil {
		t.Error("opened under a file")
	}
}

func TestReload(t *testing.T) {
	s := &site{answer: always(403, "", "x-house", "no")}
	c := Defaults()
	p := New(c, s, openArchive(t, t.TempDir(), c), nil)
	wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), true, ReasonOK, ClassNoRobots)
	c.ChallengeMarkers = []ChallengeMarker{{Vendor: "House", Header: "x-house"}}
	c.CacheBytes, c.ArchiveMaxAge = 1<<20, 48*time.Hour
	p.Reload(c)
	wants(t, p.Check(t.Context(), query(t, "https://a.test/x")), true, ReasonOK, ClassNoRobots)
	wants(t, p.Check(t.Context(), query(t, "https://b.test/x")), false, ReasonChallenge, ClassChallenge)
	if p.cache.max != 1<<20 || p.archive.maxAge != 48*time.Hour {
		t.Error("bounds unchanged")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkOpenArchive: an index of 100,000 lines must not hold up a start.
func BenchmarkOpenArchive(b *testing.B) {
	dir := b.TempDir()
	a := openArchive(b, dir, Defaults())
	v := &Version{
		Host: "a.test", Agent: "a", Class: ClassNoMatch, Status: 200, HTTPStatus: 200, Effective: time.Now().UTC(), Fetched: time.Now().UTC(),
		Until: time.Now().UTC(), SHA256: strings.Repeat("ab", 32), Bytes: 1000, Final: "https://a.test/robots.txt", ETag: `"abc"`,
	}
	v.File = bodyFile(v.SHA256)
	var buf []byte
	for i := range 100_000 {
		v.URL = fmt.Sprintf("https://host-%d.test/robots.txt", i)
		line, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		buf = append(append(buf, line...), '\n')
	}
	if _, err := a.index.WriteAt(buf, 0); err != nil {
		b.Fatal(err)
	}
	done := cpu(b)
	for b.Loop() {
		if err := a.load(); err != nil {
			b.Fatal(err)
		}
	}
	done()
}

// TestArchiveAfterAFailure: a file that comes back unchanged after a failure begins anew, so that a later moment is
// judged by it and not by the failure.
func TestArchiveAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := openArchive(t, t.TempDir(), Defaults())
		s := &site{answer: always(200, "User-agent: *\nDisallow: /x\n")}
		p := New(Defaults(), s, a, nil)
		q := query(t, "https://a.test/x")
		q.Profile.StaleOnError, q.Profile.Retries = Deny, 0
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		pass(25 * time.Hour)
		s.answer = inTurn(503)
		if v := p.Check(t.Context(), q); v.Class != ClassUnreachable {
			t.Fatalf("%+v", v)
		}
		down := time.Now()
		pass(2 * time.Hour)
		s.answer = always(200, "User-agent: *\nDisallow: /x\n")
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		pass(time.Hour)
		q.At = time.Now()
		wants(t, p.Check(t.Context(), q), false, ReasonDisallow, ClassRuleDisallow)
		q.At = down.Add(time.Hour)
		if v := p.Check(t.Context(), q); v.Class != ClassUnreachable {
			t.Errorf("while it could not be read: %s", v.Class)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
