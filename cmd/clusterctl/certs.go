package main

import "github.com/spf13/cobra"

func newCerts() *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "Look at the cluster's certificates, renew and revoke them, replace authorities",
	}
	c.AddCommand(newCheckExpiration(), newListKubeconfigs(), newRenew(), newRotate(), newRevoke())
	return c
}
