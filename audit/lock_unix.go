//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// fileLock keeps a second process from writing the same chain. The system frees it when the process ends, however it ends.
type fileLock struct{ f *os.File }

func lockPath(live string) string {
	return filepath.Join(filepath.Dir(live), "."+filepath.Base(live)+".lock")
}

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process writes this log (%s is locked)", path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &fileLock{f}, nil
}

func (l *fileLock) unlock() { l.f.Close() }

// gone tells whether an open file has no name any more.
func gone(st os.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 0
}
