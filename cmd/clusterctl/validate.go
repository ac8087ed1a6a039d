package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"clusterctl/provision/plan"
)

func newValidate() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "validate [FOLDER|FILE]",
		Short: "Check a configuration without asking any machine",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			cluster := configuration.Cluster
			fmt.Fprintf(c.OutOrStdout(), "Valid: cluster %s, %s, %s, %s.\n", cluster.Name,
				plan.Number(len(cluster.Machines), "machine"), plan.Number(len(cluster.Workloads), "workload"), plan.Number(len(cluster.Objects), "object"))
			return nil
		},
	}
	flags.add(c)
	return c
}
