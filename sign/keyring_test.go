package sign

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func testKeyring(t testing.TB) Keyring {
	t.Helper()
	return Keyring{StateDir: t.TempDir(), Config: Defaults(), Publish: PublishDefaults(), Agents: []Agent{{Name: "example", SignatureAgent: goodAgent}}}
}

func states(t *testing.T, k Keyring) string {
	t.Helper()
	all, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, i := range all {
		s = append(s, i.State)
	}
	return strings.Join(s, " ")
}

// TestRotation walks a key through its life and meets every refusal on the way.
func TestRotation(t *testing.T) {
	k := testKeyring(t)
	synctest.Test(t, func(t *testing.T) {
		first, err := k.New("example")
		if err != nil || first.State != StateActive {
			t.Fatal(first, err)
		}
		if st, err := os.Stat(first.File); err != nil || st.Mode().Perm() != 0o600 || filepath.Base(first.File) != first.ID+".pem" {
			t.Errorf("%v, %v", st, err)
		}
		if _, _, err := k.Rotate("", "", false); err == nil {
			t.Error("rotated without a second key")
		}
		if _, err := k.Retire("", first.ID, true); err == nil || !strings.Contains(err.Error(), "active") {
			t.Errorf("the active key retired: %v", err)
		}
		second, err := k.New("")
		if err != nil || second.State != StatePublished {
			t.Fatal(second, err)
		}
		wait := PublishDefaults().MaxAge + 24*time.Hour
		var early *TooEarlyError
		if _, _, err := k.Rotate("", "", false); !errors.As(err, &early) || !early.Until.Equal(second.Since.Add(wait)) || !second.NextAt.Equal(early.Until) {
			t.Errorf("rotate at once: %v", err)
		}
		time.Sleep(wait - time.Second)
		if _, _, err := k.Rotate("", "", false); !errors.As(err, &early) {
			t.Errorf("rotate a second early: %v", err)
		}
		time.Sleep(time.Second)
		active, retiring, err := k.Rotate("", "", false)
		if err != nil || active.ID != second.ID || retiring.ID != first.ID || active.State != StateActive || retiring.State != StateRetiring {
			t.Fatal(active, retiring, err)
		}
		if s := states(t, k); s != "retiring active" {
			t.Error(s)
		}
		if _, _, err := k.Rotate("", second.ID, true); err == nil || !strings.Contains(err.Error(), "active already") {
			t.Error(err)
		}
		wait = Defaults().Lifetime + PublishDefaults().MaxAge + 24*time.Hour
		if _, err := k.Retire("", "", false); !errors.As(err, &early) || !early.Until.Equal(retiring.Since.Add(wait)) {
			t.Errorf("retire at once: %v", err)
		}
		// Back and forth is possible at any time: both have been published all along.
		if _, _, err := k.Rotate("", first.ID, false); err != nil {
			t.Error(err)
		}
		if _, _, err := k.Rotate("", second.ID, false); err != nil {
			t.Error(err)
		}
		time.Sleep(wait)
		gone, err := k.Retire("", "", false)
		if err != nil || gone.ID != first.ID {
			t.Fatal(gone, err)
		}
		if _, err := os.Stat(first.File); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
		if s := states(t, k); s != StateActive {
			t.Error(s)
		}
	})
}

func TestRotationInEmergency(t *testing.T) {
	k := testKeyring(t)
	leaked, err := k.New("")
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := k.New("")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Rotate("", "", true); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Retire("", leaked.ID, true); err != nil {
		t.Fatal(err)
	}
	all, err := k.List()
	if err != nil || len(all) != 1 || all[0].ID != fresh.ID || all[0].State != StateActive {
		t.Error(all, err)
	}
}

func TestRotationNames(t *testing.T) {
	k := testKeyring(t)
	for range 3 {
		if _, err := k.New(""); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := k.Rotate("", "", true); err == nil || !strings.Contains(err.Error(), "more than one") {
		t.Error(err)
	}
	if _, _, err := k.Rotate("", "nobody", true); err == nil || !strings.Contains(err.Error(), "no key nobody") {
		t.Error(err)
	}
	if _, err := k.New("other"); err == nil || !strings.Contains(err.Error(), `no agent "other"`) {
		t.Error(err)
	}
	all, _ := k.List()
	if _, err := k.Retire("", all[2].ID, false); err != nil {
		t.Errorf("a key that never signed can go at once: %v", err)
	}
	k.Agents = append(k.Agents, Agent{Name: "second"})
	if _, err := k.New(""); err == nil || !strings.Contains(err.Error(), "name one") {
		t.Error(err)
	}
	k.Agents[1].Name = "../up"
	if _, err := k.New("../up"); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Error(err)
	}
}

func TestRotationOfNamedFiles(t *testing.T) {
	k := testKeyring(t)
	dir := t.TempDir()
	made, err := NewFile(filepath.Join(dir, "a.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewFile(filepath.Join(dir, "a.pem")); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file was overwritten: %v", err)
	}
	other, err := NewFile(filepath.Join(dir, "b.pem"))
	if err != nil {
		t.Fatal(err)
	}
	k.Agents[0].KeyFile, k.Agents[0].PublishKeyFiles = made.File, []string{made.File, other.File}
	var managed *ManagedError
	if _, _, err := k.Rotate("", "", false); !errors.As(err, &managed) || managed.Setting != "agents[0].key_file" || !strings.Contains(err.Error(), "publish_key_files") {
		t.Error(err)
	}
	if _, err := k.Retire("", "", false); !errors.As(err, &managed) {
		t.Error(err)
	}
	if _, err := k.New(""); !errors.As(err, &managed) {
		t.Error(err)
	}
	all, err := k.List()
	if err != nil || len(all) != 2 || all[0].ID != made.ID || all[0].State != StateActive || all[1].ID != other.ID || all[1].Managed != "agents[0].publish_key_files[1]" {
		t.Error(all, err)
	}
	if _, err := os.Stat(filepath.Join(k.StateDir, "keys")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder was touched")
	}
}

// TestKeyringInParallel: commands beside each other and beside a gate that loads never lose or half-see a key.
func TestKeyringInParallel(t *testing.T) {
	k := testKeyring(t)
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			made, err := k.New("")
			if err != nil {
				t.Error(err)
				return
			}
			if _, _, err := k.Rotate("", made.ID, true); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for range 10 {
				if keys, err := loadFolder(k.Config, keyFolder(k.StateDir, "example")); err != nil || keys.empty() {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all, err := k.List()
	if err != nil || len(all) != 9 {
		t.Fatal(len(all), err)
	}
	for _, i := range all {
		if i.State == StateRetiring {
			if _, err := k.Retire("", i.ID, true); err != nil {
				t.Error(err)
			}
		}
	}
	if s := states(t, k); s != StateActive {
		t.Error(s)
	}
}

// TestKeyFolderDamage: what a crash or a hand can leave in a folder.
func TestKeyFolderDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string, ids []string)
		want   string // "": loads
	}{
		"file of a key that is not listed": {func(t *testing.T, dir string, _ []string) {
			writeKey(t, dir, testKey(3).id+".pem", testKey(3), 0o600)
		}, ""},
		"left-over temporary file": {func(t *testing.T, dir string, _ []string) {
			writeMode(t, filepath.Join(dir, ".keys.json.1"), []byte("{"), 0o600)
		}, ""},
		"keys.json missing": {func(t *testing.T, dir string, _ []string) {
			if err := os.Remove(filepath.Join(dir, stateFile)); err != nil {
				t.Fatal(err)
			}
		}, "keys.json is missing beside 2 key files"},
		"key file missing": {func(t *testing.T, dir string, ids []string) {
			if err := os.Remove(filepath.Join(dir, ids[1]+".pem")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"key file of mode 0644": {func(t *testing.T, dir string, ids []string) {
			if err := os.Chmod(filepath.Join(dir, ids[1]+".pem"), 0o644); err != nil { //nolint:gosec // that is the point
				t.Fatal(err)
			}
		}, "mode 0644"},
		"file holds another key": {func(t *testing.T, dir string, ids []string) {
			writeKey(t, dir, ids[1]+".pem", testKey(3), 0o600)
		}, "holds the key " + testKey(3).id},
		"test key": {func(t *testing.T, dir string, ids []string) {
			k := readVectors(t).key(t, "k1")
			writeKey(t, dir, k.id+".pem", k, 0o600)
			edit(t, dir, func(r *keyRecords) { r.Keys[1].ID = k.id })
		}, "the test key of RFC 9421"},
		"truncated keys.json": {func(t *testing.T, dir string, _ []string) {
			writeMode(t, filepath.Join(dir, stateFile), []byte(`{"keys":[`), 0o600)
		}, "keys.json"},
		"two active": {func(t *testing.T, dir string, _ []string) {
			edit(t, dir, func(r *keyRecords) { r.Keys[1].State = StateActive })
		}, "2 keys are active"},
		"none active": {func(t *testing.T, dir string, _ []string) {
			edit(t, dir, func(r *keyRecords) { r.Keys[0].State = StateRetiring })
		}, "0 keys are active"},
		"unknown state": {func(t *testing.T, dir string, _ []string) {
			edit(t, dir, func(r *keyRecords) { r.Keys[1].State = "asleep" })
		}, `unknown state "asleep"`},
		"listed twice": {func(t *testing.T, dir string, _ []string) {
			edit(t, dir, func(r *keyRecords) { r.Keys[1].ID = r.Keys[0].ID })
		}, "listed twice"},
		"path for an id": {func(t *testing.T, dir string, _ []string) {
			edit(t, dir, func(r *keyRecords) { r.Keys[1].ID = "../../other" })
		}, "not a key id"},
	} {
		t.Run(name, func(t *testing.T) {
			k := testKeyring(t)
			var ids []string
			for range 2 {
				made, err := k.New("")
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, made.ID)
			}
			dir := keyFolder(k.StateDir, "example")
			c.damage(t, dir, ids)
			_, err := Open(k.Config, k.StateDir, k.Agents, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			var s *SettingError
			if err != nil && (!errors.As(err, &s) || s.Key() != "state_dir") {
				t.Errorf("the text does not name the setting: %v", err)
			}
		})
	}
}

func edit(t *testing.T, dir string, change func(*keyRecords)) {
	t.Helper()
	r, err := readRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	change(&r)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	writeMode(t, filepath.Join(dir, stateFile), data, 0o600)
}

func TestKeyFolderLocked(t *testing.T) {
	k := testKeyring(t)
	if _, err := k.New(""); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockKeys(keyFolder(k.StateDir, "example"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := k.New(""); err == nil || !strings.Contains(err.Error(), "another process holds the lock") || time.Since(start) < lockPatience {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if _, err := Open(k.Config, k.StateDir, k.Agents, nil); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Error(err)
		}
	})
}
