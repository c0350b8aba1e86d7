package sign

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// keys are the keys of one agent: one that signs, and all that the directory shows, in its order.
type keys struct {
	active    key
	published []key
}

func (k keys) empty() bool { return k.active.private == nil }

// loadKeys reads the keys of one agent, none when none was made yet. Errors are SettingErrors below `agents[index]`.
func loadKeys(c Config, stateDir string, index int, a Agent) (keys, error) {
	if a.KeyFile == "" {
		k, err := loadFolder(c, keyFolder(stateDir, a.Name))
		if err != nil {
			return keys{}, &SettingError{"state_dir", err}
		}
		return k, nil
	}
	at := fmt.Sprintf("agents[%d].", index)
	active, err := readPrivateKey(a.KeyFile, c.AllowGroupRead)
	if err == nil {
		err = refuseTestKey(c, active)
	}
	if err != nil {
		return keys{}, &SettingError{at + "key_file", err}
	}
	k := keys{active: active, published: []key{active}}
	for i, path := range a.PublishKeyFiles {
		p, err := readPublishedKey(path, c.AllowGroupRead)
		if err == nil {
			err = refuseTestKey(c, p)
		}
		if err != nil {
			return keys{}, &SettingError{fmt.Sprintf("%spublish_key_files[%d]", at, i), err}
		}
		if !k.has(p.id) {
			k.published = append(k.published, p)
		}
	}
	return k, nil
}

func (k keys) has(id string) bool {
	return slices.ContainsFunc(k.published, func(p key) bool { return p.id == id })
}

// loadFolder reads a folder that crawlgate keys keeps.
func loadFolder(c Config, dir string) (keys, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return keys{}, nil
	}
	unlock, err := lockKeys(dir, false)
	if err != nil {
		return keys{}, err
	}
	defer unlock()
	records, err := readRecords(dir)
	if err != nil {
		return keys{}, err
	}
	var k keys
	for _, r := range records.Keys {
		one, err := loadRecorded(c, dir, r.ID)
		if err != nil {
			return keys{}, err
		}
		if r.State == StateActive {
			k.active = one
		}
		k.published = append(k.published, one)
	}
	return k, nil
}

// loadRecorded reads one key of a folder; its name must be its thumbprint.
func loadRecorded(c Config, dir, id string) (key, error) {
	path := filepath.Join(dir, id+".pem")
	k, err := readPrivateKey(path, c.AllowGroupRead)
	if err != nil {
		return key{}, err
	}
	if k.id != id {
		return key{}, fmt.Errorf("%s: holds the key %s", path, k.id)
	}
	return k, refuseTestKey(c, k)
}

func refuseTestKey(c Config, k key) error {
	if where, test := testKeys[k.id]; test && !c.AllowTestKey {
		return fmt.Errorf("the test key of %s, which everyone has; sign.allow_test_key admits it in tests", where)
	}
	return nil
}

// generateKey makes a new key pair. Its id does not begin with a dash: ids are file names and arguments of commands.
func generateKey() (key, error) {
	for {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return key{}, err
		}
		if k := newKey(private); k.id[0] != '-' {
			return k, nil
		}
	}
}
