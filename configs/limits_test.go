package configs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// No file can hold up a start or a reload: large ones are read in seconds, hostile ones refused in seconds.
func TestHostileFiles(t *testing.T) {
	bomb := "profiles:\n  - &b0 {name: x}\n"
	for i := 1; i < 30; i++ {
		bomb += fmt.Sprintf("  - &b%d {name: x%d, <<: [*b%d, *b%d]}\n", i, i, i-1, i-1)
	}
	var unknown strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&unknown, "k%d: x\n", i)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"merged aliases": {bomb, "nests too deep or repeats too much"},
		"own anchor":     {"profiles: [&b {name: x, <<: [*b, *b]}]\n", "nests too deep or repeats too much"},
		"unknown keys":   {unknown.String(), "there are more; these are the first"},
		"deep":           {"egress: {hosts: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}\n", "must be one value"},
		"deeper":         {"egress: {hosts: " + strings.Repeat("[", 20000) + "\n", "not YAML"},
		"large":          {strings.Repeat("#", maxFile+1), "is larger than 16 MiB"},
		"binary":         {"\x00\x01\x02", "not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, _, err := load(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %.300v", err)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %s", d)
			}
			if n := strings.Count(errText(err), "\n"); n > maxTold+2 {
				t.Errorf("%d lines", n)
			}
		})
	}
}

func TestManyClients(t *testing.T) {
	var b strings.Builder
	b.WriteString("clients:\n")
	for i := range 300 {
		fmt.Fprintf(&b, "  - name: c%d\n    secret_hash: sha256:%064d\n    sites:\n      - {pages: [", i, i)
		for j := range 20 {
			fmt.Fprintf(&b, "https://s%d.example.org/%d, ", i, j)
		}
		b.WriteString("]}\n")
	}
	c, _ := mustLoad(t, b.String())
	if len(c.Clients) != 300 || len(c.Clients[299].Sites[0].Pages) != 20 {
		t.Errorf("%d clients", len(c.Clients))
	}
}
