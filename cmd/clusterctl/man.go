package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"clusterctl/daemons/version"
)

// newMan writes the manual, when clusterctl is installed.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write a manual page for every command into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			c.Root().DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "clusterctl " + version.Version, Manual: "clusterctl"}
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			return nil
		},
	}
}
