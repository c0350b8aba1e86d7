package audit

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
)

// SignedText is what a checkpoint's signature covers: head, number and time, and the removed range when there is one.
func (c Checkpoint) SignedText(at time.Time) []byte {
	b := []byte("crawlgate-checkpoint-1\n")
	b = append(b, c.Head...)
	b = append(b, '\n')
	b = strconv.AppendUint(b, c.Seq, 10)
	b = append(b, '\n')
	b = appendTime(b, at)
	b = append(b, '\n')
	if c.RemovedTo != 0 {
		b = fmt.Appendf(b, "removed %d %d %s\n", c.RemovedFrom, c.RemovedTo, c.RemovedHead)
	}
	return b
}

// Verify tells whether one of the keys signed the checkpoint at that time.
func (c Checkpoint) Verify(at time.Time, keys Keys) error {
	pub, ok := keys[c.SignedBy]
	if !ok {
		return fmt.Errorf("checkpoint of seq %d is signed by %s, which is not among the keys", c.Seq, Printable(c.SignedBy, 64))
	}
	sig, err := base64.RawURLEncoding.DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(pub, c.SignedText(at), sig) {
		return fmt.Errorf("checkpoint of seq %d: the signature of %s is wrong", c.Seq, c.SignedBy)
	}
	return nil
}

// appendCheckpoint signs the present head into the pending batch. The caller holds l.mu.
func (l *Log) appendCheckpoint(removed Checkpoint) {
	e := &Event{Type: TypeCheckpoint, Time: time.Now(), Checkpoint: removed}
	c := &e.Checkpoint
	c.Seq, c.Head, c.SignedBy = l.seq, l.head, l.signer.id
	c.Signature = base64.RawURLEncoding.EncodeToString(ed25519.Sign(l.signer.key, c.SignedText(e.Time)))
	l.appendOwn(e)
	l.sinceCheckpoint = 0
	l.signed = Head{Seq: c.Seq, Head: c.Head, Time: e.Time, File: l.path}
	l.pending.heads = append(l.pending.heads, e)
}

// Printable shortens text that strangers may have written and leaves only what a terminal shows harmlessly.
func Printable(s string, limit int) string {
	b, cut := appendString(nil, s, limit)
	if cut {
		return string(b[1:len(b)-1]) + "..."
	}
	return string(b[1 : len(b)-1])
}
