package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/provision/state"
)

func newListKubeconfigs() *cobra.Command {
	var flags runFlags
	c := &cobra.Command{
		Use:   "list [FOLDER|FILE]",
		Short: "List the issued kubeconfigs, and which of them are valid",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, s, dir, err := flags.loadAppliedIn(c, args)
			if err != nil {
				return err
			}
			handed, err := state.IssuedKubeconfigs(dir)
			if err != nil {
				return err
			}
			now := time.Now()
			if flags.json {
				type line struct {
					state.IssuedKubeconfig
					Standing string `json:"standing"`
				}
				var lines []line
				for _, h := range handed {
					lines = append(lines, line{h, kubeconfigStatus(s, h, now)})
				}
				return writeList(c.OutOrStdout(), lines)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tGROUPS\tHANDED OUT\tEXPIRES\tSTANDING\tSERIAL")
			for _, h := range handed {
				fmt.Fprintf(
					w,
					"%s\t%s\t%s\t%s\t%s\t%s\n",
					h.Name,
					cmp.Or(strings.Join(h.Groups, ","), "-"),
					h.At.UTC().
						Format("Jan 02, 2006 15:04 UTC"),
					h.Until.UTC().Format("Jan 02, 2006 15:04 UTC"),
					kubeconfigStatus(s, h, now),
					h.Serial,
				)
			}
			return w.Flush()
		},
	}
	flags.configFlags.add(c)
	c.Flags().StringVar(&flags.stateDir, "state", "", "`folder` of the state")
	c.Flags().BoolVar(&flags.json, "json", false, "a JSON object a line, the result last")
	return c
}

// kubeconfigStatus describes whether a kubeconfig is valid.
func kubeconfigStatus(s *state.State, h state.IssuedKubeconfig, now time.Time) string {
	switch {
	case !now.Before(h.Until):
		return "expired"
	case s.HasRevoked(h):
		return "revoked"
	case h.Authority != "" && !s.HasSigned(h):
		return "of a former CA"
	}
	return "valid"
}
