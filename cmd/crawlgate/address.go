package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/proxy/guard"
)

func newAddressCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "address",
		Short:   "ask which addresses may be reached",
		Example: "  crawlgate address test 10.0.0.1\n  crawlgate address test wiki.example.net --answers 93.184.215.14,10.1.2.3",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAddressTestCmd(a))
	return cmd
}

// addressVerdict is one line of `address test --json`.
type addressVerdict struct {
	Input   string `json:"input"`
	Allowed bool   `json:"allowed"`
	Class   string `json:"class"`   // public, or why it is refused
	Address string `json:"address"` // the address that decided; "" when a name or a spelling did
}

func newAddressTestCmd(a *app) *cobra.Command {
	var (
		port    int
		answers string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "test INPUT...",
		Short: "classify addresses, or names with given answers, without the network",
		Long: `Says for each INPUT whether crawlgate would connect to it, and why not.

INPUT is an address, a host as it stands in a URL (IPv6 in brackets), or a
name. Of a name, the spelling and the special-use names are judged; with
--answers also the addresses it would resolve to, all of which must pass.
Nothing is resolved or connected to. The rules are the built-in ones; with
--config, those of that file's egress block, exceptions included.

Exit status: 0 all allowed, 3 one or more refused, 2 wrong usage.`,
		Example: "  crawlgate address test 169.254.169.254 2606:4700::6810:84e5\n" +
			"  crawlgate address test --json --port 8080 --answers 93.184.215.14,10.1.2.3 wiki.example.net",
		Args: someArgs("INPUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if port < 0 || port > 65535 {
				return usage("--port %d is not a port from 0 to 65535", port)
			}
			given, err := parseAnswers(answers)
			if err != nil {
				return err
			}
			d, err := a.offlineGuard()
			if err != nil {
				return err
			}
			t := addressTest{d, uint16(port), cmd.Flags().Changed("answers"), given}
			verdicts := make([]addressVerdict, len(args))
			refused := false
			for i, in := range args {
				if verdicts[i], err = t.judge(in); err != nil {
					return err
				}
				refused = refused || !verdicts[i].Allowed
			}
			if err := a.printVerdicts(verdicts, asJSON); err != nil {
				return fail("%v", err)
			}
			if refused {
				return &exitError{code: exitRefused}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&port, "port", 443, "the `PORT` that would be connected to")
	f.StringVar(&answers, "answers", "", "the addresses that the names resolve to, as `A,B`; empty: none")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// offlineGuard has the rules of the configuration that --config names, else the
// built-in ones. Whether this machine has the source addresses is of no
// interest here.
func (a *app) offlineGuard() (*guard.Dialer, error) {
	rules := guard.Defaults()
	if a.configFile != "" {
		c, _, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ()})
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		rules = c.Egress
		rules.SourceAddresses = nil
	}
	d, err := guard.New(rules, nil)
	if err != nil {
		return nil, fail("%v", err)
	}
	return d, nil
}

func parseAnswers(list string) ([]netip.Addr, error) {
	var out []netip.Addr
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return nil, usage("--answers: %q is not an address", s)
		}
		out = append(out, addr)
	}
	return out, nil
}

// addressTest is what all inputs of one call share.
type addressTest struct {
	d       *guard.Dialer
	port    uint16
	asked   bool // --answers was given, maybe empty
	answers []netip.Addr
}

func (t addressTest) judge(input string) (addressVerdict, error) {
	v := addressVerdict{Input: input}
	h, err := parseTestHost(input)
	if err == nil {
		answers := t.answers
		if !t.asked {
			answers = t.d.Static(h.Name)
		}
		switch {
		case t.asked && h.IsLiteral():
			return v, usage("--answers belong to names, %s is an address", input)
		case t.asked || len(answers) > 0:
			err = t.d.CheckAnswers(h, t.port, answers)
			if err == nil {
				v.Address = answers[0].Unmap().String()
			}
		default:
			if h.IsLiteral() {
				v.Address = h.Addr.String()
			}
			if err = t.d.CheckHost(h, t.port); err == nil {
				err = t.d.CheckPort(h, t.port)
			}
		}
	}
	var host *guard.HostError
	var denied *guard.Denied
	var resolve *guard.ResolveError
	switch {
	case err == nil:
		v.Allowed, v.Class = true, guard.Public
	case errors.As(err, &host):
		v.Class = host.Class
	case errors.As(err, &denied):
		v.Class = denied.Class
		if denied.Addr.IsValid() {
			v.Address = denied.Addr.String()
		}
	case errors.As(err, &resolve):
		v.Class = resolve.Class
	default:
		return v, fail("%s: %v", input, err)
	}
	return v, nil
}

// parseTestHost takes what ParseHost takes, and a bare IPv6 address, with or
// without a zone.
func parseTestHost(input string) (guard.Host, error) {
	if addr, err := netip.ParseAddr(input); err == nil && addr.Is6() {
		return guard.ParseHost("[" + strings.Replace(input, "%", "%25", 1) + "]")
	}
	return guard.ParseHost(input)
}

func (a *app) printVerdicts(list []addressVerdict, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		for _, v := range list {
			if err := enc.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, v := range list {
		word := "refused"
		if v.Allowed {
			word = "allowed"
		}
		input := v.Input
		if quoted := strconv.QuoteToASCII(input); input == "" || quoted != `"`+input+`"` {
			input = quoted // nothing in an argument reaches the terminal raw
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", input, word, v.Class, v.Address)
	}
	return w.Flush()
}
