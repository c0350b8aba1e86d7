package allowlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

var (
	bucketLedger = []byte("allowlist.ledger")
	bucketLocks  = []byte("allowlist.locks")
	bucketGone   = []byte("allowlist.gone")
)

// BoltStore keeps the ledger, the identity locks and the URLs that are gone in buckets of a bbolt file that others may use
// as well. It is a LedgerStore, a LockStore and a GoneStore.
type BoltStore struct {
	db *bbolt.DB

	mu      sync.Mutex
	writing bool
	waiting []*lockUpdate
}

type lockUpdate struct {
	put    []Lock
	remove []string
	done   chan error
}

// NewBoltStore makes the buckets where they do not exist. The file stays the caller's.
func NewBoltStore(db *bbolt.DB) (*BoltStore, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketLedger, bucketLocks, bucketGone} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open the ledger's buckets: %w", err)
	}
	return &BoltStore{db: db}, nil
}

// LoadEntries reads the whole ledger. An entry that cannot be read is an error: a stop must not be lost.
func (b *BoltStore) LoadEntries() (entries []Entry, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketLedger).ForEach(func(k, v []byte) error {
			e, err := readEntry(string(k), v)
			if err != nil {
				return err
			}
			entries = append(entries, e)
			return nil
		})
	})
	return entries, err
}

// PutEntry writes one entry, synced to disk.
func (b *BoltStore) PutEntry(e Entry) error {
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketLedger).Put([]byte(e.Host), v) })
}

// DeleteEntry removes a host's entry.
func (b *BoltStore) DeleteEntry(host string) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketLedger).Delete([]byte(host)) })
}

// LoadLocks reads every lock. One that cannot be read is an error.
func (b *BoltStore) LoadLocks(each func(Lock)) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketLocks).ForEach(func(k, v []byte) error {
			var l Lock
			if err := json.Unmarshal(v, &l); err != nil {
				return fmt.Errorf("lock %q: %w", k, err)
			}
			each(l)
			return nil
		})
	})
}

// UpdateLocks writes and removes locks, synced to disk. Callers that come while a transaction is being written share
// the next one; a single caller waits for nobody.
func (b *BoltStore) UpdateLocks(put []Lock, remove []string) error {
	u := &lockUpdate{put, remove, make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, u)
	lead := !b.writing
	b.writing = true
	b.mu.Unlock()
	if !lead {
		if err := <-u.done; !errors.Is(err, errLead) {
			return err
		}
	}
	b.mu.Lock()
	batch := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	err := b.writeLocks(batch)
	for _, w := range batch {
		if w != u {
			w.done <- err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writing = len(b.waiting) > 0; b.writing {
		b.waiting[0].done <- errLead
	}
	return err
}

// errLead tells a waiting caller to write the next transaction itself.
var errLead = errors.New("write the next transaction")

func (b *BoltStore) writeLocks(batch []*lockUpdate) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketLocks)
		for _, u := range batch {
			for _, k := range u.remove {
				if err := bucket.Delete([]byte(k)); err != nil {
					return err
				}
			}
			for _, l := range u.put {
				v, err := json.Marshal(l)
				if err != nil {
					return err
				}
				if err := bucket.Put([]byte(l.Key()), v); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// LoadGone reads every URL that is gone. One that cannot be read is an error.
func (b *BoltStore) LoadGone(each func(GoneURL)) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketGone).ForEach(func(k, v []byte) error {
			var e GoneURL
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("gone URL %q: %w", k, err)
			}
			each(e)
			return nil
		})
	})
}

// PutGone writes one URL and removes those that are forgotten for it, synced to disk.
func (b *BoltStore) PutGone(put GoneURL, forget []GoneURL) error {
	v, err := json.Marshal(put)
	if err != nil {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error {
		if err := removeGone(tx, forget); err != nil {
			return err
		}
		return tx.Bucket(bucketGone).Put(goneBoltKey(put), v)
	})
}

// LiftGone removes the URLs of a host.
func (b *BoltStore) LiftGone(_ string, urls []GoneURL) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return removeGone(tx, urls) })
}

func removeGone(tx *bbolt.Tx, urls []GoneURL) error {
	for _, e := range urls {
		if err := tx.Bucket(bucketGone).Delete(goneBoltKey(e)); err != nil {
			return err
		}
	}
	return nil
}

func goneBoltKey(e GoneURL) []byte { return []byte(e.Host + "\x00" + e.URL) }
