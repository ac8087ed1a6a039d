package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

func newCerts() *cobra.Command {
	c := &cobra.Command{Use: "certs", Short: "Look at the cluster's certificates, and revoke some"}
	c.AddCommand(newCheckExpiration(), newRevoke())
	return c
}

func newCheckExpiration() *cobra.Command {
	var flags runFlags
	c := &cobra.Command{
		Use:   "check-expiration [FOLDER|FILE]",
		Short: "Say when the certificates that machines were given end, as the state has it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, s, err := flags.applied(c, args)
			if err != nil {
				return err
			}
			return printExpiration(c, s, time.Now())
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	return c
}

// printExpiration prints kubeadm's columns, with the machine before them.
func printExpiration(c *cobra.Command, s *state.State, now time.Time) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tCERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED")
	for _, address := range slices.Sorted(maps.Keys(s.Machines)) {
		m := s.Machines[address]
		for _, label := range slices.Sorted(maps.Keys(m.Issued)) {
			i := m.Issued[label]
			_, file, _ := strings.Cut(label, " ")
			file = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(file, "/etc/kubernetes/"), "pki/"), ".crt")
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\tno\n", m.Machine.Name, file, i.Until.UTC().Format("Jan 02, 2006 15:04 UTC"), residual(i.Until.Sub(now)), strings.ReplaceAll(i.CA, "/", "-"))
		}
	}
	fmt.Fprintln(w, "\nMACHINE\tCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\t\tEXTERNALLY MANAGED")
	for _, name := range slices.Sorted(maps.Keys(s.CAs)) {
		cert, err := certs.ParseCert(s.CAs[name])
		if err != nil {
			return fmt.Errorf("read the authority %s: %w", name, err)
		}
		fmt.Fprintf(w, "all\t%s\t%s\t%s\t\tno\n", strings.ReplaceAll(name, "/", "-"), cert.NotAfter.UTC().Format("Jan 02, 2006 15:04 UTC"), residual(cert.NotAfter.Sub(now)))
	}
	return w.Flush()
}

func residual(d time.Duration) string {
	switch days := int(d.Hours() / 24); {
	case d <= 0:
		return "<invalid>"
	case days > 730:
		return fmt.Sprintf("%dy", days/365)
	case days >= 1:
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dm", int(d.Minutes()))
}

func newRevoke() *cobra.Command {
	var flags runFlags
	var folder string
	c := &cobra.Command{
		Use:   "revoke [-C FOLDER] KUBECONFIG|CERTIFICATE|SERIAL…",
		Short: "Have the cluster refuse a client certificate before it ends, from the next apply on",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, []string{folder})
			if err != nil {
				return err
			}
			store, err := flags.store(configuration)
			if err != nil {
				return err
			}
			lock, err := flags.lock(c.Context(), store)
			if err != nil {
				return err
			}
			defer func() { _ = lock.Release() }()
			store.Lock = lock
			s, err := store.Read()
			if err != nil {
				return err
			}
			if s == nil {
				return errors.New("there is no cluster yet: apply first")
			}
			for _, arg := range args {
				r, err := revocation(s, arg, time.Now())
				if err != nil {
					return err
				}
				s.Revoke(r)
				fmt.Fprintf(c.OutOrStdout(), "%s, serial number %s: revoked\n", cmp.Or(r.Name, "certificate"), r.Serial)
			}
			if err := store.Write(s); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "Run clusterctl apply: with it all machines refuse it.")
			return nil
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVarP(&folder, "chdir", "C", ".", "`folder` of the configuration")
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	c.Flags().DurationVar(&flags.lockTimeout, "lock-timeout", 0, "how long to wait for another run to end")
	return c
}

// revocation finds out which certificate is meant: by a file that has it, or by its
// serial number in hexadecimal, of the cluster's CA.
func revocation(s *state.State, arg string, now time.Time) (certs.Revoked, error) {
	cert, err := certificateIn(arg)
	if errors.Is(err, os.ErrNotExist) {
		text := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(arg, ":", ""), "0x"))
		serial, ok := new(big.Int).SetString(text, 16)
		if !ok {
			return certs.Revoked{}, fmt.Errorf("revoke %s: it is neither a file nor a serial number in hexadecimal", arg)
		}
		return certs.Revoked{CA: certs.ClusterCA, Serial: serial.Text(16), At: now}, nil
	}
	if err != nil {
		return certs.Revoked{}, fmt.Errorf("revoke the certificate in %s: %w", arg, err)
	}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		ca, err := certs.ParseCert(s.CAs[name])
		if err == nil && cert.CheckSignatureFrom(ca) == nil {
			return certs.Revoked{CA: name, Serial: cert.SerialNumber.Text(16), Name: cert.Subject.CommonName, At: now, Until: cert.NotAfter}, nil
		}
	}
	return certs.Revoked{}, fmt.Errorf("revoke the certificate in %s: it is not of this cluster", arg)
}

// certificateIn reads the client's certificate in a kubeconfig or a PEM file.
func certificateIn(path string) (*x509.Certificate, error) {
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
