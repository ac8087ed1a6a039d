package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

func newRevoke() *cobra.Command {
	var flags folderFlags
	c := &cobra.Command{
		Use:   "revoke [-C FOLDER] KUBECONFIG|CERTIFICATE|NAME|SERIAL…",
		Short: "Revoke client certificates with the next apply",
		Long: `Revoke client certificates with the next apply: the one in a file, all that
clusterctl kubeconfig has issued for a name, or the one with a hexadecimal serial number.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var lines []string
			err := flags.changeState(c, func(s *state.State, dir string) error {
				handed, err := state.IssuedKubeconfigs(dir)
				if err != nil {
					return err
				}
				for _, arg := range args {
					list, err := findRevocations(s, handed, arg, time.Now())
					if err != nil {
						return err
					}
					s.Revoke(list...)
					for _, r := range list {
						lines = append(lines, fmt.Sprintf("%s, serial number %s: revoked\n",
							cmp.Or(r.Name, "certificate"), r.Serial))
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), strings.Join(lines, ""))
			fmt.Fprintln(c.OutOrStdout(), "Run clusterctl apply: with it all machines refuse it.")
			return nil
		},
	}
	flags.add(c, true)
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 0, kubeconfigNames)
	return c
}

// findRevocations returns the certificates that an argument means: a file with a certificate, a name that kubeconfigs
// were issued for, or a hexadecimal serial number of the cluster's CA.
func findRevocations(s *state.State, handed []state.IssuedKubeconfig, arg string, now time.Time) (list []certs.Revoked,
	err error) {
	r, err := readRevocation(s, arg, now)
	if !errors.Is(err, os.ErrNotExist) {
		return []certs.Revoked{r}, err
	}
	for _, h := range handed {
		if h.Name == arg && now.Before(h.Until) {
			list = append(list,
				certs.Revoked{CA: certs.ClusterCA, Serial: h.Serial, Name: h.Name, At: now, Until: h.Until})
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	text := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(arg, ":", ""), "0x"))
	serial, ok := new(big.Int).SetString(text, 16)
	if !ok {
		return nil, fmt.Errorf("revoke %s: it is neither a file, nor a name that a kubeconfig was issued for "+
			"(clusterctl certs list has them), nor a serial number in hexadecimal", arg)
	}
	return []certs.Revoked{{CA: certs.ClusterCA, Serial: serial.Text(16), At: now}}, nil
}

// readRevocation returns the revocation of the certificate in a file.
func readRevocation(s *state.State, arg string, now time.Time) (certs.Revoked, error) {
	cert, err := readClientCertificate(arg)
	if err != nil {
		return certs.Revoked{}, fmt.Errorf("revoke the certificate in %s: %w", arg, err)
	}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		if certs.SignedBy(cert, s.Trust(name)) {
			return certs.Revoked{
				CA:     name,
				Serial: cert.SerialNumber.Text(16),
				Name:   cert.Subject.CommonName,
				At:     now,
				Until:  cert.NotAfter,
			}, nil
		}
	}
	return certs.Revoked{}, fmt.Errorf("revoke the certificate in %s: it is not of this cluster", arg)
}

// readClientCertificate reads the client certificate in a kubeconfig or a PEM file.
func readClientCertificate(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if cert, err := certs.ParseCert(text); err == nil {
		return cert, nil
	}
	kubeconfig, err := clientcmd.Load(text)
	if err != nil {
		return nil, errors.New("it has neither a certificate nor a kubeconfig")
	}
	for _, user := range kubeconfig.AuthInfos {
		if len(user.ClientCertificateData) > 0 {
			return certs.ParseCert(user.ClientCertificateData)
		}
	}
	return nil, errors.New("the kubeconfig has no client certificate in it")
}
