package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
)

// chainPrefix separates these hashes from all others.
var chainPrefix = []byte("crawlgate-audit-1\n")

// zeroHash is the prev of a chain's first event.
const zeroHash = "0000000000000000000000000000000000000000000000000000000000000000"

const (
	prevKey = `,"prev":"`
	hashKey = `,"hash":"`
	// tailLen is the length of `,"prev":"...","hash":"..."}`.
	tailLen = len(prevKey) + 64 + 1 + len(hashKey) + 64 + 2
)

// appendHead writes what every line begins with.
func appendHead(b []byte, typ string, seq uint64) []byte {
	b = append(b, `{"schema":"`+Schema+`","type":"`...)
	b = append(b, typ...)
	b = append(b, `","seq":`...)
	return strconv.AppendUint(b, seq, 10)
}

// hasher makes the hashes of a chain without allocating.
type hasher struct {
	h   hash.Hash
	sum [sha256.Size]byte
	hex [2 * sha256.Size]byte
}

// of gives the hash of a line up to (not including) `,"hash":`, valid until the next call.
func (h *hasher) of(line []byte) []byte {
	if h.h == nil {
		h.h = sha256.New()
	}
	h.h.Reset()
	h.h.Write(chainPrefix)
	h.h.Write(line)
	h.h.Sum(h.sum[:0])
	hex.Encode(h.hex[:], h.sum[:])
	return h.hex[:]
}

// link is what the chain needs of one line.
type link struct {
	seq        uint64
	typ        []byte
	body       []byte // the hashed part
	prev, hash []byte // hex
}

// parseLink reads a line (without its end); ok is false when it is no event of a chain.
func parseLink(line []byte) (l link, ok bool) {
	n := len(line) - tailLen
	if n <= 0 || line[0] != '{' {
		return l, false
	}
	tail := line[n:]
	prevEnd := len(prevKey) + 64
	hashStart := prevEnd + 1 + len(hashKey)
	if string(tail[:len(prevKey)]) != prevKey || tail[prevEnd] != '"' ||
		string(tail[prevEnd+1:hashStart]) != hashKey || string(tail[hashStart+64:]) != `"}` {
		return l, false
	}
	l.prev, l.hash = tail[len(prevKey):prevEnd], tail[hashStart:hashStart+64]
	if !isHash(l.prev) || !isHash(l.hash) {
		return l, false
	}
	l.body = line[:n+prevEnd+1]
	l.typ = valueOf(line, `"type":"`, '"')
	digits := valueOf(line, `"seq":`, ',')
	seq, err := strconv.ParseUint(string(digits), 10, 63)
	if err != nil || seq == 0 {
		return l, false
	}
	l.seq = seq
	return l, true
}

// valueOf finds the text after the first key up to end. Quotes inside JSON strings are escaped, so a key with its quotes is
// never part of a value.
func valueOf(line []byte, key string, end byte) []byte {
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return nil
	}
	rest := line[i+len(key):]
	j := bytes.IndexByte(rest, end)
	if j < 0 {
		return nil
	}
	return rest[:j]
}

// isHash tells whether b is 64 lower-case hex digits.
func isHash(b []byte) bool {
	if len(b) != 64 {
		return false
	}
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
