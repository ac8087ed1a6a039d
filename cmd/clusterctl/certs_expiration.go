package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/certs"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/survey"
	"clusterctl/provision/state"
)

// expirationList lists the certificates, authorities and kubeconfigs that expire.
type expirationList struct {
	Certificates []survey.Expiration      `json:"certificates"`
	Authorities  []authority              `json:"certificateAuthorities"`
	Kubeconfigs  []state.IssuedKubeconfig `json:"kubeconfigs,omitempty"`
}

type authority struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"`
	Role  string    `json:"standing,omitempty"` // role during a replacement: signs, next or former
}

func newCheckExpiration() *cobra.Command {
	var flags runFlags
	var live bool
	c := &cobra.Command{
		Use:   "check-expiration [FOLDER|FILE]",
		Short: "Show when certificates expire: by the state or, with -live, on the machines",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, s, dir, err := flags.loadAppliedIn(c, args)
			if err != nil {
				return err
			}
			e := expirationList{Certificates: issuedCertificates(s)}
			if live {
				engine, err := flags.engine(configuration, nil)
				if err != nil {
					return err
				}
				if e.Certificates, err = engine.Expirations(c.Context()); err != nil {
					return err
				}
			}
			if e.Authorities, err = trustedAuthorities(s); err != nil {
				return err
			}
			now := time.Now()
			if e.Kubeconfigs, err = state.IssuedKubeconfigs(dir); err != nil {
				return err
			}
			e.Kubeconfigs = slices.DeleteFunc(e.Kubeconfigs,
				func(h state.IssuedKubeconfig) bool { return kubeconfigStatus(s, h, now) != "valid" })
			if flags.json {
				text, err := json.Marshal(e)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
				return err
			}
			return e.print(c.OutOrStdout(), now)
		},
	}
	flags.configFlags.add(c)
	flags.addReach(c)
	c.Flags().BoolVar(&live, "live", false, "ask the machines, rather than the state")
	c.Flags().BoolVar(&flags.json, "json", false, "a JSON object")
	return c
}

// issuedCertificates returns the certificates of machines, as recorded in the state.
func issuedCertificates(s *state.State) (list []survey.Expiration) {
	for _, address := range slices.Sorted(maps.Keys(s.Machines)) {
		m := s.Machines[address]
		for _, label := range slices.Sorted(maps.Keys(m.Issued)) {
			i := m.Issued[label]
			_, file, _ := strings.Cut(label, " ")
			list = append(
				list,
				survey.Expiration{
					Machine: m.Machine.Name,
					Name:    certificate.Name(file),
					CA:      strings.ReplaceAll(i.CA, "/", "-"),
					Until:   i.Until,
				},
			)
		}
	}
	return list
}

// trustedAuthorities returns the trusted authorities.
func trustedAuthorities(s *state.State) (list []authority, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.CAs)) {
		r, rotates := s.Rotations[name]
		own := authority{Name: strings.ReplaceAll(name, "/", "-")}
		other := own
		switch {
		case rotates && r.Phase == state.PhaseTrust:
			own.Role, other.Role = "signs", "next"
		case rotates:
			own.Role, other.Role = "signs", "former"
		}
		for _, one := range []struct {
			authority
			pem []byte
		}{{own, s.CAs[name]}, {other, r.Peer}} {
			if len(one.pem) == 0 {
				continue
			}
			cert, err := certs.ParseCert(one.pem)
			if err != nil {
				return nil, fmt.Errorf("read the authority %s: %w", name, err)
			}
			one.Until = cert.NotAfter
			list = append(list, one.authority)
		}
	}
	return list, nil
}

// print prints kubeadm's columns, with a column for the machine in front.
func (e expirationList) print(out io.Writer, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tCERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED")
	for _, c := range e.Certificates {
		if c.Problem != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t\t%s\tno\n", c.Machine, cmp.Or(c.Name, "-"), c.Problem, c.CA)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\tno\n", c.Machine, c.Name, c.Until.UTC().Format("Jan 02, 2006 15:04 UTC"),
			formatRemaining(c.Until.Sub(now)), c.CA)
	}
	fmt.Fprintln(w, "\nMACHINE\tCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\t\tEXTERNALLY MANAGED")
	for _, a := range e.Authorities {
		fmt.Fprintf(w, "all\t%s\t%s\t%s\t%s\tno\n", a.Name, a.Until.UTC().Format("Jan 02, 2006 15:04 UTC"),
			formatRemaining(a.Until.Sub(now)), a.Role)
	}
	if len(e.Kubeconfigs) > 0 {
		fmt.Fprintln(w, "\nKUBECONFIG OF\t\tEXPIRES\tRESIDUAL TIME")
		for _, h := range e.Kubeconfigs {
			fmt.Fprintf(w, "%s\t\t%s\t%s\n", h.Name, h.Until.UTC().Format("Jan 02, 2006 15:04 UTC"),
				formatRemaining(h.Until.Sub(now)))
		}
	}
	return w.Flush()
}

func formatRemaining(d time.Duration) string {
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
