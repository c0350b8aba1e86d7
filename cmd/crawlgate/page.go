package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/admin"
	"crawlgate/configs"
	"crawlgate/sign"
)

func newPageCmd(a *app) *cobra.Command {
	var format, out, diff, preset string
	cmd := &cobra.Command{
		Use:   "page",
		Short: "write the public page about the crawler, from the running configuration",
		Long: `Writes the page that tells site owners who the crawler is, how to verify, slow or block it, and what it does with each answer. Every
sentence comes from the setting that enforces it. --diff compares with a published copy (its JSON) and exits 1 when they differ.`,
		Example: "  crawlgate page --format html > about.html\n  crawlgate page --format json | ssh web 'cat > about.json'\n  crawlgate page --diff https://bot.example/about.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var cfg *configs.Config
			var err error
			if preset != "" {
				cfg, err = configs.Preset(preset)
			} else {
				cfg, _, err = a.loader(identityFlags{}, nil)()
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			p := admin.BuildPage(cfg, pageKeys(cfg, preset == ""))
			if diff != "" {
				return a.pageDiff(cmd.Context(), diff, p)
			}
			var b []byte
			switch format {
			case "html":
				b, err = p.HTML()
			case "md":
				b, err = p.Markdown()
			case "json":
				b, err = p.JSON()
			default:
				return usage("--format %q is not one of html, md, json", format)
			}
			if err != nil {
				return fail("%w", err)
			}
			if out != "" {
				if err := writeIfChanged(out, b); err != nil {
					return fail("%w", err)
				}
				return nil
			}
			_, err = a.stdout.Write(b)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "html", "html, md or json")
	f.StringVarP(&out, "out", "o", "", "write to `FILE`")
	f.StringVar(&diff, "diff", "", "compare with the published JSON in `FILE|URL`")
	f.StringVar(&preset, "preset", "", "of a built-in preset instead of the configuration: "+strings.Join(configs.Presets(), ", "))
	return cmd
}

// pageKeys are the published keys of every agent.
func pageKeys(cfg *configs.Config, own bool) []admin.PageKey {
	if !own {
		return nil
	}
	ring := sign.Keyring{StateDir: cfg.StateDir, Config: cfg.Sign, Publish: cfg.Publish, Agents: cfg.SignAgents()}
	list, err := ring.List()
	if err != nil {
		return nil
	}
	var out []admin.PageKey
	for _, k := range list {
		out = append(out, admin.PageKey{Agent: k.Agent, Thumbprint: k.ID})
	}
	return out
}

func (a *app) pageDiff(ctx context.Context, where string, now *admin.Page) error {
	var data []byte
	var err error
	if strings.HasPrefix(where, "https://") || strings.HasPrefix(where, "http://") {
		data, err = a.fetchPublished(ctx, where)
	} else {
		data, err = os.ReadFile(where)
	}
	if err != nil {
		return usage("--diff: %w", err)
	}
	published, err := admin.ParsePage(data)
	if err != nil {
		return usage("--diff %s: %w", where, err)
	}
	var b bytes.Buffer
	differ, err := admin.DiffPages(published, now, &b)
	if err != nil {
		return fail("%w", err)
	}
	if _, err := a.stdout.Write(b.Bytes()); err != nil {
		return fail("%w", err)
	}
	if differ {
		return &exitError{code: exitFailed}
	}
	return nil
}

// fetchPublished reads a published page as an outsider would.
func (a *app) fetchPublished(ctx context.Context, u string) ([]byte, error) {
	c, err := keySetClient(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &exitError{exitUsage, statusText(u, resp.StatusCode)}
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}

func statusText(u string, code int) error { return usage("%s answers %d", u, code) }
