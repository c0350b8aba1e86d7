package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileName is the configuration file looked for in the working directory.
const FileName = "crawlgate.yaml"

// Options say where a configuration comes from.
type Options struct {
	// File is the file to read (--config). "": ./crawlgate.yaml, then $XDG_CONFIG_HOME/crawlgate/crawlgate.yaml (HOME/.config
	// when unset), then built-in defaults. A file that is named must exist.
	File string
	// Clients is read in place of state_dir/clients.yaml, to try a change before it is made. "": that file.
	Clients string
	// Env is the environment, as of os.Environ: the CRAWLGATE_ variables, HOME and XDG_CONFIG_HOME. Nil: none.
	Env []string
	// Overrides are values of flags by key path ("admin.listen"), as text. They beat everything else.
	Overrides map[string]string
}

// Sources say what a configuration was made of.
type Sources struct {
	File     string    // the file read, as named; "" for built-in defaults
	Clients  string    // state_dir/clients.yaml, whether it exists or not
	Warnings []Problem // what is allowed but seldom right

	layers     layers
	shape      *shape
	tryClients string
}

// Files are the files to watch for changes.
func (s *Sources) Files() []string {
	var out []string
	if s.File != "" {
		out = append(out, s.File)
	}
	if s.Clients != "" {
		out = append(out, s.Clients)
	}
	return out
}

// Origin tells where the value of a key comes from: default, FILE:LINE, preset NAME:LINE, a variable, or a flag.
func (s *Sources) Origin(key string) string { return s.place(key).String() }

// place is the position of a key in the highest layer that holds it.
func (s *Sources) place(key string) place {
	for _, l := range s.layers.topDown() {
		if t := l.find(key); t != nil {
			return t.at
		}
	}
	return place{from: fromDefault}
}

// near is the position that a problem with a key is shown at: the key's own, else that of the nearest block around it
// that somebody wrote.
func (s *Sources) near(key string) place {
	if at := s.place(key); at.from == fromEnv || at.from == fromFlag {
		return at
	}
	if s.layers.file != nil {
		if at, ok := s.layers.file.written(key); ok {
			return at
		}
	}
	if s.File != "" {
		return place{from: fromFile, name: s.File, key: key}
	}
	return place{from: fromDefault, key: key}
}

// Load reads, checks and joins all sources. The error is *Error with every problem of every source; the configuration is
// then nil, Sources never.
func Load(o Options) (*Config, *Sources, error) {
	s := configShape()
	src := &Sources{shape: s, tryClients: o.Clients}
	env := environ(o.Env)
	var problems []Problem

	src.layers.defaults = defaultTree(s)
	envTree, ps, warnings := readEnv(s, o.Env)
	problems = append(problems, ps...)
	src.Warnings = warnings
	src.layers.env = envTree
	flags, ps := readOverrides(s, o.Overrides)
	problems = append(problems, ps...)
	src.layers.flags = flags

	file, data, err := findFile(o.File, env)
	if err != nil {
		return nil, src, &Error{append([]Problem{{File: file, Text: err.Error()}}, problems...)}
	}
	src.File = file
	var text *tree
	if file != "" {
		p := &parser{at: place{from: fromFile, name: file}}
		text = p.parse(s, data)
		problems = append(problems, p.problems...)
		if p.unread {
			return nil, src, &Error{problems}
		}
	}
	if text, ps = underPreset(s, text, envTree, flags); len(ps) > 0 {
		problems = append(problems, ps...)
	}

	c, problems := src.join(text, env, problems)
	if len(problems) > 0 {
		return nil, src, &Error{problems}
	}
	return c, src, nil
}

// join adds state_dir/clients.yaml to the checked file, decodes and validates. The problems found before go in and come
// out with the new ones.
func (src *Sources) join(file *tree, env map[string]string, problems []Problem) (*Config, []Problem) {
	src.layers.file = file
	if dir, err := expand(src.stateDir(), env); err == nil {
		src.Clients = ClientsFile(dir)
		from := src.Clients
		if src.tryClients != "" {
			from = src.tryClients
		}
		extra, ps := readClientsTree(from)
		problems = append(problems, ps...)
		var twice []Problem
		src.layers.file, twice = addClients(src.layers.file, extra)
		problems = append(problems, twice...)
	}
	if src.layers.file != nil {
		src.layers.file = complete(src.shape, src.layers.file)
	}
	c, err := decode(src.shape, src.layers)
	if err != nil {
		return nil, append(problems, Problem{File: src.File, Text: strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
	problems = append(problems, expandPaths(c, src, env)...)
	c.fillIn()
	v := &checker{c: c, src: src, known: problems}
	v.all()
	return c, append(problems, v.problems...)
}

// stateDir is the effective state_dir before decoding.
func (src *Sources) stateDir() string {
	for _, l := range src.layers.topDown() {
		if t := l.find("state_dir"); t != nil {
			if v, ok := t.val.(string); ok {
				return v
			}
		}
	}
	return defaultStateDir
}

// fillIn gives names that are plain without being written: the agent of a profile when there is one agent, the profile
// of a client when none is named.
func (c *Config) fillIn() {
	if len(c.Agents) == 1 {
		for i := range c.Profiles {
			if c.Profiles[i].Agent == "" {
				c.Profiles[i].Agent = c.Agents[0].Name
			}
		}
	}
	if len(c.Profiles) > 0 {
		for i := range c.Clients {
			if len(c.Clients[i].Profiles) == 0 {
				c.Clients[i].Profiles = []string{c.Profiles[0].Name}
			}
		}
	}
}

// findFile looks for the file in its order and reads it. A name with an error is the file that could not be read.
func findFile(named string, env map[string]string) (name string, data []byte, err error) {
	candidates := []string{named}
	if named == "" {
		candidates = []string{FileName}
		dir := env["XDG_CONFIG_HOME"]
		if dir == "" && env["HOME"] != "" {
			dir = filepath.Join(env["HOME"], ".config")
		}
		if filepath.IsAbs(dir) {
			candidates = append(candidates, filepath.Join(dir, "crawlgate", FileName))
		}
	}
	for _, name := range candidates {
		data, err := readFile(name)
		switch {
		case err == nil:
			return name, data, nil
		case errors.Is(err, fs.ErrNotExist) && named == "":
			continue
		}
		return name, nil, plainFileError(err)
	}
	return "", nil, nil
}

// readFile reads at most maxFile bytes; a pipe is welcome, a folder is not.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, errors.New("is a folder, not a file")
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// plainFileError is the reason without the name, which stands before it.
func plainFileError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("cannot be read: %w", pe.Err)
	}
	return err
}

func environ(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}
