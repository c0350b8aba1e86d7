package sign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// States of a key.
const (
	StatePublished = "published" // in the directory, not yet used
	StateActive    = "active"    // signs
	StateRetiring  = "retiring"  // no longer signs, still in the directory
)

const (
	stateFile    = "keys.json"
	lockFile     = ".lock"
	lockPatience = 5 * time.Second
)

// keyRecord is one entry of keys.json. The order of entries is the order in the directory.
type keyRecord struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`   // of this state
	Created time.Time `json:"created"` // when the key was made
}

type keyRecords struct {
	Keys []keyRecord `json:"keys"`
}

func (r *keyRecords) find(id string) *keyRecord {
	for i := range r.Keys {
		if r.Keys[i].ID == id {
			return &r.Keys[i]
		}
	}
	return nil
}

func (r *keyRecords) active() *keyRecord {
	for i := range r.Keys {
		if r.Keys[i].State == StateActive {
			return &r.Keys[i]
		}
	}
	return nil
}

// check refuses a keys.json that this program would not have written.
func (r *keyRecords) check() error {
	active := 0
	seen := map[string]bool{}
	for _, k := range r.Keys {
		switch {
		case !isThumbprint(k.ID):
			return fmt.Errorf("%q is not a key id", clip(k.ID, 60))
		case seen[k.ID]:
			return fmt.Errorf("key %s is listed twice", k.ID)
		case k.State == StateActive:
			active++
		case k.State != StatePublished && k.State != StateRetiring:
			return fmt.Errorf("key %s has the unknown state %q", k.ID, clip(k.State, 20))
		}
		seen[k.ID] = true
	}
	if len(r.Keys) > 0 && active != 1 {
		return fmt.Errorf("%d keys are active, not one", active)
	}
	return nil
}

// readRecords reads keys.json of a folder; no folder or an empty one is no keys.
func readRecords(dir string) (keyRecords, error) {
	var r keyRecords
	path := filepath.Join(dir, stateFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		left, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.pem"))
		if err != nil {
			return r, err
		}
		if len(left) > 0 {
			return r, fmt.Errorf("%s is missing beside %d key files; restore it, or move the files away and run crawlgate keys new", path, len(left))
		}
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.check(); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// writeRecords replaces keys.json whole: a reader sees the old or the new list, also after a crash.
func writeRecords(dir string, r keyRecords) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("refusing to write %s: %w", stateFile, err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, stateFile), append(data, '\n'), 0o600)
}

// replaceFile writes a file beside the old one and renames it over.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(dir)
}

// createKeyFile writes a private key to a file that must not exist yet, mode 0600.
func createKeyFile(path string, k key) error {
	data, err := k.pem()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// lockKeys takes the lock of a key folder, shared for readers, so that a command and a running gate never see each other's
// half-done work. A folder that has never been written to needs no lock.
func lockKeys(dir string, exclusive bool) (unlock func(), err error) {
	flags, how := os.O_RDONLY, syscall.LOCK_SH
	if exclusive {
		flags, how = os.O_RDWR|os.O_CREATE, syscall.LOCK_EX
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		if !exclusive && errors.Is(err, fs.ErrNotExist) {
			return func() {}, nil
		}
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB) //nolint:gosec // a file descriptor fits an int
		if err == nil {
			return func() { _ = f.Close() }, nil // closing gives the lock back
		}
		switch busy := errors.Is(err, syscall.EWOULDBLOCK); {
		case !busy && !errors.Is(err, syscall.EINTR):
			_ = f.Close()
			return nil, fmt.Errorf("%s: can't be locked: %w", path, err)
		case time.Now().After(deadline):
			_ = f.Close()
			return nil, fmt.Errorf("%s: another process holds the lock", path)
		}
	}
}
