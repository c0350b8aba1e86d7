package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// withSuggestions makes root and all its commands offer the nearest name for an unknown command or flag.
func withSuggestions(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
		if !ok {
			return plainFlagError(err)
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if n := nearest(name, names); n != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, n)
		}
		return err
	})
	groupArgs(root)
}

// notNumbers are the words of strconv for what is no number, or not one of the size that a flag takes.
var notNumbers = regexp.MustCompile(`strconv\.(\w+): parsing ".*": (?:invalid syntax|(value out of range))$`)

// plainFlagError says what a flag's value should have been, without the words of the function that read it.
func plainFlagError(err error) error {
	text := err.Error()
	m := notNumbers.FindStringSubmatchIndex(text)
	if m == nil {
		return err
	}
	want := "not a number"
	if text[m[2]:m[3]] == "ParseBool" {
		want = "not true or false"
	} else if m[4] >= 0 {
		want = "too large"
	}
	return errors.New(text[:m[0]] + want)
}

// groupArgs judges what stands behind a command that only holds others.
func groupArgs(cmd *cobra.Command) {
	if !cmd.HasSubCommands() {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		hint := fmt.Sprintf(" (%s --help lists them)", cmd.CommandPath())
		if n := nearest(args[0], names); n != "" {
			hint = "; did you mean " + n + "?"
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	if !cmd.Runnable() { // cobra would show its help for any argument
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, c := range cmd.Commands() {
		groupArgs(c)
	}
}

// nearest gives the name that word was probably meant to be, or "".
func nearest(word string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		d := distance(strings.ToLower(word), name)
		if strings.HasPrefix(name, word) && len(word) > 1 {
			d = min(d, 1)
		}
		if d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to add, drop or change between two words (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
