package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"clusterctl/hcl/load"
)

func newFmt() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "fmt [FOLDER|FILE]",
		Short: "Format configuration files, and list those that changed",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "."
			if len(args) > 0 {
				path = args[0]
			}
			changed, err := load.Format(path)
			if err != nil {
				return err
			}
			for _, file := range slices.Sorted(maps.Keys(changed)) {
				fmt.Fprintln(c.OutOrStdout(), file)
				if check {
					continue
				}
				if err := rewriteFile(file, changed[file]); err != nil {
					return fmt.Errorf("write %s: %w", file, err)
				}
			}
			if check && len(changed) > 0 {
				return exitCode(3)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing; exit with 3 when a file's layout is not the usual one")
	return c
}

// rewriteFile atomically replaces the text of an existing file, so that a full disk cannot destroy a configuration. It
// follows links.
func rewriteFile(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replaceFile(path, text, info.Mode().Perm())
}
