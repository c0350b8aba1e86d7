package sign

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	day         = 24 * time.Hour
	cacheMargin = day // beyond the directory's max-age, for verifiers that poll slowly
)

// Keyring is the life of the keys in state_dir/keys: made, published, active, retiring, gone. Its methods may run while a
// gate uses the same folder; the gate sees the change at its next reload.
type Keyring struct {
	StateDir string
	Config   Config
	Publish  PublishConfig
	Agents   []Agent
}

// KeyInfo is what may be told about a key.
type KeyInfo struct {
	Agent   string    `json:"agent"`
	ID      string    `json:"id"`    // RFC 7638 thumbprint
	State   string    `json:"state"` // StatePublished, StateActive or StateRetiring
	Since   time.Time `json:"since,omitzero"`
	Created time.Time `json:"created,omitzero"`
	File    string    `json:"file"`
	Next    string    `json:"next,omitempty"`    // the next step: rotate or retire
	NextAt  time.Time `json:"next_at,omitzero"`  // when that step becomes possible
	Managed string    `json:"managed,omitempty"` // the setting that names the file, for keys outside state_dir
	JWK     any       `json:"jwk,omitempty"`     // public half
}

// TooEarlyError is a step before its time. Verifiers may still hold a directory without the new key, or with the old one.
type TooEarlyError struct {
	Step, ID string
	Until    time.Time
}

func (e *TooEarlyError) Error() string {
	return fmt.Sprintf("%s of key %s is possible from %s", e.Step, e.ID, e.Until.UTC().Format(time.RFC3339))
}

// ManagedError says that an agent's keys are named by the configuration, and what to change there.
type ManagedError struct{ Agent, Setting, Do string }

func (e *ManagedError) Error() string {
	return fmt.Sprintf("the keys of agent %s are files named in the configuration: %s", e.Agent, e.Do)
}

// Agent finds an agent by name, the only one when name is "".
func (k Keyring) Agent(name string) (Agent, error) {
	a, _, err := k.agent(name)
	return a, err
}

func (k Keyring) agent(name string) (Agent, int, error) {
	for i, a := range k.Agents {
		if a.Name == name || name == "" && len(k.Agents) == 1 {
			return a, i, nil
		}
	}
	if name == "" {
		return Agent{}, 0, fmt.Errorf("there are %d agents; name one", len(k.Agents))
	}
	return Agent{}, 0, fmt.Errorf("no agent %q", name)
}

// folder finds the key folder of an agent, with the exclusive lock held.
func (k Keyring) folder(name, do string) (a Agent, dir string, unlock func(), err error) {
	a, i, err := k.agent(name)
	if err != nil {
		return a, "", nil, err
	}
	if a.KeyFile != "" {
		return a, "", nil, &ManagedError{a.Name, fmt.Sprintf("agents[%d].key_file", i), do}
	}
	if !isFolderName(a.Name) {
		return a, "", nil, fmt.Errorf("agent name %q can't name a key folder", a.Name)
	}
	dir = keyFolder(k.StateDir, a.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a, "", nil, err
	}
	unlock, err = lockKeys(dir, true)
	return a, dir, unlock, err
}

// New makes a key for an agent (the only one when name is ""). The first key of an agent is active at once, later ones are
// only published.
func (k Keyring) New(name string) (KeyInfo, error) {
	a, dir, unlock, err := k.folder(name, "make a file with crawlgate keys new --out FILE and add it to publish_key_files")
	if err != nil {
		return KeyInfo{}, err
	}
	defer unlock()
	records, err := readRecords(dir)
	if err != nil {
		return KeyInfo{}, err
	}
	fresh, err := generateKey()
	if err != nil {
		return KeyInfo{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	r := keyRecord{ID: fresh.id, State: StatePublished, Since: now, Created: now}
	if records.active() == nil {
		r.State = StateActive
	}
	path := filepath.Join(dir, fresh.id+".pem")
	if err := createKeyFile(path, fresh); err != nil {
		return KeyInfo{}, err
	}
	records.Keys = append(records.Keys, r)
	if err := writeRecords(dir, records); err != nil {
		_ = os.Remove(path)
		return KeyInfo{}, err
	}
	info := k.info(a.Name, dir, r)
	info.JWK = fresh.jwk()
	return info, nil
}

// NewFile makes a key in a file that must not exist, for secrets that are mounted elsewhere; nothing in state_dir changes.
func NewFile(path string) (KeyInfo, error) {
	fresh, err := generateKey()
	if err != nil {
		return KeyInfo{}, err
	}
	if err := createKeyFile(path, fresh); err != nil {
		return KeyInfo{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	return KeyInfo{ID: fresh.id, Created: now, File: path, JWK: fresh.jwk()}, nil
}

func (k Keyring) info(agent, dir string, r keyRecord) KeyInfo {
	i := KeyInfo{Agent: agent, ID: r.ID, State: r.State, Since: r.Since, Created: r.Created, File: filepath.Join(dir, r.ID+".pem")}
	switch r.State {
	case StatePublished:
		i.Next, i.NextAt = "rotate", k.rotateAt(r)
	case StateRetiring:
		i.Next, i.NextAt = "retire", k.retireAt(r)
	}
	return i
}

// rotateAt is when every verifier has had the chance to see a published key.
func (k Keyring) rotateAt(r keyRecord) time.Time {
	return r.Since.Add(k.Publish.MaxAge + cacheMargin)
}

// retireAt is when no signature of a retiring key can still be under way.
func (k Keyring) retireAt(r keyRecord) time.Time {
	return r.Since.Add(k.Config.Lifetime + k.Publish.MaxAge + cacheMargin)
}

// Rotate makes a published key active; the active one becomes retiring. With id "" the one published key is taken. A key
// that is not published long enough is refused with TooEarlyError unless force is set; a retiring key may come back at once.
func (k Keyring) Rotate(name, id string, force bool) (active, retiring KeyInfo, err error) {
	a, dir, unlock, err := k.folder(name, "publish the new file first (publish_key_files), reload, wait a day and max_age, then make it key_file and the old one a publish_key_files entry, and reload")
	if err != nil {
		return KeyInfo{}, KeyInfo{}, err
	}
	defer unlock()
	records, err := readRecords(dir)
	if err != nil {
		return KeyInfo{}, KeyInfo{}, err
	}
	next, err := records.choose(id, StatePublished, "rotate")
	if err != nil {
		return KeyInfo{}, KeyInfo{}, err
	}
	old := records.active()
	if next == old {
		return KeyInfo{}, KeyInfo{}, fmt.Errorf("key %s is active already", next.ID)
	}
	now := time.Now().UTC().Truncate(time.Second)
	if until := k.rotateAt(*next); next.State == StatePublished && !force && now.Before(until) {
		return KeyInfo{}, KeyInfo{}, &TooEarlyError{"rotate", next.ID, until}
	}
	if _, err := loadRecorded(k.Config, dir, next.ID); err != nil {
		return KeyInfo{}, KeyInfo{}, err
	}
	next.State, next.Since = StateActive, now
	old.State, old.Since = StateRetiring, now
	if err := writeRecords(dir, records); err != nil {
		return KeyInfo{}, KeyInfo{}, err
	}
	return k.info(a.Name, dir, *next), k.info(a.Name, dir, *old), nil
}

// Retire removes a key from the directory and deletes its file. With id "" the one retiring key is taken. The active key is
// never removed; a retiring one is refused with TooEarlyError before its time unless force is set. A key that was only
// published has signed nothing and may go at once.
func (k Keyring) Retire(name, id string, force bool) (KeyInfo, error) {
	a, dir, unlock, err := k.folder(name, "take the file out of publish_key_files, reload, and delete it")
	if err != nil {
		return KeyInfo{}, err
	}
	defer unlock()
	records, err := readRecords(dir)
	if err != nil {
		return KeyInfo{}, err
	}
	r, err := records.choose(id, StateRetiring, "retire")
	if err != nil {
		return KeyInfo{}, err
	}
	gone := k.info(a.Name, dir, *r)
	switch {
	case r.State == StateActive:
		return KeyInfo{}, fmt.Errorf("key %s is active; rotate to another one first", r.ID)
	case r.State == StateRetiring && !force && time.Now().Before(k.retireAt(*r)):
		return KeyInfo{}, &TooEarlyError{"retire", r.ID, k.retireAt(*r)}
	}
	kept := keyRecords{}
	for _, one := range records.Keys {
		if one.ID != r.ID {
			kept.Keys = append(kept.Keys, one)
		}
	}
	if err := writeRecords(dir, kept); err != nil {
		return KeyInfo{}, err
	}
	if err := os.Remove(gone.File); err != nil && !errors.Is(err, os.ErrNotExist) {
		return gone, err
	}
	return gone, syncDir(dir)
}

// choose finds a key by id, or the only one in a state.
func (r *keyRecords) choose(id, state, step string) (*keyRecord, error) {
	if id != "" {
		if one := r.find(id); one != nil {
			return one, nil
		}
		return nil, fmt.Errorf("no key %s", clip(id, 60))
	}
	var found *keyRecord
	for i := range r.Keys {
		if r.Keys[i].State != state {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("more than one key is %s; name the one to %s", state, step)
		}
		found = &r.Keys[i]
	}
	if found == nil {
		return nil, fmt.Errorf("no key is %s", state)
	}
	return found, nil
}

// List gives all keys of all agents, without reading the private halves in state_dir.
func (k Keyring) List() ([]KeyInfo, error) {
	var all []KeyInfo
	var problems []error
	for i, a := range k.Agents {
		var some []KeyInfo
		var err error
		if a.KeyFile != "" {
			some, err = k.listManaged(i, a)
		} else {
			some, err = k.listFolder(a)
		}
		all = append(all, some...)
		if err != nil {
			problems = append(problems, err)
		}
	}
	return all, errors.Join(problems...)
}

func (k Keyring) listFolder(a Agent) ([]KeyInfo, error) {
	dir := keyFolder(k.StateDir, a.Name)
	if _, err := os.Stat(dir); !isFolderName(a.Name) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	unlock, err := lockKeys(dir, false)
	if err != nil {
		return nil, err
	}
	defer unlock()
	records, err := readRecords(dir)
	if err != nil {
		return nil, err
	}
	var all []KeyInfo
	for _, r := range records.Keys {
		all = append(all, k.info(a.Name, dir, r))
	}
	return all, nil
}

func (k Keyring) listManaged(index int, a Agent) ([]KeyInfo, error) {
	loaded, err := loadKeys(k.Config, k.StateDir, index, a)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("agents[%d].", index)
	all := []KeyInfo{{Agent: a.Name, ID: loaded.active.id, State: StateActive, File: a.KeyFile, Managed: at + "key_file"}}
	for i, path := range a.PublishKeyFiles {
		p, err := readPublishedKey(path, k.Config.AllowGroupRead)
		if err != nil {
			return all, err
		}
		if p.id != loaded.active.id {
			all = append(all, KeyInfo{Agent: a.Name, ID: p.id, State: StatePublished, File: path, Managed: fmt.Sprintf("%spublish_key_files[%d]", at, i)})
		}
	}
	return all, nil
}
