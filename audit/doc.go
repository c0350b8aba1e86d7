// Package audit keeps what happened: one event for every decision of the gate, in a hash chain that shows any later change.
//
// A [Log] is one append-only file of JSON lines with one writer. Each line carries the hash of the line before it, so that
// an altered, removed, doubled or moved line is found by [Verify]; signed checkpoints and a head kept elsewhere show a cut
// tail. URLs enter an event only through [Event.SetURL] and [Event.SetLocation]: what is secret in them is masked before
// the line is built, never afterwards.
//
//	log, err := audit.Open(audit.Defaults(), stateDir, nil)
//	...
//	if err := log.Ready(); err != nil {
//		// answer audit-unavailable, send nothing
//	}
//	e := &audit.Event{ID: audit.NewID(), Decision: audit.Forwarded, Reason: "ok"}
//	e.SetURL(u)
//	err = log.Record(ctx, e)
//
// The chain is evidence of tampering, not proof against an owner of the machine who rewrites everything since the last
// head that was kept elsewhere.
package audit
