package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/ssh"
)

func newSSH() *cobra.Command {
	var flags runFlags
	var folder string
	c := &cobra.Command{
		Use:   "ssh [-C FOLDER] MACHINE [COMMAND…]",
		Short: "Log in to a machine with the system's ssh, with the settings of the configuration",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.loadOffline(c, []string{folder})
			if err != nil {
				return err
			}
			m, err := findMachine(configuration.Cluster, args[0])
			if err != nil {
				return err
			}
			program, err := exec.LookPath("ssh")
			if err != nil {
				return errors.New("there is no ssh on this machine: install openssh-client")
			}
			line := append([]string{"ssh"}, ssh.Args(m)...)
			return syscall.Exec(program, append(line, args[1:]...), os.Environ())
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVarP(&folder, "chdir", "C", ".", "`folder` of the configuration")
	c.Flags().SetInterspersed(false)
	c.ValidArgsFunction = completeArguments(&flags, &folder, 1, machineNames)
	return c
}

// findMachine finds a machine by its address in the configuration, its name or its IP address.
func findMachine(c *config.Cluster, name string) (config.Machine, error) {
	var addresses []string
	for _, m := range c.Machines {
		if m.Address == name || m.Address == "machine."+name || m.Name == name || m.IP.String() == name {
			return m, nil
		}
		addresses = append(addresses, m.Name)
	}
	return config.Machine{}, fmt.Errorf("there is no machine %q.%s The machines are %s", name,
		block.Suggest(name, addresses), strings.Join(addresses, ", "))
}
