//go:build !unix

package audit

import (
	"os"
	"path/filepath"
)

// fileLock keeps a second process from writing the same chain; here only as far as the state folder's own lock does.
type fileLock struct{}

func lockPath(live string) string { return filepath.Clean(live) }

func lockFile(string) (*fileLock, error) { return &fileLock{}, nil }

func (*fileLock) unlock() {}

// gone tells whether an open file has no name any more; unknown here.
func gone(os.FileInfo) bool { return false }
