package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"crawlgate/configs"
)

// policiesDir is where each configuration that was in force is kept, named by its hash: what a request was promised
// stands nowhere else once the file was changed.
func policiesDir(stateDir string) string { return filepath.Join(stateDir, "audit", "policies") }

// noSecret stands for the hash of a client's secret, which is not part of what is promised to sites.
var noSecret = "sha256:" + strings.Repeat("0", 64)

// keepPolicy keeps the configuration in force, without secrets, unless it is kept already.
func keepPolicy(cfg *configs.Config) error {
	dir := policiesDir(cfg.StateDir)
	file := filepath.Join(dir, cfg.Hash()+".yaml")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return writeState(file, []byte(strings.ReplaceAll(cfg.Show(nil), "(masked)", noSecret)))
}

// writeState puts a file of the state folder in place whole.
func writeState(file string, data []byte) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// readPolicy reads a kept configuration, whatever the environment says now. Its name is its hash, which events in the
// chain name too: another text cannot pass for it.
func readPolicy(file string) (*configs.Config, error) {
	over := map[string]string{"state_dir": filepath.Join(filepath.Dir(file), "none"), "redis.url": "", "audit.checkpoint_to": ""}
	cfg, _, err := configs.Load(configs.Options{File: file, Overrides: over})
	if err != nil {
		return nil, err
	}
	if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); cfg.Hash() != want {
		return nil, fmt.Errorf("its hash is %s, not that of its name", cfg.Hash())
	}
	return cfg, nil
}
