package allowlist

import (
	"fmt"
	"strings"
)

// denySet is a list of closed hosts. It names the entry that closes.
type denySet struct {
	hosts, below map[string]string
}

func compileDeny(list []string, where string) (denySet, error) {
	var d denySet
	for _, raw := range list {
		h, err := hostPattern(raw)
		if err != nil {
			return denySet{}, fmt.Errorf("%s: %w", where, err)
		}
		words := where + " (" + raw + ")"
		m := &d.hosts
		if rest, wild := strings.CutPrefix(h, "*."); wild {
			m, h = &d.below, rest
		}
		if *m == nil {
			*m = map[string]string{}
		}
		if _, ok := (*m)[h]; !ok {
			(*m)[h] = words
		}
	}
	return d, nil
}

// find gives the entry that closes a host (without port), or "".
func (d *denySet) find(host string) string {
	if words, ok := d.hosts[host]; ok {
		return words
	}
	if len(d.below) == 0 {
		return ""
	}
	for i := strings.IndexByte(host, '.'); i >= 0; i = strings.IndexByte(host, '.') {
		host = host[i+1:]
		if words, ok := d.below[host]; ok {
			return words
		}
	}
	return ""
}
