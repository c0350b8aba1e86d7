//go:build !linux

package main

import "os"

// ttyColumns is 0: only Linux terminals are asked for their width.
func ttyColumns(*os.File) int { return 0 }
