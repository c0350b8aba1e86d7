package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/allowlist"
	"crawlgate/configs"
)

// openSiteLedger asks the instance that holds the state folder, or opens the ledger in it.
func openSiteLedger(ctx context.Context, a *app) (siteLedger, error) {
	cfg, _, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return nil, err
	}
	return openLedgerOf(ctx, cfg)
}

func openLedgerOf(ctx context.Context, cfg *configs.Config) (siteLedger, error) {
	if c, err := dialControl(cfg.StateDir); err == nil {
		return &remoteLedger{ctx: ctx, c: c}, nil
	}
	if cfg.Redis.URL != "" {
		l, done, err := openRedisLedger(cfg)
		if err != nil {
			return nil, err
		}
		return &ownLedger{Ledger: l, done: done}, nil
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, usage("state_dir: %w", err)
	}
	db, err := openState(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	store, err := allowlist.NewBoltStore(db)
	if err != nil {
		db.Close()
		return nil, fail("%w", err)
	}
	l, err := ledgerIn(store)
	if err != nil {
		db.Close()
		return nil, fail("%w", err)
	}
	return &ownLedger{Ledger: l, done: db.Close}, nil
}

// ledgerIn opens the ledger of a store for a command; a host that is resumed has its gone pages asked for again.
func ledgerIn(store interface {
	allowlist.LedgerStore
	allowlist.GoneStore
}) (*allowlist.Ledger, error) {
	gone, err := allowlist.NewGone(store, nil)
	if err != nil {
		return nil, err
	}
	l, err := allowlist.NewLedger(store, nil)
	if err != nil {
		return nil, err
	}
	l.OnChange(func(c allowlist.Change) {
		if c.After == nil {
			_, err = gone.Lift(c.Host)
		}
	})
	return l, nil
}

// ownLedger is the ledger of a state folder that nobody else holds, or the one in Redis.
type ownLedger struct {
	*allowlist.Ledger
	done func() error
}

func (l *ownLedger) List() ([]allowlist.Entry, error) { return l.Ledger.List(), nil }
func (l *ownLedger) Close() error                     { return l.done() }

// remoteLedger is the ledger of the running instance; changes are in force there at once.
type remoteLedger struct {
	ctx context.Context //nolint:containedctx // one command's
	c   *controlClient
}

func (l *remoteLedger) put(path string, e allowlist.Entry) (out allowlist.Entry, err error) {
	err = l.c.do(l.ctx, http.MethodPost, path, e, &out)
	return out, err
}

func (l *remoteLedger) Stop(e allowlist.Entry) (allowlist.Entry, error) {
	return l.put("/ledger/stop", e)
}
func (l *remoteLedger) Slow(e allowlist.Entry) (allowlist.Entry, error) {
	return l.put("/ledger/slow", e)
}

func (l *remoteLedger) Resume(host string) (*allowlist.Entry, error) {
	var out struct {
		Removed *allowlist.Entry `json:"removed"`
		Note    string           `json:"note"`
	}
	if err := l.c.do(l.ctx, http.MethodPost, "/ledger/resume?host="+url.QueryEscape(host), nil, &out); err != nil {
		return nil, err
	}
	if out.Note != "" {
		return out.Removed, &coveredError{out.Note}
	}
	return out.Removed, nil
}

// coveredError is allowlist.ErrStillCovered as the instance worded it.
type coveredError struct{ text string }

func (e *coveredError) Error() string { return e.text }
func (e *coveredError) Is(target error) bool {
	return errors.Is(target, allowlist.ErrStillCovered)
}

func (l *remoteLedger) List() (out []allowlist.Entry, err error) {
	err = l.c.get(l.ctx, "/ledger", &out)
	return out, err
}

func (l *remoteLedger) Close() error { return nil }

// askLedger says whether a host is stopped (removed) or slowed by the ledger, why, and since when. Where there is no
// state folder there is no ledger.
func askLedger(cmd *cobra.Command, a *app, host string) (state, reason string, since time.Time, err error) {
	overrides := map[string]string{}
	if f := cmd.Flags().Lookup("state-dir"); f != nil && f.Changed {
		overrides["state_dir"] = f.Value.String()
	}
	cfg, _, err := a.loader(identityFlags{}, overrides)()
	if err != nil {
		return "", "", time.Time{}, err
	}
	if _, err := os.Stat(filepath.Join(cfg.StateDir, "state.db")); err != nil && cfg.Redis.URL == "" {
		return "", "", time.Time{}, nil //nolint:nilerr // nothing was ever entered
	}
	l, err := openLedgerOf(cmd.Context(), cfg)
	if err != nil {
		return "", "", time.Time{}, err
	}
	defer l.Close()
	list, err := l.List()
	if err != nil {
		return "", "", time.Time{}, err
	}
	for _, e := range list {
		if !e.Covers(host) {
			continue
		}
		if e.Action == allowlist.ActionStop {
			return "removed", e.Reason, e.When, nil
		}
		state, reason, since = "slowed", e.Reason, e.When
	}
	return state, reason, since, nil
}
