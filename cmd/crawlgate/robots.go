package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
)

func newRobotsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "robots",
		Short:   "ask what a robots.txt says",
		Example: "  crawlgate robots test --robots robots.txt --agent ExampleBot https://example.com/private/\n  crawlgate robots test --responses answers.json --preset unlob --json https://example.com/",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRobotsTestCmd(a))
	return cmd
}

// robotsFlags are the flags of `robots test`.
type robotsFlags struct {
	robots, responses string
	agent             string
	fallback          []string
	stopOn            []string
	preset, mode, at  string
	set               []string
	verbose, asJSON   bool
}

func newRobotsTestCmd(a *app) *cobra.Command {
	var f robotsFlags
	cmd := &cobra.Command{
		Use:   "test (--robots FILE | --responses FILE) --agent TOKEN URL...",
		Short: "judge URLs by a robots.txt file, without the network",
		Long: `Judges each URL by the robots.txt in FILE (- is standard input), or by what a
site answered when asked for it: a JSON array of responses in the order they
came, {"status","headers","body"} or {"error": "timeout"|"dns"|"reset"|"tls"}.

Nothing stops but rules, unless --preset or --stop-on says so. --preset takes
the first profile with --mode of a built-in preset; --set overrides one key of
its robots block, as in --set on_401_403=deny.

Exit status: 0 all allowed, 3 one or more refused, 2 wrong usage or no such file.`,
		Example: "  crawlgate robots test --robots robots.txt --agent ExampleBot --stop-on ai-input=no https://example.com/a https://example.com/b\n" +
			"  crawlgate robots test --responses answers.json --preset roftrlabs --mode obey --json https://example.com/",
		Args: someArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.test(cmd, a.stdin)
			if err != nil {
				return err
			}
			return a.robotsTest(cmd.Context(), t, &f, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.robots, "robots", "", "robots.txt `FILE` to judge by")
	fl.StringVar(&f.responses, "responses", "", "`FILE` with what the site answered for robots.txt, as JSON")
	fl.StringVar(&f.agent, "agent", "", "product `TOKEN` of the crawler (default: the preset's)")
	fl.StringArrayVar(&f.fallback, "fallback-agent", nil, "`TOKEN` to try when no group names the agent (repeat, in order)")
	fl.StringSliceVar(&f.stopOn, "stop-on", nil, "signals that count as Disallow: /, as `KEY=VALUE,...`")
	fl.StringVar(&f.preset, "preset", "", "take mode, when_unreadable, stop_on and third_party from a preset `NAME`")
	fl.StringVar(&f.mode, "mode", "", "`MODE`: obey, named or ignore (default obey, or the preset's first)")
	fl.StringVar(&f.at, "at", "", "moment for time windows, `TIME` as in RFC 3339 (default now)")
	fl.StringArrayVar(&f.set, "set", nil, "override a key of the profile's robots block, as `KEY=VALUE` (repeat)")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "list ignored lines and why on standard error")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object for each URL")
	cmd.MarkFlagsMutuallyExclusive("robots", "responses")
	cmd.MarkFlagsOneRequired("robots", "responses")
	return cmd
}

// robotsTest is what `robots test` judges with.
type robotsTest struct {
	profile  policy.ProfileConfig
	token    string
	fallback []string
	at       time.Time
	body     []byte         // with --robots
	answers  []robotsAnswer // with --responses
	group    *policy.Group  // of body: what binds the agent
	file     string
}

// robotsAnswer is one element of --responses.
type robotsAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Error   string            `json:"error"`
}

// test makes a robotsTest out of the flags and reads its file.
func (f *robotsFlags) test(cmd *cobra.Command, stdin io.Reader) (*robotsTest, error) {
	t := &robotsTest{profile: policy.ProfileDefaults(), token: f.agent, fallback: f.fallback, at: time.Now(), file: f.robots + f.responses}
	t.profile.StopOn = []string{}
	if f.preset != "" {
		if err := t.take(f.preset, f.mode); err != nil {
			return nil, err
		}
	} else if f.mode != "" {
		t.profile.Mode = f.mode
	}
	if t.token == "" {
		return nil, usage("--agent is missing: the product token that groups are matched with")
	}
	for _, token := range append([]string{t.token}, f.fallback...) {
		if problem, warning := policy.TokenProblem(token, ""); problem != "" && !warning {
			return nil, usage("agent %q %s", token, problem)
		}
	}
	if f.at != "" {
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, usage("--at %q is no time as in RFC 3339, like 2026-01-31T10:00:00Z", f.at)
		}
		t.at = at
	}
	for _, s := range f.set {
		if err := setKey(&t.profile, s); err != nil {
			return nil, err
		}
	}
	if cmd.Flags().Changed("stop-on") {
		t.profile.StopOn = slices.DeleteFunc(slices.Clone(f.stopOn), func(s string) bool { return s == "" })
	}
	if err := t.profile.Validate(); err != nil {
		return nil, usage("%s", oneLine(err))
	}
	return t, t.read(f, stdin)
}

// oneLine names the key of each problem.
func oneLine(err error) string {
	list := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		list = many.Unwrap()
	}
	var out []string
	for _, e := range list {
		if k, ok := e.(interface{ Key() string }); ok {
			out = append(out, k.Key()+": "+e.Error())
		} else {
			out = append(out, e.Error())
		}
	}
	return strings.Join(out, "; ")
}

// take copies what a preset says about robots.txt: its first profile with that mode, or its first.
func (t *robotsTest) take(name, mode string) error {
	if !slices.Contains(configs.Presets(), name) {
		return usage("--preset %q is not one of %s", name, strings.Join(configs.Presets(), ", "))
	}
	c, err := configs.Preset(name)
	if err != nil {
		return fail("preset %s: %v", name, err)
	}
	i := slices.IndexFunc(c.Profiles, func(p configs.Profile) bool { return mode == "" || p.Robots.Mode == mode })
	if i < 0 {
		return usage("preset %s has no profile with mode %q", name, mode)
	}
	p := c.Profiles[i]
	t.profile = p.Robots
	t.profile.StopOn = c.StopOn(p)
	if agent, ok := c.Agent(p.Agent); ok && t.token == "" {
		t.token = agent.ProductToken
		t.fallback = append(t.fallback, agent.FallbackTokens...)
	}
	return nil
}

// setKey overrides one key of a robots block.
func setKey(c *policy.ProfileConfig, assignment string) error {
	key, value, ok := strings.Cut(assignment, "=")
	if !ok {
		return usage("--set %q is not KEY=VALUE", assignment)
	}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: c, WeaklyTypedInput: true, ErrorUnused: true,
		MatchName:  func(key, field string) bool { return key == field },
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	})
	if err != nil {
		return err
	}
	if key == "" || d.Decode(map[string]any{key: value}) != nil {
		return usage("--set %s: no such key of a robots block, or %q does not fit it", key, value)
	}
	return nil
}

// mostRobotsInput bounds what --robots and --responses read: a device has no end.
const mostRobotsInput = 64 << 20

// read loads --robots or --responses.
func (t *robotsTest) read(f *robotsFlags, stdin io.Reader) error {
	in := stdin
	if t.file != "-" {
		file, err := os.Open(t.file)
		if err != nil {
			return usage("%v", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, mostRobotsInput+1))
	if err != nil {
		return usage("%v", err)
	}
	if len(data) > mostRobotsInput {
		return usage("%s: longer than %d MiB", t.file, mostRobotsInput>>20)
	}
	if f.robots != "" {
		t.body, t.group = data, t.bind(policy.Parse(data))
		return nil
	}
	if err := json.Unmarshal(data, &t.answers); err != nil {
		return usage("%s: no JSON array of responses: %v", t.file, err)
	}
	for i, r := range t.answers {
		if r.Error == "" && (r.Status < 100 || r.Status > 999) || !slices.Contains([]string{"", "timeout", "dns", "reset", "tls"}, r.Error) {
			return usage(`%s: response %d has neither a status nor an error of timeout, dns, reset, tls`, t.file, i+1)
		}
	}
	return nil
}

func (a *app) robotsTest(ctx context.Context, t *robotsTest, f *robotsFlags, urls []string) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	refused := false
	bodies := map[string]bool{}
	for _, raw := range urls {
		v, body, err := t.judge(ctx, raw)
		if err != nil {
			return err
		}
		if f.verbose && body != nil && !bodies[string(body)] {
			bodies[string(body)] = true
			a.printIgnored(t.file, body)
		}
		refused = refused || !v.Allowed
		if f.asJSON {
			err = enc.Encode(jsonVerdict(v))
		} else {
			err = printRobotsVerdict(a.stdout, raw, v)
		}
		if err != nil {
			return fail("%v", err)
		}
	}
	if refused {
		return &exitError{exitRefused, nil}
	}
	return nil
}

// judge answers for one URL; body is what was judged by, nil when nothing was.
func (t *robotsTest) judge(ctx context.Context, raw string) (v policy.Verdict, body []byte, err error) {
	u, err := url.Parse(guard.EscapeStray(raw))
	switch {
	case err != nil:
	case u.Scheme != "http" && u.Scheme != "https":
		err = errors.New("no http or https URL")
	case u.Host == "":
		return v, nil, usage("%s: no host", strconv.QuoteToASCII(raw))
	}
	if err != nil && (t.answers != nil || !strings.HasPrefix(raw, "http://") && !strings.HasPrefix(raw, "https://")) {
		return v, nil, usage("%s: no http or https URL", strconv.QuoteToASCII(raw))
	}
	group := t.group
	if t.answers != nil {
		s := &robotsScript{answers: t.answers}
		if s.guard, err = guard.New(guard.Defaults(), nil); err != nil {
			return v, nil, fail("%v", err)
		}
		profile := t.profile
		profile.Retries = 0 // each response stands for one try
		v = policy.New(policy.Defaults(), s, nil, nil).Check(ctx, policy.Query{
			URL: u, Agent: "test", Token: t.token, Fallback: t.fallback, Profile: profile,
		})
		if v.SHA256 == "" {
			return v, nil, nil
		}
		body = s.body
		group = t.bind(policy.Parse(body))
	} else {
		body = t.body
	}
	if t.profile.Mode == policy.ModeIgnore {
		return ignored(raw), nil, nil
	}
	o := policy.Options{
		StopOn: t.profile.StopOn, NamedGroupStopsAll: t.profile.NamedGroupStopsAll,
		EnforceVisitTime: t.profile.VisitTime == policy.Enforce, At: t.at,
	}
	v = group.DecideString(raw, o)
	if sent := guard.EscapeStray(raw); v.Allowed && sent != raw {
		v = group.DecideString(sent, o) // as it leaves: the gate judges by both, and so does this
	}
	return v, body, nil
}

// bind compiles the part of a file that binds the agent.
func (t *robotsTest) bind(rs *policy.Ruleset) *policy.Group {
	if t.profile.Mode == policy.ModeNamed {
		return rs.NamedGroup(t.token, t.fallback...)
	}
	return rs.Group(t.token, t.fallback...)
}

// ignored is the verdict of mode ignore: no file is read, and robots.txt itself is called by its name.
func ignored(raw string) policy.Verdict {
	v := policy.Parse(nil).Group("").DecideString(raw, policy.Options{})
	if v.Class != policy.ClassRobotsItself {
		v = policy.Verdict{Allowed: true, Reason: policy.ReasonOK, Class: policy.ClassNotConsulted}
	}
	return v
}
