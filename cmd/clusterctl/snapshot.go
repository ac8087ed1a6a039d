package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/load"
	"clusterctl/provision/run/etcd"
)

func newSnapshot() *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Take, list, remove and restore snapshots of the store",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsSubcommand,
	}
	c.AddCommand(newSnapshotSave(), newSnapshotList(), newSnapshotPrune(), newSnapshotRestore())
	return c
}

func newSnapshotSave() *cobra.Command {
	var flags storeFlags
	var machine string
	var exists bool
	c := &cobra.Command{
		Use: "save [FILE]", Short: "Take a snapshot of the store, check it, and download it",
		Long: "Take a snapshot of the store, check it, and download it. The machine keeps it as well until it is " +
			"pruned by name; with -there it stays there alone.\n" +
			"The file has everything that the API has stored: guard it as the state.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if exists && len(args) > 0 {
				return errors.New("with -there the snapshot comes into no file here: leave one of them out")
			}
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				s, notes, err := a.Save(ctx, machine, store.Manual)
				if err != nil {
					return err
				}
				for _, n := range notes {
					fmt.Fprintln(c.ErrOrStderr(), "Note:", n)
				}
				where := a.Path(s.Name) + " on " + s.Member
				if !exists {
					file := s.Name + ".db"
					if len(args) > 0 {
						file = args[0]
					}
					if err := downloadSnapshot(ctx, a, s, file); err != nil {
						return err
					}
					where = file
				}
				if flags.json {
					return flags.print(c, map[string]any{"snapshot": s, "file": where})
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s: revision %d, %d keys, %s, checked\n", where, s.Revision,
					s.Keys, formatSize(s.Size))
				return err
			})
		},
	}
	flags.add(c)
	c.Flags().StringVar(&machine, "machine", "", "`name` of the machine whose member is asked; the leader's when empty")
	c.Flags().BoolVar(&exists, "there", false, "leave it on the machine")
	completeFlag(c, "machine", &flags.runFlags, &flags.folder, controlPlaneNames)
	return c
}

// downloadSnapshot atomically writes a machine's snapshot to a local file that only this user can read, and verifies
// its digest.
func downloadSnapshot(ctx context.Context, a *etcd.Access, s store.Snapshot, file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename, when there is nothing to remove
	sum := newDigestWriter(f)
	err = a.Read(ctx, s, sum)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("bring the snapshot here: %w", err)
	}
	if got := sum.hex(); got != s.SHA256 {
		return fmt.Errorf("the snapshot arrived damaged: its digest is %s, not %s", got, s.SHA256)
	}
	return os.Rename(f.Name(), file)
}

func newSnapshotList() *cobra.Command {
	var flags storeFlags
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the snapshots on the machines and in the bucket, the " +
			"newest first",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				list, notes, err := a.Snapshots(ctx)
				if err != nil {
					return err
				}
				for _, machine := range sortedKeys(a.Unreached()) {
					notes = append(notes, machine+" is not reached: "+a.Unreached()[machine])
				}
				return flags.snapshots(c, list, notes)
			})
		},
	}
	flags.add(c)
	return c
}

func (f *storeFlags) snapshots(c *cobra.Command, list []store.Snapshot, notes []string) error {
	if f.json {
		return f.print(c,
			map[string]any{"snapshots": append([]store.Snapshot{}, list...), "notes": append([]string{}, notes...)})
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tAGE\tWHY\tREVISION\tKEYS\tSIZE\tON")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.Name, etcd.FormatAge(time.Since(s.Taken)), s.Reason,
			s.Revision, s.Keys, formatSize(s.Size), strings.Join(s.In, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(c.ErrOrStderr(), "Note:", n)
	}
	return nil
}

func newSnapshotPrune() *cobra.Command {
	var flags storeFlags
	var keep int
	c := &cobra.Command{
		Use: "prune [NAME]", Short: "Remove snapshots that exceed the declared number or age, or a named snapshot " +
			"from all machines and the bucket",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keep < 0 || len(args) > 0 && keep > 0 {
				return errors.New("write how many of the newest stay, 1 at least, or the name of one that goes")
			}
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				name := strings.Join(args, "")
				removed, notes, err := a.Prune(ctx, keep, name)
				if err != nil {
					return err
				}
				if name != "" && len(removed) == 0 {
					return fmt.Errorf("there is no snapshot %q on the machines that are reached; clusterctl etcd "+
						"snapshot ls lists them", name)
				}
				if !flags.json {
					fmt.Fprintf(c.OutOrStdout(), "removed: %d\n", len(removed))
				}
				return flags.snapshots(c, removed, notes)
			})
		},
	}
	flags.add(c)
	c.Flags().IntVar(&keep, "keep", 0, "how `many` of the newest stay on each machine; as declared when 0")
	c.ValidArgsFunction = completeArguments(&flags.runFlags, &flags.folder, 1, snapshotNames)
	return c
}
