package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/provision/run/etcd"
)

// latestArgument is the argument for the newest good snapshot.
const latestArgument = "latest"

func newSnapshotRestore() *cobra.Command {
	var flags storeFlags
	var member string
	var loss, excludes []string
	var approve bool
	c := &cobra.Command{
		Use: "restore [FILE|NAME|latest]", Short: "Restore the store from a snapshot, when most or all of its " +
			"members have lost their data",
		Long: `Restore the store from a snapshot: a file on this computer (with a slash, as ./snapshot.db), a snapshot on the
machines or in the bucket (by its name, which clusterctl etcd snapshot ls shows), or the newest valid one (latest, or
no argument).

The API servers and all members stop first. Existing data is moved aside on each machine and is not deleted. Then the
store starts on one machine, and the other members join it. New revisions are far above the former ones, so that all
clients list again. Pods keep running meanwhile.

If the command is interrupted, run it again.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, l := range loss {
				if l != "etcd" {
					return fmt.Errorf("-allow-data-loss %s: what can be lost here is called etcd", l)
				}
			}
			r := etcd.Restore{Member: member, AllowsLoss: len(loss) > 0}
			if len(args) > 0 && member != "" {
				return errors.New("a snapshot, or -from-member: one of the two")
			}
			if len(args) > 0 && args[0] != latestArgument {
				r.Name = args[0]
				if strings.Contains(args[0], "/") {
					var err error
					if r.Digest, err = fileDigest(args[0]); err != nil {
						return err
					}
					r.File, r.Name = args[0], ""
				}
			}
			return flags.restore(c, r, excludes, approve)
		},
	}
	flags.add(c)
	c.Flags().
		StringVar(&member, "from-member", "", "`name` of a machine that still has its data: that becomes the store, "+
			"and not a snapshot")
	c.Flags().StringArrayVar(&loss, "allow-data-loss", nil, "throw away what else there is of the store: `etcd`")
	c.Flags().
		StringArrayVar(&excludes, "exclude", nil, "a machine's `address`: it is certain that it is off; can be "+
			"repeated")
	c.Flags().BoolVar(&approve, "auto-approve", false, "do not ask")
	flags.addLock(c)
	completeFlag(c, "from-member", &flags.runFlags, &flags.folder, controlPlaneNames)
	completeFlag(c, "exclude", &flags.runFlags, &flags.folder, declaredAddresses)
	c.ValidArgsFunction = completeSnapshot(&flags)
	return c
}

func fileDigest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := newDigestWriter(io.Discard)
	_, err = io.Copy(sum, f)
	return sum.hex(), err
}

// restore restores the store under the lock.
func (f *storeFlags) restore(c *cobra.Command, r etcd.Restore, excludes []string, approve bool) (err error) {
	configuration, err := f.load(c, []string{f.folder})
	if err != nil {
		return err
	}
	if f.json {
		defer func() { err = writeResult(c.OutOrStdout(), err, configuration.Cluster.Secrets, nil) }()
	}
	_, err = f.lockedStore(c.Context(), configuration)
	if err != nil {
		return err
	}
	defer f.unlock()
	held, release := cancelOnLostLock(c.Context(), f.heldLock)
	defer release(nil)
	ctx, cancel := context.WithTimeout(held, f.timeout)
	defer cancel()
	out, start := c.OutOrStdout(), time.Now()
	progress := newProgress(out, f.json, configuration.Cluster.Secrets)
	engine, err := f.engine(configuration, progress.print)
	if err != nil {
		return err
	}
	engine.Excludes = excludes
	r.Approve = func(text string) error {
		if !f.json {
			fmt.Fprint(out, text)
		}
		if approve {
			return nil
		}
		return askApproval(ctx, out, os.Stdin, false)
	}
	if err := lockLost(held, engine.Restore(ctx, r)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && held.Err() == nil {
			return fmt.Errorf("%w: it took longer than -timeout %s; run it again to go on", err, f.timeout)
		}
		return err
	}
	if f.json {
		return nil
	}
	fmt.Fprintf(out, "\nRestored in %.1f s. What was changed since may differ from the configuration: clusterctl plan "+
		"shows it, and clusterctl apply brings it back.\n", time.Since(start).Seconds())
	if len(excludes) > 0 {
		slices.Sort(excludes)
		fmt.Fprintf(out, "%s joins again by clusterctl apply, once it is back.\n", strings.Join(excludes, ", "))
	}
	return nil
}
