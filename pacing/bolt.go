package pacing

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// BoltStore keeps the restart record in the bucket `pacing` of the state file.
type BoltStore struct{ db *bolt.DB }

var bucket = []byte("pacing")

// NewBoltStore makes the bucket if it is not there. The file stays the caller's to close, after the Pacer.
func NewBoltStore(db *bolt.DB) (*BoltStore, error) {
	err := db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("bucket pacing: %w", err)
	}
	return &BoltStore{db}, nil
}

// Load calls f for every value of the bucket.
func (b *BoltStore) Load(f func(name string, value []byte) error) error {
	return b.db.View(func(tx *bolt.Tx) error {
		t := tx.Bucket(bucket)
		if t == nil {
			return errors.New("bucket pacing is gone")
		}
		return t.ForEach(func(k, v []byte) error {
			_ = f(string(k), v) // reported by the caller; the others still count
			return nil
		})
	})
}

// Save writes one batch: one commit, one fsync.
func (b *BoltStore) Save(values map[string][]byte) error {
	return b.db.Update(func(tx *bolt.Tx) error {
		t := tx.Bucket(bucket)
		if t == nil {
			return errors.New("bucket pacing is gone")
		}
		for k, v := range values {
			var err error
			if v == nil {
				err = t.Delete([]byte(k))
			} else {
				err = t.Put([]byte(k), v)
			}
			if err != nil {
				return fmt.Errorf("%q: %w", k, err)
			}
		}
		return nil
	})
}
