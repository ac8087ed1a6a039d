package main

import (
	"fmt"

	"github.com/spf13/cobra"
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
			fmt.Fprintf(c.OutOrStdout(), "Valid: cluster %s, %d machines, %d workloads, %d objects.\n",
				cluster.Name, len(cluster.Machines), len(cluster.Workloads), len(cluster.Objects))
			return nil
		},
	}
	flags.add(c)
	return c
}
