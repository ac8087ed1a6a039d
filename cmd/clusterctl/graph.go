package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newGraph() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "graph [FOLDER|FILE]",
		Short: "Print what the configuration declares and what refers to what, for Graphviz",
		Long:  "Print what the configuration declares and what refers to what, in Graphviz's language:\n\n  clusterctl graph | dot -Tsvg > graph.svg",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.look(c, args)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintln(out, "digraph {\n  rankdir = LR\n  node [shape = box]")
			for _, d := range configuration.Graph {
				fmt.Fprintf(out, "  %q\n", d.Address)
				for _, to := range d.Needs {
					fmt.Fprintf(out, "  %q -> %q\n", d.Address, to)
				}
			}
			fmt.Fprintln(out, "}")
			return nil
		},
	}
	flags.add(c)
	return c
}
