package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"clusterctl/provision/plan"
)

func newValidate() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "validate [FOLDER|FILE]",
		Short: "Check a configuration without connecting to machines",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.loadOffline(c, args)
			if err != nil {
				return err
			}
			if flags.json {
				if flags.reported { // the report with the warnings has been printed
					return nil
				}
				return flags.report(c, configuration, nil)
			}
			cluster := configuration.Cluster
			fmt.Fprintf(c.OutOrStdout(), "Valid: cluster %s, %s, %s, %s.\n", cluster.Name,
				plan.Number(len(cluster.Machines), "machine"), plan.Number(len(cluster.Workloads), "workload"),
				plan.Number(len(cluster.Objects), "object"))
			if len(cluster.Deferred) > 0 {
				fmt.Fprintf(c.OutOrStdout(),
					"Judged only when a plan is made, since it takes data from programs or from the cluster: %s.\n",
					strings.Join(cluster.Deferred, ", "))
			}
			return nil
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&flags.json, "json", false, "what is wrong as JSON, in the shape of terraform validate -json")
	return c
}
