package main

import (
	"os"
	"syscall"
	"unsafe"
)

// ttyColumns is the width of a terminal, 0 when it is none.
func ttyColumns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if e != 0 {
		return 0
	}
	return int(size.columns)
}
