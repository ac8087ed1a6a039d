package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/load"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
)

func newEtcd() *cobra.Command {
	c := &cobra.Command{
		Use: "etcd", Short: "Manage the cluster's store: members, snapshots, alarms and size",
		Long: "Look after the cluster's store, etcd. Everything goes through SSH and the machines' agents, so that " +
			"its ports need not be reached from here.",
	}
	c.AddCommand(newEtcdStatus(), newEtcdMembers(), newEtcdRemove(), newSnapshot(), newDefrag(), newAlarm(),
		newCompact())
	return c
}

// storeFlags are the flags of commands that access the store.
type storeFlags struct {
	runFlags
	folder  string
	timeout time.Duration
}

func (f *storeFlags) add(c *cobra.Command) {
	f.configFlags.add(c)
	c.Flags().StringVarP(&f.folder, "chdir", "C", ".", "`folder` of the configuration")
	f.addReach(c)
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Minute, "how long all of it may take")
	c.Flags().BoolVar(&f.json, "json", false, "the result as JSON")
	for flag, complete := range map[string]cobra.CompletionFunc{"state": completeDirectories,
		"chdir": completeDirectories} {
		_ = c.RegisterFlagCompletionFunc(flag, complete) // never fails, because the flag exists
	}
}

func completeDirectories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// withStore opens the store of the configuration in the directory and calls do.
func (f *storeFlags) withStore(c *cobra.Command,
	do func(context.Context, *load.Configuration, *etcd.Access) error) error {
	configuration, err := f.load(c, []string{f.folder})
	if err != nil {
		return err
	}
	engine, err := f.engine(configuration, func(e report.Event) {
		if e.Kind == report.Send && !f.json {
			fmt.Fprintf(c.ErrOrStderr(), "%s: sending %s\n", e.Machine, e.Message)
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
	defer cancel()
	a, err := engine.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	err = do(ctx, configuration, a)
	if errors.Is(err, context.DeadlineExceeded) && c.Context().Err() == nil {
		err = fmt.Errorf("%w: it took longer than -timeout %s", err, f.timeout)
	}
	return err
}

func (f *storeFlags) print(c *cobra.Command, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
	return err
}

// etcdStatus is the output of etcd status.
type etcdStatus struct {
	Members   []store.Member            `json:"members"`
	Majority  bool                      `json:"majority"`
	Snapshots map[string]*store.Outcome `json:"snapshots"`           // outcome of the last snapshot, by machine
	Unreached map[string]string         `json:"unreached,omitempty"` // reasons by machine
	Problems  []string                  `json:"trouble,omitempty"`   // problems that were found
}

func newEtcdStatus() *cobra.Command {
	var flags storeFlags
	c := &cobra.Command{
		Use: "status", Short: "Show the state of the store's members, its size and the age of the last snapshots; " +
			"exit with 1 if there is a problem",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withStore(c,
				func(ctx context.Context, configuration *load.Configuration, a *etcd.Access) error {
					members, err := a.Status(ctx)
					if err != nil {
						return err
					}
					s := etcdStatus{
						Members:   members,
						Majority:  etcd.HasMajority(members),
						Snapshots: a.LastSnapshots(),
						Unreached: a.Unreached(),
					}
					s.addProblems(configuration, time.Now())
					if text := a.DescribeMembership(ctx); text != "" {
						s.Problems = append(s.Problems, text)
					}
					if flags.json {
						err = flags.print(c, s)
					} else {
						err = s.print(c, time.Now())
					}
					if err == nil && len(s.Problems) > 0 {
						return exitCode(1)
					}
					return err
				})
		},
	}
	flags.add(c)
	return c
}

// nearlyFull is the share of the quota above which the store counts as nearly full.
const nearlyFull = 0.8

// addProblems adds the problems to s.Problems.
func (s *etcdStatus) addProblems(configuration *load.Configuration, now time.Time) {
	add := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	if !s.Majority {
		add("the store has no majority, so that nothing can be written: docs/operations/etcd-majority-lost.md says " +
			"what to do")
	}
	for _, m := range s.Members {
		for _, alarm := range m.Alarms {
			if alarm == "NOSPACE" {
				add("%s raises NOSPACE, so that nothing can be written: docs/operations/etcd-no-space.md says what to "+
					"do", m.Name)
			} else {
				add("%s raises %s: its data is damaged; replace its machine's member with clusterctl apply "+
					"-replace", m.Name, alarm)
			}
		}
		if m.Error == "" && m.Quota > 0 && float64(m.Size) > nearlyFull*float64(m.Quota) && len(m.Alarms) == 0 {
			add("%s has %s of the %s that it may have, of which %s are in use: clusterctl etcd defrag gives back the "+
				"rest", m.Name, formatSize(m.Size), formatSize(m.Quota), formatSize(m.Used))
		}
		if m.Error != "" {
			add("%s: %s", memberName(m), m.Error)
		}
	}
	for _, name := range sortedKeys(s.Snapshots) {
		if text := etcd.SnapshotProblem(configuration.Cluster.Etcd.Snapshot, s.Snapshots[name], now); text != "" {
			add("%s: %s", name, text)
		}
	}
	for _, name := range sortedKeys(s.Unreached) {
		add("%s is not reached: %s", name, s.Unreached[name])
	}
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func memberName(m store.Member) string {
	if m.Name == "" {
		return m.ID
	}
	return m.Name
}

func formatSize(bytes int64) string {
	const mega = 1 << 20
	if bytes >= 10<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/mega)
}

func (s *etcdStatus) print(c *cobra.Command, now time.Time) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tIS\tSIZE\tIN USE\tQUOTA\tREVISION\tALARMS\tLAST SNAPSHOT\tVERSION")
	for _, m := range s.Members {
		if m.Error != "" {
			fmt.Fprintf(w, "%s\tdoes not answer\t-\t-\t-\t-\t-\t%s\t-\n", memberName(m), s.lastSnapshot(m.Name, now))
			continue
		}
		alarms := strings.Join(m.Alarms, ",")
		if alarms == "" {
			alarms = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", memberName(m), memberRole(m), formatSize(m.Size),
			formatSize(m.Used), formatSize(m.Quota), m.Revision, alarms, s.lastSnapshot(m.Name, now), m.Version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range s.Problems {
		fmt.Fprintln(c.OutOrStdout(), text)
	}
	return nil
}

func (s *etcdStatus) lastSnapshot(name string, now time.Time) string {
	o := s.Snapshots[name]
	if o == nil || o.Good == nil {
		return "none"
	}
	text := etcd.FormatAge(now.Sub(o.Good.Taken)) + " ago"
	if o.Error != "" {
		text += ", then failed"
	}
	return text
}

func memberRole(m store.Member) string {
	switch {
	case m.Unstarted:
		return "not started"
	case m.Learner:
		return "learner"
	case m.Leader:
		return "leader"
	}
	return "follower"
}

func newEtcdMembers() *cobra.Command {
	var flags storeFlags
	c := &cobra.Command{
		Use: "members", Short: "List the store's members",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				members, err := a.Status(ctx)
				if err != nil {
					return err
				}
				if flags.json {
					return flags.print(c, members)
				}
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tMEMBER\tIS\tADDRESS")
				for _, m := range members {
					current := memberRole(m)
					if m.Error != "" {
						current = "does not answer"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.ID, m.Name, current, m.Endpoint)
				}
				return w.Flush()
			})
		},
	}
	flags.add(c)
	return c
}

func newEtcdRemove() *cobra.Command {
	var flags storeFlags
	c := &cobra.Command{
		Use: "remove MEMBER", Short: "Remove a member from the store that belongs to no machine of the control plane",
		Long: "Remove a member that no control-plane machine has, by its name or its ID. To remove the member of a " +
			"machine, take the machine or its role out of the configuration and apply.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				m, err := a.Remove(ctx, args[0])
				if err != nil {
					return err
				}
				if flags.json {
					return flags.print(c, m)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "removed %s (%s)\n",
					cmp.Or(m.Name, "a member that has never started"), m.ID)
				return err
			})
		},
	}
	flags.add(c)
	return c
}

func newDefrag() *cobra.Command {
	var flags storeFlags
	c := &cobra.Command{
		Use: "defrag", Short: "Free unused disk space of the members, one after the other, the leader last",
		Long: "Free unused disk space of the members, one after the other and the leader last. A member does not " +
			"answer meanwhile. So before each, the other members must be a majority.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				list := []store.Member{}
				err := a.Defrag(ctx, func(before, after store.Member) {
					list = append(list, after)
					if !flags.json {
						fmt.Fprintf(c.OutOrStdout(), "%s: %s, before %s\n", after.Name, formatSize(after.Size),
							formatSize(before.Size))
					}
				})
				if err == nil && flags.json {
					return flags.print(c, list)
				}
				return err
			})
		},
	}
	flags.add(c)
	return c
}

func newAlarm() *cobra.Command {
	c := &cobra.Command{
		Use:   "alarm",
		Short: "List and disarm the store's alarms",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsSubcommand,
	}
	var listing, disarming storeFlags
	list := &cobra.Command{
		Use: "list", Short: "List the alarms that members raise",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return listing.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				members, err := a.Status(ctx)
				if err != nil {
					return err
				}
				alarms := map[string][]string{}
				for _, m := range members {
					if len(m.Alarms) > 0 {
						alarms[m.Name] = m.Alarms
					}
				}
				if listing.json {
					return listing.print(c, alarms)
				}
				for _, name := range sortedKeys(alarms) {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", name, strings.Join(alarms[name], ", "))
				}
				if len(alarms) == 0 {
					fmt.Fprintln(c.OutOrStdout(), "no alarms")
				}
				return nil
			})
		},
	}
	listing.add(list)
	disarm := &cobra.Command{
		Use: "disarm", Short: "Disarm all alarms after their cause was removed: after NOSPACE, compact and defrag " +
			"first",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return disarming.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				members, err := a.Status(ctx)
				if err != nil {
					return err
				}
				for _, m := range members {
					if slices.Contains(m.Alarms, "NOSPACE") && m.Quota > 0 &&
						float64(m.Size) > nearlyFull*float64(m.Quota) {
						return fmt.Errorf("%s still has %s of the %s that it may have, so that the alarm would soon "+
							"be raised again: clusterctl etcd compact, then clusterctl etcd defrag come first; or "+
							"raise etcd { quota } in the cluster block and apply", m.Name, formatSize(m.Size),
							formatSize(m.Quota))
					}
				}
				if err := a.Disarm(ctx); err != nil {
					return err
				}
				if disarming.json {
					return disarming.print(c, map[string]string{"outcome": "disarmed"})
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), "disarmed")
				return err
			})
		},
	}
	disarming.add(disarm)
	c.AddCommand(list, disarm)
	return c
}

func newCompact() *cobra.Command {
	var flags storeFlags
	var revision, keep int64
	c := &cobra.Command{
		Use: "compact", Short: "Delete the history of the store before a revision, or all but the last revisions",
		Long: "Delete the history of the store before a revision, or all but the last revisions. API servers do so " +
			"every few minutes. Use it if the store is full. Watches of older revisions start again.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if revision < 0 || keep < 0 {
				return errors.New("revisions are counted from 1")
			}
			return flags.withStore(c, func(ctx context.Context, _ *load.Configuration, a *etcd.Access) error {
				at, err := a.Compact(ctx, revision, keep)
				switch {
				case err != nil:
					return err
				case flags.json:
					return flags.print(c, map[string]int64{"revision": at})
				case at == 0:
					_, err = fmt.Fprintln(c.OutOrStdout(), "there are no more revisions than are kept")
				default:
					_, err = fmt.Fprintf(c.OutOrStdout(), "compacted to revision %d\n", at)
				}
				return err
			})
		},
	}
	flags.add(c)
	c.Flags().Int64Var(&revision, "revision", 0, "forget what was before this `revision`")
	c.Flags().
		Int64Var(&keep, "keep", 0, "instead: forget all but the last `revisions`; with neither flag, all but the "+
			"present one")
	c.MarkFlagsMutuallyExclusive("revision", "keep")
	return c
}
