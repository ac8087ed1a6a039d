package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

func newStateRebuild() *cobra.Command {
	var flags runFlags
	var force bool
	c := &cobra.Command{
		Use:   "rebuild [FOLDER|FILE]",
		Short: "Rebuild a lost state from what the declared machines and the API report",
		Long: `Rebuild a state that was lost or cannot be read from the declared machines and the API: authorities, keys and
credentials from /etc/kubernetes on the machines of the control plane, members of the store, and the objects that were
applied by this configuration. Nothing changes on the machines or in the cluster. Check clusterctl plan afterwards. An
unreadable state is moved to .clusterctl/versions.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			store, err := flags.lockedStore(c.Context(), configuration)
			if err != nil {
				return err
			}
			defer flags.unlock()
			before, unreadable := store.Read()
			if before != nil && !force {
				return fmt.Errorf("there is a state, of %s and %s: clusterctl plan says whether it fits. With -force "+
					"it is kept in .clusterctl/versions, and rebuilt", plan.Number(len(before.Machines), "machine"),
					plan.Number(len(before.Objects), "object"))
			}
			ctx, cancel := cancelOnLostLock(c.Context(), flags.heldLock)
			defer cancel(nil)
			progress := newProgress(c.OutOrStdout(), flags.json, configuration.Cluster.Secrets)
			engine, err := flags.engine(configuration, func(e report.Event) { progress.print(e) })
			if err != nil {
				return err
			}
			s, notes, err := engine.Rebuild(ctx)
			if err != nil {
				return lockLost(ctx, err)
			}
			if unreadable != nil {
				aside, err := store.SetAside(time.Now())
				if err != nil {
					return err
				}
				notes = append(notes, fmt.Sprintf("the state that could not be read (%v) is now %s", unreadable, aside))
			} else if err := store.SaveVersion(); err != nil {
				return err
			}
			if before != nil {
				s.Serial = before.Serial // so that plans saved before do not match
				s.Keys.Encryption.Former, s.Keys.Secrets = before.Keys.Encryption.Former, before.Keys.Secrets
			}
			if err := store.Write(s); err != nil {
				return err
			}
			return printRebuilt(c.OutOrStdout(), s, notes, flags.json)
		},
	}
	flags.configFlags.add(c)
	flags.addReach(c)
	flags.addLock(c)
	c.Flags().BoolVar(&flags.json, "json", false, "events and the result as JSON, one a line")
	c.Flags().BoolVar(&force, "force", false, "also when there is a state that can be read")
	return c
}

// printRebuilt prints what a rebuilt state has, and notes about it.
func printRebuilt(w io.Writer, s *state.State, notes []string, asJSON bool) error {
	if asJSON {
		text, err := json.Marshal(
			map[string]any{
				"kind":     "result",
				"outcome":  "done",
				"machines": len(s.Machines),
				"objects":  len(s.Objects),
				"members":  len(s.Etcd),
				"notes":    notes,
			},
		)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, string(text))
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(w, "Note:", n+".")
	}
	fmt.Fprintf(w, "\nThe state knows %s, of which %d have a member of the store, and %s. clusterctl plan says how "+
		"that differs from what is declared.\n", plan.Number(len(s.Machines), "machine"), len(s.Etcd),
		plan.Number(len(s.Objects), "object"))
	return nil
}
