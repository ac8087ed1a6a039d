package main

import "github.com/spf13/cobra"

func newRenew() *cobra.Command {
	var flags runFlags
	var folder string
	var approve bool
	c := &cobra.Command{
		Use:   "renew [-C FOLDER] all|NAME…",
		Short: "Renew certificates now, rather than in their last 30 days: plans, asks and applies",
		Long: `Renew certificates now, rather than in their last 30 days: apiserver, etcd-server, kubelet, admin.conf and so on, as
clusterctl certs check-expiration names them, or all.

It is an apply in which these certificates are due: it shows its plan, asks, and starts what does not read its certificate again one
by one. Run again, it renews again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, []string{folder})
			if err != nil {
				return err
			}
			flags.renews = args
			return flags.apply(c, configuration, false, approve, nil)
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&folder, "chdir", "C", ".", "`folder` of the configuration")
	c.Flags().
		StringArrayVar(&flags.renewOn, "machine", nil, "only on this `machine`, by address or name; can be repeated")
	c.Flags().BoolVar(&approve, "auto-approve", false, "do not ask")
	c.ValidArgsFunction = completeArguments(&flags, &folder, 0, certificateNames)
	completeFlag(c, "machine", &flags, &folder, machineNames)
	return c
}
