package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"clusterctl/hcl/load"
)

func newGet() *cobra.Command {
	var update, noColor bool
	c := &cobra.Command{
		Use:   "get [FOLDER]",
		Short: "Fetch the modules that come from Git, at the revisions of the lock file",
		Long: `Fetch the modules that come from Git into .clusterctl/modules, and write into .clusterctl.lock.hcl which commit each of
them is and a digest of its content. What is locked already is fetched as it is locked.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			configuration, diags := load.FetchModules(c.Context(), path, update,
				func(line string) { fmt.Fprintln(c.OutOrStdout(), line) })
			if err := printDiagnostics(c, configuration, diags, noColor); err != nil {
				return err
			}
			if diags.HasErrors() {
				return exitCode(1)
			}
			return nil
		},
	}
	c.Flags().
		BoolVar(&update, "update", false, "ask the repositories what their branches and tags are now, and lock that")
	c.Flags().BoolVar(&noColor, "no-color", os.Getenv("NO_COLOR") != "", "plain text")
	return c
}
