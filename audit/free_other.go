//go:build !linux

package audit

import "errors"

// freeBytes is not known here: a full disk shows when a write fails.
func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
