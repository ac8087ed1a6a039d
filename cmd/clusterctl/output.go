package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
)

func newOutput() *cobra.Command {
	var flags configFlags
	var asJSON bool
	var raw string
	c := &cobra.Command{
		Use:   "output [FOLDER|FILE]",
		Short: "Print the configuration's outputs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			if raw != "" {
				return printRaw(c, configuration, raw)
			}
			return printOutputs(c, configuration, asJSON)
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON, sensitive ones too")
	c.Flags().StringVar(&raw, "raw", "", "only the text of the output with this `name`, also of a sensitive one")
	(&runFlags{}).completeFlags(c, outputNames, "raw")
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
		return printJSON(c, values)
	}
	for _, o := range configuration.Cluster.Outputs {
		text := config.HiddenText
		if !o.Sensitive {
			value, err := json.Marshal(o.Value)
			if err != nil {
				return err
			}
			text = string(value)
		}
		if _, err := fmt.Fprintf(c.OutOrStdout(), "%s = %s\n", o.Name, text); err != nil {
			return err
		}
	}
	return nil
}

// printRaw prints the text, number or bool of an output without quotes and line break, for scripts.
func printRaw(c *cobra.Command, configuration *load.Configuration, name string) error {
	var names []string
	for _, o := range configuration.Cluster.Outputs {
		if o.Name != name {
			names = append(names, o.Name)
			continue
		}
		switch o.Value.(type) {
		case nil, map[string]any, []any:
			return fmt.Errorf("output %q is neither text nor a number: -json prints it", name)
		}
		_, err := fmt.Fprint(c.OutOrStdout(), o.Value)
		return err
	}
	return fmt.Errorf("there is no output %q.%s", name, block.Suggest(name, names))
}
