package main

import (
	"github.com/spf13/cobra"

	"clusterctl/provision/bundle"
)

// newPack returns the command that compresses the programs of a bundle when it is built, of this program or of another
// one.
func newPack() *cobra.Command {
	return &cobra.Command{
		Use:    "pack [PROGRAM]",
		Short:  "Write compressed programs beside the programs, which saves time in the first apply",
		Args:   cobra.MaximumNArgs(1),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			open := openBundle
			if len(args) > 0 {
				open = func() (*bundle.Bundle, error) { return openBundleOf(args[0]) }
			}
			files, err := open()
			if err != nil {
				return err
			}
			return files.Pack()
		},
	}
}
