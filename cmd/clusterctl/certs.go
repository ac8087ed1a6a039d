package main

import "github.com/spf13/cobra"

func newCerts() *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "List, renew and revoke certificates, and replace authorities",
	}
	c.AddCommand(newCheckExpiration(), newListKubeconfigs(), newRenew(), newRotate(), newRevoke())
	return c
}
