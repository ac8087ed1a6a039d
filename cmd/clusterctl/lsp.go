package main

import (
	"github.com/spf13/cobra"

	"clusterctl/hcl/lsp"
)

func newLSP() *cobra.Command {
	return &cobra.Command{
		Use:   "lsp",
		Short: "Serve editors: the Language Server Protocol on standard input and output",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return lsp.Serve(c.Context(), readerUntil(c.Context(), c.InOrStdin()), c.OutOrStdout())
		},
	}
}
