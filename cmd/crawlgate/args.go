package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// noArgs refuses arguments. To a group of commands one is a command that it does not know; to any other it is just too much,
// and mostly a configuration that was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if cmd.HasSubCommands() || len(args) == 0 {
		return cobra.NoArgs(cmd, args)
	}
	return fmt.Errorf("%s takes no argument, and got %q; a configuration is named by --config FILE", commandWords(cmd), args[0])
}

// someArgs wants one argument or more, named what.
func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missingArg(cmd, what)
		}
		return nil
	}
}

// oneArg wants exactly one argument, named what.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missingArg(cmd, what)
		}
		return atMostOneArg(what)(cmd, args)
	}
}

// atMostOneArg wants one argument, named what, or none.
func atMostOneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes one %s, and got %q", commandWords(cmd), what, args)
		}
		return nil
	}
}

func missingArg(cmd *cobra.Command, what string) error {
	return fmt.Errorf("%s: %s is missing; usage: %s", commandWords(cmd), what, cmd.UseLine())
}

// commandWords is the command as it is typed behind the program's name.
func commandWords(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}
