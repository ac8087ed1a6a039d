package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

func newShow() *cobra.Command {
	var flags runFlags
	c := &cobra.Command{
		Use:   "show [PLAN|FOLDER|FILE]",
		Short: "Show a saved plan, or the evaluated configuration",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			saved, err := readSaved(args)
			if err != nil {
				return err
			}
			if saved != nil && !flags.json {
				return saved.Plan.Print(c.OutOrStdout(), plan.Style{})
			}
			var value any
			var secrets []string
			if saved != nil {
				// The configuration is not read here, so it is unknown which variables are sensitive. All values are
				// hidden.
				copied := *saved
				copied.Vars = slices.Clone(saved.Vars)
				for i, v := range copied.Vars {
					name, _, _ := strings.Cut(v, "=")
					copied.Vars[i] = name + "=" + config.HiddenText
				}
				value = copied
			} else {
				configuration, err := flags.load(c, args)
				if err != nil {
					return err
				}
				secrets = configuration.Cluster.Secrets
				copied := *configuration.Cluster
				copied.Secrets, copied.Outputs = nil, slices.Clone(copied.Outputs)
				for i := range copied.Outputs {
					if copied.Outputs[i].Sensitive {
						copied.Outputs[i].Value = config.HiddenText
					}
				}
				value = copied
			}
			text, err := json.MarshalIndent(value, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), config.MaskJSON(string(text), secrets))
			return err
		},
	}
	flags.configFlags.add(c)
	c.Flags().BoolVar(&flags.json, "json", false, "as JSON")
	return c
}
