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

func newHandedOut() *cobra.Command {
	var flags runFlags
	c := &cobra.Command{
		Use:   "list [FOLDER|FILE]",
		Short: "Say to whom kubeconfigs were handed out, and which of them are good",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, s, dir, err := flags.appliedIn(c, args)
			if err != nil {
				return err
			}
			handed, err := state.HandedOut(dir)
			if err != nil {
				return err
			}
			now := time.Now()
			if flags.json {
				type line struct {
					state.Handed
					Standing string `json:"standing"`
				}
				var lines []line
				for _, h := range handed {
					lines = append(lines, line{h, standing(s, h, now)})
				}
				return list(c.OutOrStdout(), lines)
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
					standing(s, h, now),
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

// standing describes whether a kubeconfig is valid.
func standing(s *state.State, h state.Handed, now time.Time) string {
	switch {
	case !now.Before(h.Until):
		return "expired"
	case s.Revokes(h):
		return "revoked"
	case h.Authority != "" && !s.Signed(h):
		return "of a former CA"
	}
	return "valid"
}
