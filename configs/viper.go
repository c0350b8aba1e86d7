package configs

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// keyDelimiter keeps viper from splitting anything that a person may write in a key.
const keyDelimiter = "::"

// layers are the checked sources of one load, lowest precedence first.
type layers struct {
	defaults, file, env, flags *tree
}

// topDown are the layers there are, highest precedence first.
func (l layers) topDown() []*tree {
	return slices.DeleteFunc([]*tree{l.flags, l.env, l.file, l.defaults}, func(t *tree) bool { return t == nil })
}

// decode lets viper put the layers over each other and mapstructure fill a Config. Every source has been checked before;
// what fails here all the same is a type that parser and mapstructure read differently, and is reported, never ignored.
func decode(s *shape, l layers) (*Config, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter(keyDelimiter))
	eachLeaf(s, l.defaults, "", v.SetDefault)
	for _, t := range []*tree{l.file, l.env} {
		if t == nil {
			continue
		}
		if err := v.MergeConfigMap(t.plain().(map[string]any)); err != nil {
			return nil, err
		}
	}
	eachLeaf(s, l.flags, "", v.Set)
	var c Config
	if err := v.Unmarshal(&c, strict); err != nil {
		return nil, err
	}
	return &c, nil
}

// strict is how mapstructure decodes: nothing unused, nothing converted but durations, sizes and types with a text form.
func strict(dc *mapstructure.DecoderConfig) {
	dc.ErrorUnused = true
	dc.WeaklyTypedInput = false
	dc.ZeroFields = true
	dc.DecodeHook = mapstructure.ComposeDecodeHookFunc(unitsHook, mapstructure.TextUnmarshallerHookFunc())
}

// unitsHook reads durations and sizes, and refuses a plain number where a duration is meant.
func unitsHook(from, to reflect.Type, data any) (any, error) {
	switch {
	case to == typDuration && from == typDuration:
		return data, nil
	case to == typDuration && from.Kind() == reflect.String:
		return parseDuration(reflect.ValueOf(data).String())
	case to == typDuration:
		return nil, fmt.Errorf("%v has no unit", data)
	case to.Kind() == reflect.Int64 && from.Kind() == reflect.String:
		return parseSize(reflect.ValueOf(data).String())
	case isWhole(to.Kind()) && from.Kind() == reflect.Float64:
		return nil, fmt.Errorf("%v is not a whole number", data)
	}
	return data, nil
}

func isWhole(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

// eachLeaf hands every value outside lists, and every list, to set by its viper key.
func eachLeaf(s *shape, t *tree, key string, set func(string, any)) {
	if t == nil {
		return
	}
	if s.kind != kindStruct || t.kind != kindStruct {
		set(key, t.plain())
		return
	}
	for _, f := range s.fields {
		k := f.name
		if key != "" {
			k = key + keyDelimiter + f.name
		}
		eachLeaf(f.shape, t.block[f.name], k, set)
	}
}

// decodeInto fills a struct that is not the whole Config, with the same strictness.
func decodeInto(values any, out any) error {
	dc := &mapstructure.DecoderConfig{Result: out}
	strict(dc)
	d, err := mapstructure.NewDecoder(dc)
	if err != nil {
		return err
	}
	return d.Decode(values)
}
