package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// WriteCSV writes one row for each crawler, with the report's integers in their order and nested keys joined by a dot;
// or, with violations, one row for each broken rule.
func (r *AccessReport) WriteCSV(w io.Writer, violations bool) error {
	c := csv.NewWriter(w)
	var err error
	row := func(cells []string) {
		for i, s := range cells {
			if _, err := strconv.ParseInt(s, 10, 64); err != nil {
				cells[i] = noFormula(s)
			}
		}
		if e := c.Write(cells); err == nil {
			err = e
		}
	}
	if violations {
		row([]string{"crawler", "host", "version", "sha256", "line", "rule", "reason", "requests", "first", "last", "examples"})
		for _, name := range r.names() {
			for _, v := range r.Crawlers[name].Violations {
				var examples bytes.Buffer
				list := json.NewEncoder(&examples)
				list.SetEscapeHTML(false)
				_ = list.Encode(v.Examples)
				row([]string{name, v.Host, v.Version, v.SHA256, strconv.Itoa(v.Line), v.Rule, v.Reason, strconv.FormatInt(v.Requests, 10), v.First, v.Last, strings.TrimSpace(examples.String())})
			}
		}
	} else {
		header := []string{"crawler"}
		header, _ = csvFields(header, nil, "", reflect.ValueOf(r.emptyCrawler()))
		row(header)
		for _, name := range r.names() {
			_, cells := csvFields(nil, []string{name}, "", reflect.ValueOf(r.Crawlers[name]).Elem())
			row(cells)
		}
	}
	c.Flush()
	if err != nil {
		return err
	}
	return c.Error()
}

// emptyCrawler has the columns that this report's crawlers have.
func (r *AccessReport) emptyCrawler() AccessCrawler {
	var x AccessCrawler
	if r.Settings.Delay {
		x.CrawlDelay = &AccessDelay{}
	}
	return x
}

// csvFields walks a crawler's account: texts and integers, not lists.
func csvFields(names, cells []string, prefix string, v reflect.Value) ([]string, []string) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		switch f.Kind() {
		case reflect.String:
			names, cells = append(names, prefix+name), append(cells, f.String())
		case reflect.Int64:
			names, cells = append(names, prefix+name), append(cells, strconv.FormatInt(f.Int(), 10))
		case reflect.Struct:
			names, cells = csvFields(names, cells, prefix+name+".", f)
		case reflect.Pointer:
			if !f.IsNil() {
				names, cells = csvFields(names, cells, prefix+name+".", f.Elem())
			}
		default:
		}
	}
	return names, cells
}
