package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

func newKubeconfig() *cobra.Command {
	var flags runFlags
	var out string
	c := &cobra.Command{
		Use:   "kubeconfig [FOLDER|FILE]",
		Short: "Write a kubeconfig of an administrator, with a new certificate",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, s, err := flags.applied(c, args)
			if err != nil {
				return err
			}
			text, err := adminKubeconfig(s, configuration.Cluster)
			if err != nil {
				return err
			}
			if out == "" {
				_, err = c.OutOrStdout().Write(text)
				return err
			}
			if err := os.WriteFile(out, text, 0o600); err != nil {
				return fmt.Errorf("write the kubeconfig: %w", err)
			}
			return nil
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	c.Flags().StringVarP(&out, "output", "o", "", "`file` to write; standard output when empty")
	return c
}

func adminKubeconfig(s *state.State, c *config.Cluster) ([]byte, error) {
	server := c.Endpoint
	if server == "" {
		servers := apiServers(c)
		if len(servers) == 0 {
			return nil, errors.New("no machine has the control-plane role")
		}
		server = servers[0]
	}
	pair, err := certs.Issue(s.CA(certs.ClusterCA), certs.Admin(), time.Now())
	if err != nil {
		return nil, err
	}
	return certs.Kubeconfig(c.Name, "https://"+server, "kubernetes-admin", s.CAs[certs.ClusterCA], pair)
}
