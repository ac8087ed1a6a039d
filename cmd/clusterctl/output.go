package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"clusterctl/hcl/load"
)

func newOutput() *cobra.Command {
	var flags configFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "output [FOLDER|FILE]",
		Short: "Print the configuration's outputs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			return printOutputs(c, configuration, asJSON)
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON, sensitive ones too")
	return c
}

func (f *runFlags) outputs(c *cobra.Command, configuration *load.Configuration) error {
	if f.json || len(configuration.Cluster.Outputs) == 0 {
		return nil
	}
	fmt.Fprintln(c.OutOrStdout())
	return printOutputs(c, configuration, false)
}

func printOutputs(c *cobra.Command, configuration *load.Configuration, asJSON bool) error {
	if asJSON {
		values := map[string]any{}
		for _, o := range configuration.Cluster.Outputs {
			values[o.Name] = map[string]any{"value": o.Value, "sensitive": o.Sensitive}
		}
		text, err := json.MarshalIndent(values, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), string(text))
		return nil
	}
	for _, o := range configuration.Cluster.Outputs {
		text := "(sensitive)"
		if !o.Sensitive {
			value, err := json.Marshal(o.Value)
			if err != nil {
				return err
			}
			text = mask(string(value), configuration.Cluster.Secrets)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s = %s\n", o.Name, text)
	}
	return nil
}
