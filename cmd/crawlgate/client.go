package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"crawlgate/allowlist"
	"crawlgate/configs"
	"crawlgate/proxy"
)

func newClientCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "client",
		Short: "who may use the proxy: credentials kept in state_dir/clients.yaml",
		Example: "  crawlgate client add team-a --site https://docs.example.org/ --profile crawl\n" +
			"  crawlgate client list",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClientAddCmd(a), newClientListCmd(a), newClientRemoveCmd(a))
	return cmd
}

// clientFile reads state_dir/clients.yaml and the whole configuration beside it.
func (a *app) clientFile() (*configs.Config, string, []configs.Client, error) {
	cfg, _, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return nil, "", nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, "", nil, usage("state_dir: %w", err)
	}
	file := configs.ClientsFile(cfg.StateDir)
	list, err := configs.ReadClients(file)
	if err != nil {
		return nil, "", nil, &exitError{exitUsage, err}
	}
	return cfg, file, list, nil
}

// saveClients checks that the whole configuration holds with the clients after, writes the file and tells a running gate. What
// that gate does not take (it may run by another file) is put back.
func (a *app) saveClients(cmd *cobra.Command, cfg *configs.Config, file string, before, after []configs.Client) error {
	try, err := os.CreateTemp(cfg.StateDir, ".clients-try-*.yaml")
	if err != nil {
		return fail("%w", err)
	}
	try.Close()
	defer os.Remove(try.Name())
	if err := configs.WriteClients(try.Name(), after); err != nil {
		return fail("%w", err)
	}
	if _, _, err := configs.Load(configs.Options{File: a.configFile, Env: os.Environ(), Clients: try.Name()}); err != nil {
		return &exitError{exitUsage, inArguments(err, try.Name())}
	}
	if err := configs.WriteClients(file, after); err != nil {
		return fail("%w", err)
	}
	if c, err := dialControl(cfg.StateDir); err == nil {
		if err := c.do(cmd.Context(), http.MethodPost, "/reload", nil, nil); err != nil {
			if werr := configs.WriteClients(file, before); werr != nil {
				return fail("the running gate did not take it: %w (and %s could not be put back: %v)", err, file, werr)
			}
			return fail("the running gate did not take it, so nothing is changed: %w", err)
		}
	}
	return nil
}

// inArguments says the problems of a client that was to be added in terms of the command line that described it.
func inArguments(err error, file string) error {
	var all *configs.Error
	if !errors.As(err, &all) {
		return err
	}
	said := map[string]string{"name": "NAME", "profiles": "--profile", "sites": "--site", "grants": "--grant"}
	var texts []string
	for _, p := range all.Problems {
		_, key, _ := strings.Cut(p.Key, ".")
		key, _, _ = strings.Cut(key, "[")
		if p.File != file || said[key] == "" {
			return err
		}
		texts = append(texts, said[key]+": "+p.Text)
	}
	return errors.New(strings.Join(texts, "\ncrawlgate: "))
}

func newClientAddCmd(a *app) *cobra.Command {
	var sites, profiles, grants []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "add a client and print its secret, once",
		Long: `Makes a client with a generated secret, which is printed once and stored as a hash. --site may be given several times:
a whole site, a path of it, sitemap:URL for the URLs of a sitemap, or page:URL for one page.`,
		Example: "  crawlgate client add team-a --site https://docs.example.org/ --profile crawl\n  crawlgate client add search --site sitemap:https://www.example.org/sitemap.xml",
		Args:    oneArg("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, file, list, err := a.clientFile()
			if err != nil {
				return err
			}
			name := args[0]
			for _, c := range cfg.Clients {
				if c.Name == name {
					return usage("client %s is there already; remove it first, or choose another name", name)
				}
			}
			secret, hash, err := proxy.NewSecret()
			if err != nil {
				return fail("%w", err)
			}
			c := configs.Client{Name: name, SecretHash: hash, Profiles: profiles, Grants: grants, Enforce: true}
			if !cmd.Flags().Changed("grant") {
				c.Grants = allowlist.DefaultGrants()
			}
			pages := []string{}
			for _, s := range sites {
				switch {
				case strings.HasPrefix(s, "sitemap:"):
					c.Sites = append(c.Sites, allowlist.Site{Sitemap: strings.TrimPrefix(s, "sitemap:")})
				case strings.HasPrefix(s, "page:"):
					pages = append(pages, strings.TrimPrefix(s, "page:"))
				default:
					var site allowlist.Site
					if err := site.UnmarshalText([]byte(s)); err != nil {
						return usage("--site: %w", err)
					}
					c.Sites = append(c.Sites, site)
				}
			}
			if len(pages) > 0 {
				c.Sites = append(c.Sites, allowlist.Site{Pages: pages})
			}
			if err := a.saveClients(cmd, cfg, file, list, append(slices.Clone(list), c)); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string]string{"name": name, "secret": secret, "file": file})
			}
			at := cfg.Listen
			if c, err := dialControl(cfg.StateDir); err == nil {
				var st status
				if c.get(cmd.Context(), "/status", &st) == nil {
					_, at, _ = strings.Cut(st.Proxy, "://")
				}
			}
			proxyURL := "http://" + name + ":" + secret + "@" + at
			fmt.Fprintf(a.stdout, "%s\n", secret)
			fmt.Fprintf(a.stderr, "client %s is in %s; its secret is shown this once\n\n", name, file)
			fmt.Fprintf(a.stderr, "  curl        https_proxy=%s curl --cacert \"$(crawlgate ca path)\" URL\n", proxyURL)
			fmt.Fprintf(a.stderr, "  python      requests.get(URL, proxies={'https': '%s'}, verify=CA)\n", proxyURL)
			fmt.Fprintf(a.stderr, "  scrapy      request.meta['proxy'] = '%s'\n", proxyURL)
			fmt.Fprintf(a.stderr, "  playwright  launch({proxy: {server: 'http://%s', username: '%s', password: SECRET}})\n", at, name)
			fmt.Fprintf(a.stderr, "  node        new ProxyAgent({uri: '%s', requestTls: {ca}})\n", proxyURL)
			fmt.Fprintf(a.stderr, "  go          HTTPS_PROXY=%s SSL_CERT_FILE=BUNDLE\n", proxyURL)
			if len(cfg.Clients) == 0 {
				fmt.Fprintf(a.stderr, "\nit is the first client: from now on the proxy wants a name and secret from everybody\n")
			}
			if len(c.Sites) == 0 {
				fmt.Fprintf(a.stderr, "\nit has no site yet, so it reaches nothing but under a profile with sites: any (--site adds one)\n")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&sites, "site", nil, "site the client may reach; may be repeated")
	f.StringArrayVar(&profiles, "profile", nil, "profile the client may use; the first is its default")
	f.StringArrayVar(&grants, "grant", nil, "redirects, redirects-same-site, files or subresources (default redirects, files)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newClientListCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "show all clients, of the file and of state_dir", Args: noArgs,
		Example: "  crawlgate client list\n  crawlgate client list --json",
		RunE: func(*cobra.Command, []string) error {
			cfg, _, own, err := a.clientFile()
			if err != nil {
				return err
			}
			inState := map[string]bool{}
			for _, c := range own {
				inState[c.Name] = true
			}
			type item struct {
				Name     string   `json:"name"`
				Auth     string   `json:"auth"`
				Profiles []string `json:"profiles"`
				Sites    []string `json:"sites"`
				From     string   `json:"from"`
			}
			items := []item{}
			for _, c := range cfg.Clients {
				it := item{Name: c.Name, Auth: "secret", Profiles: c.Profiles, Sites: []string{}, From: "file"}
				switch {
				case c.SecretHash == "" && c.Listen != "":
					it.Auth = "listener " + c.Listen
				case c.SecretHash == "":
					it.Auth = "network " + strings.Join(c.Sources, " ")
				}
				for _, s := range c.Sites {
					it.Sites = append(it.Sites, s.String())
				}
				if inState[c.Name] {
					it.From = "state_dir"
				}
				items = append(items, it)
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(items)
			}
			if len(items) == 0 {
				fmt.Fprintln(a.stderr, "no client is configured: the proxy is open, on loopback only (crawlgate client add NAME --site URL)")
				return nil
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tAUTH\tPROFILES\tSITES\tFROM")
			for _, it := range items {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", it.Name, it.Auth, strings.Join(it.Profiles, ","), strings.Join(it.Sites, " "), it.From)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newClientRemoveCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "remove a client of state_dir; its secret stops working at once", Args: oneArg("NAME"),
		Example: "  crawlgate client remove team-a\n  crawlgate client list",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, file, list, err := a.clientFile()
			if err != nil {
				return err
			}
			rest := slices.DeleteFunc(slices.Clone(list), func(c configs.Client) bool { return c.Name == args[0] })
			if len(rest) == len(list) {
				for _, c := range cfg.Clients {
					if c.Name == args[0] {
						return usage("client %s stands in the configuration file; remove it there", args[0])
					}
				}
				return usage("no client is named %s", args[0])
			}
			return a.saveClients(cmd, cfg, file, list, rest)
		},
	}
}
