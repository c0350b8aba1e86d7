package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/proxy"
)

func newJobsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs", Short: "what jobs fetched, were refused, and why they stopped", Args: noArgs,
		Example: "  crawlgate jobs list\n  crawlgate jobs show job42",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newJobsListCmd(a), newJobsShowCmd(a))
	return cmd
}

// readJobs asks the running instance, or reads the state folder.
func (a *app) readJobs(ctx context.Context) ([]proxy.Job, error) {
	cfg, _, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return nil, err
	}
	var out []proxy.Job
	if c, err := dialControl(cfg.StateDir); err == nil {
		if err := c.get(ctx, "/jobs", &out); err != nil {
			return nil, fail("%w", err)
		}
	} else if cfg.Redis.URL != "" {
		if out, err = readRedisJobs(ctx, cfg); err != nil {
			return nil, err
		}
	} else {
		db, err := openState(cfg.StateDir)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		s, err := newJobStore(db)
		if err != nil {
			return nil, fail("%w", err)
		}
		if out, err = s.Load(); err != nil {
			return nil, fail("%w", err)
		}
	}
	slices.SortFunc(out, func(x, y proxy.Job) int { return y.Last.Compare(x.Last) })
	return out, nil
}

func newJobsListCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "show the jobs of the last day, newest first", Args: noArgs,
		Example: "  crawlgate jobs list\n  crawlgate jobs list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			jobs, err := a.readJobs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				if jobs == nil {
					jobs = []proxy.Job{}
				}
				return json.NewEncoder(a.stdout).Encode(jobs)
			}
			if len(jobs) == 0 {
				fmt.Fprintln(a.stderr, "no job in the last day (a job is named in the proxy user name: CLIENT+PROFILE+JOB)")
				return nil
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "JOB\tCLIENT\tSITE\tPAGES\tREFUSED\tLAST\tSTOPPED")
			for _, j := range jobs {
				refused := 0
				for _, n := range j.Refused {
					refused += n
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", j.ID, j.Client, j.Site, pagesOf(j), refused, ago(time.Since(j.Last)), orDash(j.Stopped))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newJobsShowCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "show one job", Args: oneArg("ID"),
		Example: "  crawlgate jobs show job42\n  crawlgate jobs show job42 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := a.readJobs(cmd.Context())
			if err != nil {
				return err
			}
			found := false
			for _, j := range jobs {
				if j.ID != args[0] {
					continue
				}
				found = true
				if asJSON {
					if err := json.NewEncoder(a.stdout).Encode(j); err != nil {
						return fail("%w", err)
					}
					continue
				}
				fmt.Fprintf(a.stdout, "job      %s of %s, profile %s\nsite     %s, first page %s\nbegan    %s\nlast     %s\npages    %s\n", j.ID, j.Client, j.Profile, j.Site, j.First,
					j.Began.Format(time.RFC3339), ago(time.Since(j.Last)), pagesOf(j))
				reasons := make([]string, 0, len(j.Refused))
				for r := range j.Refused {
					reasons = append(reasons, r)
				}
				slices.Sort(reasons)
				for _, r := range reasons {
					fmt.Fprintf(a.stdout, "refused  %d %s\n", j.Refused[r], r)
				}
				fmt.Fprintf(a.stdout, "stopped  %s\n", orDash(j.Stopped))
			}
			if !found {
				return usage("no job %s in the last day", args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func pagesOf(j proxy.Job) string {
	if j.MaxPages > 0 {
		return fmt.Sprintf("%d of %d", j.Pages, j.MaxPages)
	}
	return fmt.Sprint(j.Pages)
}

func orDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}
