package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"crawlgate/proxy"
)

// stateFile is the one file of a state folder that holds what is owed: back-off, ledgers, jobs. One process has it.
type stateFile = bbolt.DB

// openState opens the one state file. Only one process holds it.
func openState(dir string) (*stateFile, error) {
	file := filepath.Join(dir, "state.db")
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: 300 * time.Millisecond})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, &exitError{exitUsage, &heldError{dir: dir, by: whoHolds(dir)}}
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, usage("state_dir: %w", err)
		}
		return nil, usage("state_dir: %s cannot be read: %w", file, err)
	}
	return db, nil
}

var jobBucket = []byte("jobs")

// jobStore keeps jobs in the state file.
type jobStore struct{ db *stateFile }

func newJobStore(db *stateFile) (*jobStore, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(jobBucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return &jobStore{db}, nil
}

// Load reads all jobs; one that cannot be decoded is left out.
func (s *jobStore) Load() ([]proxy.Job, error) {
	var out []proxy.Job
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(jobBucket).ForEach(func(_, v []byte) error {
			var j proxy.Job
			if json.Unmarshal(v, &j) == nil && j.ID != "" {
				if j.Refused == nil {
					j.Refused = map[string]int{}
				}
				out = append(out, j)
			}
			return nil
		})
	})
	return out, err
}

// Save writes one job.
func (s *jobStore) Save(j proxy.Job) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return s.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(jobBucket).Put([]byte(j.Client+"+"+j.ID), b) })
}

// Delete forgets one job.
func (s *jobStore) Delete(client, id string) error {
	return s.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(jobBucket).Delete([]byte(client + "+" + id)) })
}
