package policy

import (
	"strings"
	"time"
)

// Version is one line of the archive's index: what a fetch of one file found, and how long it was used. A later line
// with the same URL, agent and Effective replaces the one before: the file was read again and had not changed.
type Version struct {
	Host      string    `json:"host"`      // with port, unless it is the scheme's default
	Effective time.Time `json:"effective"` // when this version was first seen
	Status    int       `json:"status"`    // 0: unreachable, or no file of the site (a bot check)
	File      string    `json:"file"`      // the body, relative to the archive; "" without one
	SHA256    string    `json:"sha256"`

	URL        string    `json:"url"`
	Agent      string    `json:"agent"`
	Class      string    `json:"class"`
	Reason     string    `json:"reason,omitempty"` // for a failure
	HTTPStatus int       `json:"http_status"`
	Fetched    time.Time `json:"fetched"` // when it was last read or confirmed
	Until      time.Time `json:"until"`   // not asked for again before
	Bytes      int64     `json:"bytes,omitempty"`
	Hops       int       `json:"hops,omitempty"`
	Final      string    `json:"final,omitempty"`
	ETag       string    `json:"etag,omitempty"`
	Modified   string    `json:"last_modified,omitempty"`
	Truncated  bool      `json:"truncated,omitempty"`
	Failures   int       `json:"failures,omitempty"`
	Note       string    `json:"note,omitempty"`
	Good       *Version  `json:"good,omitempty"` // for a failure: the last version that could be read
}

// same tells whether b is the same version as v, read again.
func (v *Version) same(b *Version) bool {
	return v.URL == b.URL && v.Agent == b.Agent && v.Effective.Equal(b.Effective) && v.SHA256 == b.SHA256 && v.Class == b.Class
}

func versionOf(k key, c *copied) *Version {
	v := &Version{
		Host: k.host, URL: k.url(), Agent: k.agent, Class: c.class, Status: c.status, HTTPStatus: c.status, SHA256: c.sha,
		Effective: c.from, Fetched: c.fetched, Until: c.expires, Hops: c.hops, Final: c.final, ETag: c.etag,
		Modified: c.modified, Truncated: c.truncated, Bytes: c.bytes,
	}
	if v.SHA256 != "" {
		v.File = bodyFile(v.SHA256)
	}
	return v
}

func (v *Version) copied(token string, fallback []string) *copied {
	return &copied{
		class: v.Class, token: token, fallback: fallback, status: v.HTTPStatus, sha: v.SHA256, from: v.Effective,
		fetched: v.Fetched, expires: v.Until, final: v.Final, etag: v.ETag, modified: v.Modified, hops: v.Hops,
		truncated: v.Truncated, bytes: v.Bytes,
	}
}

func (v *Version) failure(cause error) *failure {
	return &failure{
		class: v.Class, reason: v.Reason, status: v.HTTPStatus, at: v.Fetched, next: v.Until, count: v.Failures,
		note: v.Note, cause: cause,
	}
}

func (v *Version) isGood() bool { return (&outcome{class: v.Class}).good() }

// bodyFile is where a body is kept, relative to the archive.
func bodyFile(sha string) string { return bodiesName + "/" + sha[:2] + "/" + sha + ".txt" }

// valid tells whether a line can be used; a body's name in particular must not lead out of the archive.
func (v *Version) valid() bool {
	if v.URL == "" || v.Effective.IsZero() || v.Class == "" {
		return false
	}
	if v.Good != nil && !v.Good.valid() {
		return false
	}
	if v.SHA256 == "" {
		return v.File == "" && v.Class != ClassNoMatch
	}
	if len(v.SHA256) != 64 || strings.Trim(v.SHA256, "0123456789abcdef") != "" {
		return false
	}
	return v.File == bodyFile(v.SHA256)
}
