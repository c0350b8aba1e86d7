package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// answerHead is what is kept of an answer beside its body. It is a small text file:
//
//	crawlgate-answer/1 SHA-256 of the rest
//	url https://example.org/
//	for CLIENT AGENT
//	vary accept-encoding
//	key 0123456789abcdef
//	body 1234 SHA-256 of the body
//	came 1767225600000
//	full
//	: Content-Type: text/html
//
// A file that was torn, or that anything changed, does not have the digest that it names, and counts for nothing.
type answerHead struct {
	url    string
	owner  string    // client and agent
	vary   []string  // fields of the request that it belongs to, in lower case
	key    [8]byte   // digest of their values
	length int64     // of the body
	sum    [32]byte  // its SHA-256
	came   time.Time // or was confirmed, less the Age it came with: the site said so then
	full   bool      // to be asked for in full at the next visit
	header http.Header
}

const (
	answerMagic = "crawlgate-answer/1 "
	// maxAnswerHead bounds a head that is read: twice what the transport takes, for the line starts.
	maxAnswerHead = 2 * answerHeadBytes
)

var errAnswerHead = errors.New("not the head of a kept answer")

// notKept are fields of one exchange, which never belong to a kept answer (RFC 9111 3.1). Content-Length is known.
func notKept(k string) bool {
	switch k {
	case "Age", "Content-Length", "Set-Cookie", "Proxy-Status", "Connection", "Transfer-Encoding", "Trailer", "Keep-Alive", "Upgrade":
		return true
	}
	return hasPrefixFold(k, "crawlgate-")
}

// encode gives the file's text.
func (a *answerHead) encode() []byte {
	var b bytes.Buffer
	line := func(name string, value string) { b.WriteString(name + " " + value + "\n") }
	line("url", a.url)
	line("for", a.owner)
	if len(a.vary) > 0 {
		line("vary", strings.Join(a.vary, " "))
		line("key", hex.EncodeToString(a.key[:]))
	}
	line("body", strconv.FormatInt(a.length, 10)+" "+hex.EncodeToString(a.sum[:]))
	line("came", strconv.FormatInt(a.came.UnixMilli(), 10))
	if a.full {
		b.WriteString("full\n")
	}
	for _, k := range slices.Sorted(maps.Keys(a.header)) {
		for _, v := range a.header[k] {
			b.WriteString(": " + k + ": " + v + "\n")
		}
	}
	sum := sha256.Sum256(b.Bytes())
	return append([]byte(answerMagic+hex.EncodeToString(sum[:])+"\n"), b.Bytes()...)
}

// parseAnswerHead reads what encode wrote, and nothing else.
func parseAnswerHead(text []byte) (*answerHead, error) {
	first, rest, ok := bytes.Cut(text, []byte("\n"))
	named, isHead := strings.CutPrefix(string(first), answerMagic)
	sum := sha256.Sum256(rest)
	if !ok || !isHead || len(text) > maxAnswerHead || named != hex.EncodeToString(sum[:]) {
		return nil, errAnswerHead
	}
	return parseAnswerFields(rest)
}

// parseAnswerFields reads the lines below the digest.
func parseAnswerFields(rest []byte) (*answerHead, error) {
	a := &answerHead{header: http.Header{}, length: -1}
	for len(rest) > 0 {
		raw, next, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return nil, errAnswerHead
		}
		rest = next
		name, value, _ := strings.Cut(string(raw), " ")
		if err := a.set(name, value); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errAnswerHead, name, err)
		}
	}
	if a.url == "" || a.owner == "" || a.length < 0 {
		return nil, errAnswerHead
	}
	return a, nil
}

func (a *answerHead) set(name, value string) (err error) {
	switch name {
	case "url":
		a.url = value
	case "for":
		a.owner = value
	case "vary":
		a.vary = strings.Split(value, " ")
	case "key":
		err = unhex(a.key[:], value)
	case "body":
		size, sum, _ := strings.Cut(value, " ")
		if a.length, err = strconv.ParseInt(size, 10, 64); err == nil {
			err = unhex(a.sum[:], sum)
		}
	case "came":
		var ms int64
		ms, err = strconv.ParseInt(value, 10, 64)
		a.came = time.UnixMilli(ms)
	case "full":
		a.full = true
	case ":":
		k, v, ok := strings.Cut(value, ": ")
		if !ok || !httpguts.ValidHeaderFieldName(k) || !httpguts.ValidHeaderFieldValue(v) {
			return errors.New("not a field")
		}
		a.header[k] = append(a.header[k], v)
	default:
		return errors.New("unknown")
	}
	return err
}

func unhex(to []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) {
		return errors.New("not a digest")
	}
	copy(to, b)
	return nil
}
