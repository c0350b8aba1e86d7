package sign

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

const maxKeyFile = 16 << 10 // bytes

// readPrivateKey reads a key file after checking by fstat, on the file that was opened, that nobody else can read it.
func readPrivateKey(path string, allowGroup bool) (key, error) {
	data, err := readKeyFile(path, func(st os.FileInfo) error { return checkPrivateFile(st, allowGroup) })
	if err != nil {
		return key{}, err
	}
	k, err := parsePrivateKey(data)
	if err != nil {
		return key{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// readPublishedKey reads a key that is only published. A public JWK may be readable by all, a private key may not.
func readPublishedKey(path string, allowGroup bool) (key, error) {
	var mode error
	data, err := readKeyFile(path, func(st os.FileInfo) error { mode = checkPrivateFile(st, allowGroup); return nil })
	if err != nil {
		return key{}, err
	}
	k, err := parseAnyKey(data)
	if err == nil && k.private != nil {
		err = mode
	}
	if err != nil {
		return key{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func readKeyFile(path string, check func(os.FileInfo) error) ([]byte, error) {
	// O_NONBLOCK: opening a pipe must not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !st.Mode().IsRegular():
		err = errors.New("not a regular file")
	case st.Size() > maxKeyFile:
		err = fmt.Errorf("%d bytes, more than %d", st.Size(), maxKeyFile)
	default:
		err = check(st)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxKeyFile)
	}
	return data, nil
}

// checkPrivateFile refuses files that others can read or that another user owns.
func checkPrivateFile(st os.FileInfo, allowGroup bool) error {
	allowed, hint := os.FileMode(0o600), "0600 or stricter is needed"
	if allowGroup {
		allowed, hint = 0o640, "0640 or stricter is needed"
	}
	if mode := st.Mode().Perm(); mode&^allowed != 0 {
		return fmt.Errorf("mode %04o, %s", mode, hint)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		if uid := int(sys.Uid); uid != os.Geteuid() && uid != 0 {
			return fmt.Errorf("owned by user %d, neither this process's user nor root", uid)
		}
	}
	return nil
}
