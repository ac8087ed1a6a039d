package main

import (
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/host/local"
)

// newAgent returns the command that runs on machines, started over SSH.
func newAgent() *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Answer the requests of a clusterctl on the other end of an SSH connection",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// Daemons that run as other users need access to directories that the agent creates, whatever umask the
			// login has.
			syscall.Umask(0o022)
			// The agent connects only to machines of this cluster, so it must not use the proxy of the login
			// environment. Package managers and other programs that it runs still use that proxy.
			h := &local.Host{Environment: os.Environ()}
			for _, name := range host.ProxyVariables {
				if err := os.Unsetenv(name); err != nil {
					return err
				}
			}
			defer h.Close()
			return agent.Serve(c.Context(), h, os.Stdin, os.Stdout)
		},
	}
}
