package main

import "github.com/spf13/cobra"

// newPack prepares the bundle beside this program, when that is built.
func newPack() *cobra.Command {
	return &cobra.Command{
		Use:    "pack",
		Short:  "Put the programs' compressed forms beside them, so that no first apply has to make them",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			files, err := openBundle()
			if err != nil {
				return err
			}
			return files.Pack()
		},
	}
}
