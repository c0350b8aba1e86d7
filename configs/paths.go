package configs

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// expand turns a leading ~ into the home folder.
func expand(path string, env map[string]string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		if strings.HasPrefix(path, "~") {
			return "", errors.New("only ~/ can be expanded, not another user's home")
		}
		return path, nil
	}
	home := env["HOME"]
	if home == "" {
		return "", errors.New("begins with ~ but HOME is not set; write the whole path")
	}
	return filepath.Join(home, path[1:]), nil
}

// accessPaths are the keys of audit.access that name files or folders.
var accessPaths = []string{"robots", "crawlers", "ranges", "dns_cache", "sitemap", "output"}

// namesPath tells whether a key holds the name of a file or folder: state_dir, file, checkpoint_to, those of audit.access,
// and keys that end in _file or _files.
func namesPath(path string) bool {
	path, _, _ = strings.Cut(path, "[")
	name := path[strings.LastIndexByte(path, '.')+1:]
	if access, ok := strings.CutPrefix(path, "audit.access."); ok {
		return slices.Contains(accessPaths, access)
	}
	return name == "state_dir" || name == "file" || name == "checkpoint_to" || strings.HasSuffix(name, "_file") || strings.HasSuffix(name, "_files")
}

// expandPaths expands every setting that names a file or folder.
func expandPaths(c *Config, src *Sources, env map[string]string) []Problem {
	var problems []Problem
	eachString(src.shape, reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		if !namesPath(path) {
			return
		}
		full, err := expand(v.String(), env)
		if err != nil {
			problems = append(problems, src.near(path).problem(err.Error()))
			return
		}
		v.SetString(full)
	})
	return problems
}

// eachString calls fn for every string setting of a configuration, lists included.
func eachString(s *shape, v reflect.Value, path string, fn func(string, reflect.Value)) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch s.kind {
	case kindStruct:
		for _, f := range s.fields {
			eachString(f.shape, v.FieldByIndex(f.index), join(path, f.name), fn)
		}
	case kindList:
		for i := range v.Len() {
			eachString(s.elem, v.Index(i), indexed(path, i), fn)
		}
	case kindString:
		fn(path, v)
	}
}
