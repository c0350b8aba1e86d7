package configs

import (
	"errors"
	"path/filepath"
	"reflect"
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

// expandPaths expands every setting that names a file or folder: state_dir, file, checkpoint_to, and keys that end in _file or _files.
func expandPaths(c *Config, src *Sources, env map[string]string) []Problem {
	var problems []Problem
	eachString(src.shape, reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		name := path[strings.LastIndexByte(path, '.')+1:]
		name, _, _ = strings.Cut(name, "[")
		if name != "state_dir" && name != "file" && name != "checkpoint_to" && !strings.HasSuffix(name, "_file") && !strings.HasSuffix(name, "_files") {
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
