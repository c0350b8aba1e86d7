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
	return fmt.Errorf("%s takes no argument, and got %q; a configuration is named by --config FILE", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), args[0])
}
