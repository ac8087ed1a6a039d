package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// kubeconfigUser is the user for whom a kubeconfig is issued.
type kubeconfigUser struct {
	user     string
	groups   []string
	lifetime time.Duration
}

func newKubeconfig() *cobra.Command {
	var flags runFlags
	var user kubeconfigUser
	var out string
	var merge bool
	c := &cobra.Command{
		Use:   "kubeconfig [FOLDER|FILE]",
		Short: "Write a kubeconfig with a new certificate, for an administrator or another user",
		Long: `Write a kubeconfig with a new certificate, for an administrator or another user.

It is written down in the state's folder who got it: clusterctl certs list shows that, and clusterctl certs revoke takes it back by name.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, s, dir, err := flags.loadAppliedIn(c, args)
			if err != nil {
				return err
			}
			text, handed, err := user.kubeconfig(s, configuration.Cluster, time.Now())
			if err != nil {
				return err
			}
			if err := state.RecordKubeconfig(dir, handed); err != nil {
				return err
			}
			switch {
			case merge:
				out = cmp.Or(out, defaultKubeconfig())
				if err := mergeKubeconfig(out, text); err != nil {
					return fmt.Errorf("merge the kubeconfig into %s: %w", out, err)
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s has the context %s@%s, which is the current one now.\n", out,
					handed.Name, configuration.Cluster.Name)
			case out == "":
				_, err = c.OutOrStdout().Write(text)
				return err
			default:
				if err := writeKubeconfig(out, text); err != nil {
					return fmt.Errorf("write the kubeconfig: %w", err)
				}
			}
			return nil
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	c.Flags().StringVarP(&out, "output", "o", "", "`file` to write; standard output when empty")
	c.Flags().
		BoolVar(&merge, "merge", false, "add it to the kubeconfig that is there, as kubectl config would: that of "+
			"-output, of KUBECONFIG, or ~/.kube/config")
	c.Flags().StringVar(&user.user, "user", "", "`name` of the user; kubernetes-admin, with every right, when empty")
	c.Flags().StringArrayVar(&user.groups, "group", nil, "`group` of the user; can be repeated")
	c.Flags().DurationVar(&user.lifetime, "lifetime", certs.LeafLifetime, "how long it is good for")
	return c
}

// kubeconfig issues a kubeconfig, and returns it with the record to write.
func (p kubeconfigUser) kubeconfig(s *state.State, c *config.Cluster, now time.Time) ([]byte,
	state.IssuedKubeconfig, error) {
	request := certs.Admin()
	if p.user != "" {
		request.CommonName, request.Organizations = p.user, nil
	}
	if len(p.groups) > 0 {
		request.Organizations = p.groups
	}
	if p.lifetime < time.Minute {
		return nil, state.IssuedKubeconfig{}, fmt.Errorf(
			"-lifetime=%s: it is too short; the minimum is a minute", p.lifetime)
	}
	request.Lifetime = p.lifetime
	server := c.Endpoint
	if server == "" {
		servers := apiServerAddresses(c)
		if len(servers) == 0 {
			return nil, state.IssuedKubeconfig{}, errors.New("no machine has the control-plane role")
		}
		server = servers[0]
	}
	pair, err := certs.Issue(s.CA(certs.ClusterCA), request, now)
	if err != nil {
		return nil, state.IssuedKubeconfig{}, err
	}
	cert, err := certs.ParseCert(pair.Cert)
	if err != nil {
		return nil, state.IssuedKubeconfig{}, err
	}
	text, err := certs.Kubeconfig(c.Name, "https://"+server, request.CommonName, s.Trust(certs.ClusterCA), pair)
	return text, state.IssuedKubeconfig{
		Name: request.CommonName, Groups: request.Organizations, Serial: cert.SerialNumber.Text(16),
		At: now, Until: cert.NotAfter, Authority: certs.KeyID(s.CAs[certs.ClusterCA]),
	}, err
}

// defaultKubeconfig returns the path that kubectl would write to.
func defaultKubeconfig() string {
	return clientcmd.NewDefaultPathOptions().GetDefaultFilename()
}

// writeKubeconfig replaces a file with one that only its owner can read. If the path is not a regular file, such as a
// pipe, it is written to directly.
func writeKubeconfig(path string, text []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, text, 0o600)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // keep the link and replace its target
	}
	return writePrivate(path, text)
}
