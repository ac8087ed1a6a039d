package main

import "github.com/spf13/cobra"

func newRenew() *cobra.Command {
	var flags runFlags
	var folder string
	var approve bool
	c := &cobra.Command{
		Use:   "renew [-C FOLDER] all|NAME…",
		Short: "Renew certificates before their last 30 days: plan, ask and apply",
		Long: `Renew certificates before their last 30 days: apiserver, etcd-server, kubelet, admin.conf and so on, by the names that
clusterctl certs check-expiration shows, or all.

It is an apply in which these certificates are due. It shows its plan, asks, and restarts units that do not reload their
certificate one by one. Each run renews the certificates.`,
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
