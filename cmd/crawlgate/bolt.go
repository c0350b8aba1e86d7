package main

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"crawlgate/proxy"
)

var jobBucket = []byte("jobs")

// jobStore keeps jobs in the state file.
type jobStore struct{ db *bbolt.DB }

func newJobStore(db *bbolt.DB) (*jobStore, error) {
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
