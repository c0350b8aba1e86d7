package configs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed recordslabs.yaml roftrlabs.yaml unlob.yaml
var files embed.FS

var presetNames = []string{"recordslabs", "roftrlabs", "unlob"}

// Presets are the names that `preset:` takes.
func Presets() []string { return slices.Clone(presetNames) }

// presetText is the file of a preset.
func presetText(name string) ([]byte, error) {
	if !slices.Contains(presetNames, name) {
		return nil, fmt.Errorf("%q is not a preset; there are %s", name, strings.Join(presetNames, ", "))
	}
	return files.ReadFile(name + ".yaml")
}

// Preset is a preset as a whole configuration, as if `preset: NAME` were all of the file. StateDir still begins with ~.
func Preset(name string) (*Config, error) {
	if _, err := presetText(name); err != nil {
		return nil, err
	}
	s := configShape()
	t, ps := underPreset(s, nil, nil, newPresetFlag(name))
	if len(ps) > 0 {
		return nil, &Error{ps}
	}
	src := &Sources{shape: s, layers: layers{defaults: defaultTree(s), file: complete(s, t)}}
	c, err := decode(s, src.layers)
	if err != nil {
		return nil, err
	}
	c.Preset = name
	c.fillIn()
	v := &checker{c: c, src: src}
	if v.all(); len(v.problems) > 0 {
		return nil, &Error{v.problems}
	}
	return c, nil
}

func newPresetFlag(name string) *tree {
	t := newBlock(place{from: fromFlag})
	t.put("preset", &tree{kind: kindString, val: name, at: place{from: fromFlag, name: "--preset"}})
	return t
}

// underPreset puts the preset that the highest source names under the file.
func underPreset(s *shape, file, env, flags *tree) (*tree, []Problem) {
	for _, l := range []*tree{flags, env, file} {
		if l == nil || l.block["preset"] == nil {
			continue
		}
		v := l.block["preset"]
		name, _ := v.val.(string)
		if name == "" {
			return file, nil
		}
		data, err := presetText(name)
		if err != nil {
			return file, []Problem{v.at.problem(err.Error())}
		}
		p := &parser{at: place{from: fromPreset, name: name}}
		base := p.parse(s, data)
		return overlay(s, base, file), p.problems
	}
	return file, nil
}
