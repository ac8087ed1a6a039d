package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"clusterctl/hcl/load"
)

func newGraph() *cobra.Command {
	var flags configFlags
	var svg string
	c := &cobra.Command{
		Use:   "graph [FOLDER|FILE]",
		Short: "Show what the configuration declares, with references: as a picture, or for Graphviz",
		Long: `Show what the configuration declares and what refers to what: as a picture with -svg, else in Graphviz's language.

  clusterctl graph -svg graph.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := rejectConfigurationName("svg", svg, "svg"); err != nil {
				return err
			}
			configuration, err := flags.loadOffline(c, args)
			switch {
			case err != nil:
				return err
			case svg == "":
				return writeDOT(c.OutOrStdout(), configuration.Graph)
			case svg == "-":
				_, err := io.WriteString(c.OutOrStdout(), drawPicture(configuration.Graph))
				return err
			}
			if err := replaceFile(svg, []byte(drawPicture(configuration.Graph)), 0o644); err != nil {
				return fmt.Errorf("write the picture: %w", err)
			}
			return nil
		},
	}
	flags.add(c)
	c.Flags().StringVar(&svg, "svg", "", "draw it into this `file`, which browsers show; - is standard output")
	return c
}

// writeDOT writes a graph in Graphviz's DOT language.
func writeDOT(w io.Writer, graph []load.Declaration) error {
	fmt.Fprintln(w, "digraph {\n  rankdir = LR\n  node [shape = box]")
	for _, d := range graph {
		fmt.Fprintf(w, "  %q\n", d.Address)
		for _, to := range d.Needs {
			fmt.Fprintf(w, "  %q -> %q\n", d.Address, to)
		}
	}
	_, err := fmt.Fprintln(w, "}")
	return err
}
