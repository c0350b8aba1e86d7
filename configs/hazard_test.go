package configs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// What viper does by itself (measured), and what this package does instead. Each hazard is one
// subtest: first the hazard, so that the test says when a newer viper lost it, then our answer.
func TestViperHazards(t *testing.T) {
	bare := func(t *testing.T, text string, out any, opts ...viper.Option) error {
		t.Helper()
		v := viper.NewWithOptions(opts...)
		v.SetConfigType("yaml")
		if err := v.ReadConfig(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		return v.Unmarshal(out)
	}

	t.Run("keys with dots are split, without an error", func(t *testing.T) {
		var out struct {
			Hosts map[string]struct{ Delay time.Duration }
		}
		if err := bare(t, "hosts: {api.example.org: {delay: 2s}}", &out); err != nil || out.Hosts["api.example.org"].Delay != 0 {
			t.Logf("viper no longer splits keys: %v, %v", out, err)
		}
		// Ours: no block takes names as keys at all.
		_, _, err := load(t, "egress: {hosts: {shop.test: 127.0.0.1}}\n")
		wantProblems(t, err, "crawlgate.yaml: 1 problem\n  line 1  egress.hosts must be a list; begin each item with a dash")
		keyPaths(configShape(), "", func(path string) {
			if strings.ContainsAny(path[strings.LastIndexByte(path, '.')+1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ:") {
				t.Errorf("key %s is not lower case", path)
			}
		})
	})

	t.Run("no map in the schema", func(t *testing.T) {
		// shapeOf panics on a map; this is the list of types it takes.
		defer func() {
			if recover() == nil {
				t.Error("a map is accepted as a setting")
			}
		}()
		shapeOf(reflect.TypeFor[map[string]string]())
	})

	t.Run("upper case is folded and merged silently", func(t *testing.T) {
		var out struct{ Listen string }
		if err := bare(t, "Listen: a", &out); err != nil || out.Listen != "a" {
			t.Logf("viper no longer folds case: %v, %v", out, err)
		}
		_, _, err := load(t, "listen: 127.0.0.1:3128\nLISTEN: 127.0.0.1:3130\n")
		wantProblems(t, err, "crawlgate.yaml: 1 problem\n  line 2  LISTEN is not a key; did you mean listen?")
	})

	t.Run("unknown keys are ignored", func(t *testing.T) {
		var out struct{ Listen string }
		if err := bare(t, "listne: a", &out); err != nil {
			t.Logf("viper no longer ignores unknown keys: %v", err)
		}
		if err := decodeInto(map[string]any{"clients": []any{}, "clinets": []any{}}, &clientsOnly{}); err == nil {
			t.Error("mapstructure takes an unknown key")
		}
	})

	t.Run("a number is a duration in nanoseconds", func(t *testing.T) {
		var out struct{ Interval time.Duration }
		if err := bare(t, "interval: 1", &out); err != nil || out.Interval != 1 {
			t.Logf("viper no longer reads nanoseconds: %v, %v", out, err)
		}
		// Were it ever to reach mapstructure, the hook refuses it there too.
		for _, v := range []any{1, int64(1), 1.5, "1", "0"} {
			var d struct {
				D time.Duration `mapstructure:"d"`
			}
			if err := decodeInto(map[string]any{"d": v}, &d); err == nil {
				t.Errorf("%T %v is the duration %s", v, v, d.D)
			}
		}
	})

	t.Run("weak typing turns text into numbers and lists", func(t *testing.T) {
		var out struct {
			Mode int
			List []string
		}
		if err := bare(t, "mode: \"0755\"\nlist: \"a,b\"", &out); err != nil || out.Mode != 493 || len(out.List) != 2 {
			t.Logf("viper is no longer weak: %v, %v", out, err)
		}
		for _, bad := range []map[string]any{
			{"i": "0755"}, {"i": 5.5}, {"i": true}, {"l": "a,b"}, {"l": "a"}, {"b": "true"}, {"b": 1}, {"s": 1}, {"s": true}, {"f": "1"},
		} {
			var o struct {
				I int      `mapstructure:"i"`
				L []string `mapstructure:"l"`
				B bool     `mapstructure:"b"`
				S string   `mapstructure:"s"`
				F float64  `mapstructure:"f"`
			}
			if err := decodeInto(bad, &o); err == nil {
				t.Errorf("%v is read as %+v", bad, o)
			}
		}
	})

	t.Run("a variable without default or file entry is invisible", func(t *testing.T) {
		t.Setenv("HZ_REDIS_URL", "redis://x")
		v := viper.New()
		v.SetEnvPrefix("HZ")
		v.AutomaticEnv()
		var out struct {
			Redis struct{ URL string }
		}
		if err := v.Unmarshal(&out); err != nil || out.Redis.URL != "" {
			t.Logf("viper sees it now: %v, %v", out, err)
		}
		// Ours: every key outside lists of blocks, with a value of its type.
		values := map[kind]string{
			kindString: "x", kindBool: "true", kindInt: "7", kindFloat: "7.5", kindSize: "7KiB", kindDuration: "7s", kindText: "x", kindList: "[]",
		}
		s := configShape()
		n := 0
		settable(s, func(path string, leaf *shape) {
			n++
			tree, problems, warnings := readEnv(s, []string{envName(path) + "=" + values[leaf.kind]})
			if len(problems)+len(warnings) > 0 || tree.find(path) == nil {
				t.Errorf("%s: %v %v", envName(path), problems, warnings)
				return
			}
			c, err := decode(s, layers{defaults: defaultTree(s), env: tree})
			if err != nil {
				t.Errorf("%s: %v", envName(path), err)
				return
			}
			if got := treeOf(s, reflect.ValueOf(*c), place{}).find(path); got == nil || !reflect.DeepEqual(got.plain(), tree.find(path).plain()) {
				t.Errorf("%s: %v arrives as %v", envName(path), tree.find(path).plain(), got)
			}
		})
		if n < 100 {
			t.Errorf("only %d keys have a variable", n)
		}
	})

	t.Run("two keys have one variable", func(t *testing.T) {
		seen := map[string]string{}
		configShape().walkLeaves("", func(path string, _ *shape) {
			if other, ok := seen[envName(path)]; ok {
				t.Errorf("%s and %s share %s", path, other, envName(path))
			}
			seen[envName(path)] = path
		})
	})

	t.Run("values of one load stay out of the next", func(t *testing.T) {
		// A fresh viper for each load: nothing is left of the file before.
		if c, _ := mustLoad(t, "server: {grace: 1s}\n"); c.Server.Grace != time.Second {
			t.Error(c.Server.Grace)
		}
		if c, _ := mustLoad(t, "{}\n"); c.Server.Grace != 30*time.Second {
			t.Error(c.Server.Grace)
		}
	})
}

// strict must be what it says even if mapstructure changes its defaults.
func TestStrictDecoder(t *testing.T) {
	var dc mapstructure.DecoderConfig
	dc.WeaklyTypedInput = true
	strict(&dc)
	if !dc.ErrorUnused || dc.WeaklyTypedInput {
		t.Errorf("%+v", dc)
	}
}

func TestEnvironment(t *testing.T) {
	_, _, err := load(t, "open: 1\n", env("CRAWLGATE_SERVER_GRACE=10", "CRAWLGATE_OPEN=yes", "CRAWLGATE_EGRESS_PORTS=80,443",
		"CRAWLGATE_SERVER_IDLE=", "CRAWLGATE_LISTEN=3128"), flags(map[string]string{"admin.listen": "nowhere", "profiles": "[]", "server.tunnels": "many"}))
	wantProblems(t, err, `
environment: 5 problems
  CRAWLGATE_EGRESS_PORTS is a list; write it as [a, b]
  CRAWLGATE_OPEN: "yes" is not true or false
  CRAWLGATE_SERVER_GRACE: "10" has no unit; write 10s
  CRAWLGATE_SERVER_IDLE must be a duration such as 1s
  CRAWLGATE_LISTEN: "3128" is not host:port; write 127.0.0.1:3128
flags: 3 problems
  --profiles: profiles is not a key outside lists
  --server-tunnels: "many" is not a whole number
  --admin-listen: "nowhere" is not host:port
crawlgate.yaml: 1 problem
  line 1  open: "1" is not true or false`)

	_, src := mustLoad(t, "", env("CRAWLGATE_LISTN=x", "CRAWLGATE_PROXY=http://x", "CRAWLGATE_CA=x", "CRAWLGATE_SPKI=x", "CRAWLGATE_WHAT_EVER=x", "OTHER=x"))
	if got, want := FormatWarnings(src.Warnings), `environment: 2 warnings
  CRAWLGATE_LISTN is not a variable of crawlgate; did you mean CRAWLGATE_LISTEN?
  CRAWLGATE_WHAT_EVER is not a variable of crawlgate`; got != want {
		t.Errorf("warnings are\n%s\nwant\n%s", got, want)
	}
	// The last of two settings of one variable counts.
	c, _ := mustLoad(t, "", env("CRAWLGATE_SERVER_GRACE=1s", "CRAWLGATE_SERVER_GRACE=2s"))
	if c.Server.Grace != 2*time.Second {
		t.Errorf("grace %s", c.Server.Grace)
	}
}

func TestSearchOrder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	home := filepath.Join(dir, "home")
	grace := func(want time.Duration, file string, o Options) {
		t.Helper()
		c, src, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if c.Server.Grace != want || src.File != file {
			t.Errorf("grace %s from %q, want %s from %q", c.Server.Grace, src.File, want, file)
		}
	}
	homeEnv := []string{"HOME=" + home}
	grace(30*time.Second, "", Options{Env: homeEnv})
	inHome := write(filepath.Join(home, ".config", "crawlgate", FileName), "server: {grace: 1s}")
	grace(time.Second, inHome, Options{Env: homeEnv})
	xdg := write(filepath.Join(dir, "xdg", "crawlgate", FileName), "server: {grace: 2s}")
	grace(2*time.Second, xdg, Options{Env: append(homeEnv, "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"))})
	write(filepath.Join(dir, FileName), "server: {grace: 3s}")
	grace(3*time.Second, FileName, Options{Env: homeEnv})
	named := write(filepath.Join(dir, "other.yaml"), "server: {grace: 4s}")
	grace(4*time.Second, named, Options{Env: homeEnv, File: named})

	_, _, err := Load(Options{Env: homeEnv, File: "missing.yaml"})
	wantProblems(t, err, "missing.yaml: 1 problem\n  cannot be read: no such file or directory")
	_, _, err = Load(Options{Env: homeEnv, File: "home"})
	wantProblems(t, err, "home: 1 problem\n  is a folder, not a file")
	_, _, err = Load(Options{File: named}) // no HOME
	wantProblems(t, err, named+": 1 problem\n  state_dir: begins with ~ but HOME is not set; write the whole path")
}
