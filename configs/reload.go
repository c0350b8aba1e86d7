package configs

import (
	"fmt"
	"strconv"
)

// RestartOnly names the keys that differ and cannot change while crawlgate runs: a reload with any of them is refused.
func RestartOnly(old, next *Config) []string {
	var keys []string
	for _, k := range []struct {
		key       string
		was, will string
	}{
		{"listen", old.Listen, next.Listen},
		{"admin.listen", old.Admin.Listen, next.Admin.Listen},
		{"admin.pprof", strconv.FormatBool(old.Admin.Pprof), strconv.FormatBool(next.Admin.Pprof)},
		{"state_dir", old.StateDir, next.StateDir},
		{"redis.url", old.Redis.URL, next.Redis.URL},
		{"publish.listen", old.Publish.Listen, next.Publish.Listen},
		{"publish.serve_root", strconv.FormatBool(old.Publish.ServeRoot), strconv.FormatBool(next.Publish.ServeRoot)},
		{"publish.ignore_host", strconv.FormatBool(old.Publish.IgnoreHost), strconv.FormatBool(next.Publish.IgnoreHost)},
		{"revalidate", fmt.Sprint(old.Revalidate), fmt.Sprint(next.Revalidate)},
	} {
		if k.was != k.will {
			keys = append(keys, k.key)
		}
	}
	return keys
}
