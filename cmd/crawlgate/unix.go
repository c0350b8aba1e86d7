package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// maxSocketPath is the longest path that a Unix socket address takes on every system.
const maxSocketPath = 100

// socketName shortens a path that is too long for a socket address by way of a link in the temporary folder.
func socketName(path string) (name string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		return "", nil, err
	}
	link := filepath.Join(dir, "d")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return filepath.Join(link, filepath.Base(path)), func() { os.RemoveAll(dir) }, nil
}

// listenUnix makes a socket that only its owner can use.
func listenUnix(path string) (net.Listener, error) {
	name, done, err := socketName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	name, done, err := socketName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", name)
}
