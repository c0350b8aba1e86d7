package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/sign"
)

// defaultAgent is the agent of an installation that configures none; its keys are in state_dir/keys/default.
const defaultAgent = "default"

// loadForKeys gives what the key commands and verify need of the configuration. The one agent named `default` stands in
// where none is configured, so that a first key can be made before anything else.
func loadForKeys(a *app) (stateDir string, agents []sign.Agent, cfg sign.Config, pub sign.PublishConfig, err error) {
	c, _, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
	if err != nil {
		return "", nil, cfg, pub, &exitError{exitUsage, err}
	}
	agents = c.SignAgents()
	if len(agents) == 0 {
		agents = []sign.Agent{{Name: defaultAgent}}
	}
	return c.StateDir, agents, c.Sign, c.Publish, nil
}

// keysFlags are shared by all key commands.
type keysFlags struct {
	stateDir, agent string
	asJSON          bool
}

// keyring loads the configuration; --state-dir goes before it.
func (f *keysFlags) keyring(a *app) (sign.Keyring, error) {
	dir, agents, c, p, err := loadForKeys(a)
	if err != nil {
		return sign.Keyring{}, err
	}
	if f.stateDir != "" {
		dir = f.stateDir
	}
	if f.agent != "" && !slices.ContainsFunc(agents, func(a sign.Agent) bool { return a.Name == f.agent }) {
		var names []string
		for _, a := range agents {
			names = append(names, a.Name)
		}
		hint := ""
		if n := nearest(f.agent, names); n != "" {
			hint = "; did you mean " + n + "?"
		}
		return sign.Keyring{}, usage("--agent: no agent %q%s", f.agent, hint)
	}
	return sign.Keyring{StateDir: dir, Config: c, Publish: p, Agents: agents}, nil
}

func newKeysCmd(a *app) *cobra.Command {
	f := &keysFlags{}
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "make, rotate and publish the keys that requests are signed with",
		Long: `The keys of Web Bot Auth: Ed25519, one pair for each agent, named by their
thumbprint (RFC 7638). A key is published first, then active (it signs), then
retiring (it no longer signs, but others may still verify with it), then gone.

A running gate is told of a change and takes it up at once.`,
		Example: "  crawlgate keys new --agent example\n  crawlgate keys list",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.stateDir, "state-dir", "", "`DIR` that holds keys/ (default: state_dir of the configuration)")
	cmd.AddCommand(newKeysNewCmd(a, f), newKeysListCmd(a, f), newKeysRotateCmd(a, f), newKeysRetireCmd(a, f),
		newKeysDirectoryCmd(a, f), newKeysCardCmd(a, f))
	return cmd
}

func (f *keysFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.agent, "agent", "", "`NAME` of the agent (default: the only one)")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

func newKeysNewCmd(a *app, f *keysFlags) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "make a key and print its thumbprint and public JWK",
		Long: `Makes a key pair. The first key of an agent is active at once, later ones are
only published until keys rotate. The private half never leaves its file, which
has mode 0600.

With --out the key is written to FILE, which must not exist, and nothing in
state_dir changes: for secrets that are mounted and named in agents[].key_file.`,
		Example: "  crawlgate keys new --agent example\n  crawlgate keys new --out bot-key.pem",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out != "" {
				made, err := sign.NewFile(out)
				if err != nil {
					return keysError(err)
				}
				return f.printMade(a, made)
			}
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			made, err := k.New(f.agent)
			if err != nil {
				return keysError(err)
			}
			if err := f.printMade(a, made); err != nil {
				return err
			}
			if _, err := tellRunning(cmd.Context(), k.StateDir); err != nil || f.asJSON {
				return err
			}
			if agent, err := k.Agent(f.agent); err == nil && agent.SignatureAgent == "" {
				fmt.Fprintf(a.stderr, "requests stay unsigned until agent %s has a signature_agent\n", agent.Name)
			}
			if !made.NextAt.IsZero() {
				fmt.Fprintf(a.stderr, "it is published but signs nothing yet; %s is possible from %s\n", made.Next, keyTime(made.NextAt))
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "write the key to `FILE` instead of state_dir")
	return cmd
}

// printMade tells of a new key all that may be told.
func (f *keysFlags) printMade(a *app, made sign.KeyInfo) error {
	if f.asJSON {
		return keysJSON(a, made)
	}
	jwk, err := json.Marshal(made.JWK)
	if err != nil {
		return fail("%w", err)
	}
	state := ""
	if made.State != "" {
		state = " (" + made.State + ")"
	}
	_, err = fmt.Fprintf(a.stdout, "key   %s%s\nfile  %s\njwk   %s\n", made.ID, state, made.File, jwk)
	return err
}

func newKeysListCmd(a *app, f *keysFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "show all keys, their state and the next step",
		Example: "  crawlgate keys list\n  crawlgate keys list --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			all, err := k.List()
			if err != nil {
				return keysError(err)
			}
			if f.agent != "" {
				var some []sign.KeyInfo
				for _, i := range all {
					if i.Agent == f.agent {
						some = append(some, i)
					}
				}
				all = some
			}
			if f.asJSON {
				if all == nil {
					all = []sign.KeyInfo{}
				}
				return keysJSON(a, all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.stderr, "no keys; crawlgate keys new makes one")
				return nil
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "AGENT\tKEY\tSTATE\tAGE\tNEXT")
			for _, i := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Agent, i.ID, i.State, keyAge(i.Created), keyNext(i))
			}
			return w.Flush()
		},
	}
	f.add(cmd)
	return cmd
}

func keyNext(i sign.KeyInfo) string {
	switch {
	case i.Managed != "":
		return "set by " + i.Managed
	case i.Next == "":
		return "-"
	case time.Now().Before(i.NextAt):
		return i.Next + " from " + keyTime(i.NextAt)
	}
	return i.Next + " now"
}

// keyAge is a rough duration for people.
func keyAge(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	switch d := time.Since(since); {
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func keyTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func newKeysRotateCmd(a *app, f *keysFlags) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "rotate [ID]",
		Short: "make a published key active and let the active one retire",
		Long: `Makes the published key ID (the only published one without ID) active; the
active key stays published as retiring. Refused, with the date, until every
verifier has had the chance to see the new key: publish.max_age and a day.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.`,
		Example: "  crawlgate keys rotate --agent example\n  crawlgate keys rotate --now poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",
		Args:    atMostOneArg("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			active, retiring, err := k.Rotate(f.agent, strings.Join(args, ""), now)
			if err != nil {
				return keysError(err)
			}
			if f.asJSON {
				err = keysJSON(a, []sign.KeyInfo{active, retiring})
			} else {
				_, err = fmt.Fprintf(a.stdout, "active    %s\nretiring  %s\n", active.ID, retiring.ID)
			}
			if err != nil {
				return err
			}
			told, err := tellRunning(cmd.Context(), k.StateDir)
			if err != nil || f.asJSON {
				return err
			}
			from := "a gate on this state folder signs with the active key from its next start"
			if told {
				from = "the running gate signs with the active key from now on"
			}
			fmt.Fprintf(a.stderr, "%s; retire is possible from %s\n", from, keyTime(retiring.NextAt))
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&now, "now", false, "do not wait: signatures may not verify until others have fetched the directory anew")
	return cmd
}

func newKeysRetireCmd(a *app, f *keysFlags) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "retire [ID]",
		Short: "take a key out of the directory and delete its file",
		Long: `Drops the key ID (the only retiring one without ID) and deletes its private
half. The active key can't be retired. Refused, with the date, as long as a
signature made with it may still be under way or cached: sign.lifetime,
publish.max_age and a day after it stopped signing.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.`,
		Example: "  crawlgate keys retire\n  crawlgate keys retire --now poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",
		Args:    atMostOneArg("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			gone, err := k.Retire(f.agent, strings.Join(args, ""), now)
			if err != nil {
				return keysError(err)
			}
			if f.asJSON {
				err = keysJSON(a, gone)
			} else {
				_, err = fmt.Fprintf(a.stdout, "retired  %s\n", gone.ID)
			}
			if err != nil {
				return err
			}
			_, err = tellRunning(cmd.Context(), k.StateDir)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&now, "now", false, "do not wait: for a key that leaked")
	return cmd
}

func newKeysDirectoryCmd(a *app, f *keysFlags) *cobra.Command {
	var authority, out string
	cmd := &cobra.Command{
		Use:   "directory",
		Short: "write the signed key directory for static hosting",
		Long: `Writes the key set to DIR/.well-known/http-message-signatures-directory and the
header fields that must be served with it to DIR/_headers. The fields carry
proofs that expire: run it again before the date it prints, and after every
change of the keys. serve publishes the same without this command.`,
		Example: "  crawlgate keys directory --authority bot.example.com --out public\n  crawlgate keys directory --out public --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				return usage("--out DIR is needed")
			}
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			d, err := k.WriteDirectory(authority, out)
			if err != nil {
				return keysError(err)
			}
			if f.asJSON {
				return keysJSON(a, d)
			}
			fmt.Fprintf(a.stdout, "body     %s\nheaders  %s\n", d.Body, d.Headers)
			if d.Expires.IsZero() {
				fmt.Fprintln(a.stderr, "no key has its private half here, so nothing is proven")
				return nil
			}
			fmt.Fprintf(a.stderr, "the proofs expire at %s: write it again before\n", keyTime(d.Expires))
			if k.Publish.ServeRoot {
				fmt.Fprintln(a.stderr, "where signature_agent is the bare origin, newer verifiers fetch / there: serve the same body and fields at / too")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&authority, "authority", "", "`HOST` it will be served from (default: publish.authority, else the host of signature_agent)")
	cmd.Flags().StringVar(&out, "out", "", "`DIR` to write to")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func newKeysCardCmd(a *app, f *keysFlags) *cobra.Command {
	var facts sign.CardFacts
	cmd := &cobra.Command{
		Use:   "card",
		Short: "print the signature agent card of an agent",
		Long: `Prints the card (draft-meunier-webbotauth-registry-04) as JSON: who the agent
is, where its keys are, and how it behaves, from the configuration. Serve it at
URL with status 200, without a redirect.`,
		Example: "  crawlgate keys card --agent example > signature-agent-card.json\n  crawlgate keys card --url https://bot.example.com/card --rate avg=1rps",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if facts.Trigger != "crawler" && facts.Trigger != "fetcher" {
				return usage("--trigger %q is not one of crawler, fetcher", facts.Trigger)
			}
			k, err := f.keyring(a)
			if err != nil {
				return err
			}
			agent, err := k.Agent(f.agent)
			if err != nil {
				return keysError(err)
			}
			c, _, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
			if err != nil {
				return &exitError{exitUsage, err}
			}
			// What the profiles enforce is not for a flag to say.
			facts.Compliant = cardFacts(c, agent.Name).Compliant
			data, err := sign.Card(agent, k.Publish, facts)
			if err != nil {
				return keysError(err)
			}
			_, err = a.stdout.Write(data)
			return err
		},
	}
	cmd.Flags().StringVar(&f.agent, "agent", "", "`NAME` of the agent (default: the only one)")
	cmd.Flags().StringVar(&facts.URL, "url", "", "`URL` the card will be served at (default: "+sign.CardPath+" on the directory's host)")
	cmd.Flags().StringVar(&facts.Trigger, "trigger", "crawler", "crawler or fetcher")
	cmd.Flags().StringVar(&facts.RateExpectation, "rate", "", "the `RATE` to expect, like avg=1rps")
	return cmd
}

// keysError gives the errors of package sign their exit code: a setting that is wrong is a configuration error.
func keysError(err error) error {
	var s *sign.SettingError
	if errors.As(err, &s) {
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailed, err}
}

// keysJSON writes one indented value for machines.
func keysJSON(a *app, v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// reloadPatience bounds the wait for a running gate to take up changed keys.
const reloadPatience = 30 * time.Second

// tellRunning has the gate that holds the state folder read its keys again. Without one there is nobody to tell.
func tellRunning(ctx context.Context, stateDir string) (told bool, err error) {
	c, err := dialControl(stateDir)
	if err != nil {
		return false, nil //nolint:nilerr // no gate runs
	}
	ctx, cancel := context.WithTimeout(ctx, reloadPatience)
	defer cancel()
	if err := c.do(ctx, http.MethodPost, "/reload", nil, nil); err != nil {
		return false, fail("the key is changed, but the running gate did not take it up: %w", err)
	}
	return true, nil
}
