package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/hcl/load"
	"clusterctl/provision/state"
)

// completeTimeout is how long a shell waits for names that the cluster has.
const completeTimeout = 3 * time.Second

// names finds words that a shell offers. A configuration or state that cannot be read offers none: it is not the time
// to say why.
type names func(f *runFlags, c *load.Configuration) []string

// complete offers names for a command's arguments, up to max of them; zero is any number.
func complete(f *runFlags, folder *string, max int, of names) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if max > 0 && len(args) >= max {
			return nil, cobra.ShellCompDirectiveDefault
		}
		configuration, diags := load.Load(
			load.Options{Path: *folder, Vars: f.vars, VarFiles: f.varFiles, Environ: os.Environ()},
		)
		if diags.HasErrors() || configuration == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list := slices.DeleteFunc(
			of(f, configuration),
			func(n string) bool { return !strings.HasPrefix(n, begun) || slices.Contains(args, n) },
		)
		slices.Sort(list)
		return slices.Compact(list), cobra.ShellCompDirectiveNoFileComp
	}
}

func machineNames(_ *runFlags, c *load.Configuration) (list []string) {
	for _, m := range c.Cluster.Machines {
		list = append(list, m.Name)
	}
	return list
}

// declaredAddresses are what -target and its like take: what is declared and what was applied.
func declaredAddresses(f *runFlags, c *load.Configuration) (list []string) {
	for _, d := range c.Graph {
		if kind, _, _ := strings.Cut(d.Address, "."); kind == "machine" || kind == "workload" || kind == "object" ||
			kind == "storage_class" ||
			kind == "manifests" ||
			kind == "image" {
			list = append(list, d.Address)
		}
	}
	for _, m := range c.Cluster.Machines {
		list = append(list, m.Address)
	}
	return append(list, appliedAddresses(f, c)...)
}

func appliedAddresses(f *runFlags, c *load.Configuration) (list []string) {
	if s := stateOf(f, c); s != nil {
		list = slices.Collect(maps.Keys(s.Machines))
		if all, err := entries(s, nil); err == nil {
			for _, e := range all {
				list = append(list, e.Address)
			}
		}
	}
	return list
}

func handedNames(f *runFlags, c *load.Configuration) (list []string) {
	store, err := f.store(c)
	if err != nil {
		return nil
	}
	handed, err := state.HandedOut(store.Dir)
	if err != nil {
		return nil
	}
	for _, h := range handed {
		if time.Now().Before(h.Until) {
			list = append(list, h.Name)
		}
	}
	return list
}

func tokenIDs(f *runFlags, c *load.Configuration) (list []string) {
	s := stateOf(f, c)
	if s == nil {
		return nil
	}
	live, err := connect(s, c.Cluster)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	tokens, err := live.Tokens(ctx)
	if err != nil {
		return nil
	}
	for _, t := range tokens {
		list = append(list, t.ID)
	}
	return list
}

// snapshotNames asks the machines. It is no time to ask somebody for a passphrase, to trust a new host key, or to send
// programs.
func snapshotNames(f *runFlags, c *load.Configuration) (list []string) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	quiet := *f
	quiet.acceptNewHostKeys, quiet.unattended = false, true
	engine, err := quiet.engine(c, nil)
	if err != nil {
		return nil
	}
	a, err := engine.OpenStore(ctx)
	if err != nil {
		return nil
	}
	defer a.Close()
	snapshots, _, err := a.Snapshots(ctx)
	if err != nil {
		return nil
	}
	for _, s := range snapshots {
		list = append(list, s.Name)
	}
	return list
}

// completeSnapshot offers a snapshot's name, and files of this computer once there is a slash, which is what tells them
// apart.
func completeSnapshot(f *storeFlags) cobra.CompletionFunc {
	named := complete(&f.runFlags, &f.folder, 1, func(flags *runFlags, c *load.Configuration) []string {
		return append(snapshotNames(flags, c), latest)
	})
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(begun, "/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return named(c, args, begun)
	}
}

func controlPlaneNames(_ *runFlags, c *load.Configuration) (list []string) {
	for _, m := range c.Cluster.ControlPlane() {
		list = append(list, m.Name)
	}
	return list
}

// certificateNames are what certs renew takes.
func certificateNames(f *runFlags, c *load.Configuration) []string {
	list := []string{"all"}
	if s := stateOf(f, c); s != nil {
		for _, i := range issued(s) {
			list = append(list, i.Name)
		}
	}
	return list
}

func outputNames(_ *runFlags, c *load.Configuration) (list []string) {
	for _, o := range c.Cluster.Outputs {
		list = append(list, o.Name)
	}
	return list
}

// completeFlag offers names for a flag of a verb that is told with -C where the configuration is.
func completeFlag(c *cobra.Command, flag string, f *runFlags, folder *string, of names) {
	_ = c.RegisterFlagCompletionFunc(
		flag,
		func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return complete(f, folder, 0, of)(c, nil, begun)
		},
	) // the flag is there
}

func stateOf(f *runFlags, c *load.Configuration) *state.State {
	store, err := f.store(c)
	if err != nil {
		return nil
	}
	s, err := store.Read()
	if err != nil {
		return nil
	}
	return s
}

// completeFlags offers names for flags of verbs whose argument is the configuration.
func (f *runFlags) completeFlags(c *cobra.Command, of names, flags ...string) {
	for _, flag := range flags {
		_ = c.RegisterFlagCompletionFunc(
			flag,
			func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				folder := "."
				if len(args) > 0 {
					folder = args[0]
				}
				return complete(f, &folder, 0, of)(c, nil, begun)
			},
		) // the flag is there
	}
}

// offerAsWritten has a shell offered flags with one dash when that is how one has begun to write them: a shell drops
// what does not go on as its line does.
func offerAsWritten(root *cobra.Command, args []string) {
	if len(args) < 3 || args[1] != cobra.ShellCompRequestCmd && args[1] != cobra.ShellCompNoDescRequestCmd {
		return
	}
	if begun := args[len(args)-1]; strings.HasPrefix(begun, "-") && !strings.HasPrefix(begun, "--") {
		root.SetOut(oneDash{os.Stdout})
	}
}

// oneDash takes the second dash away from lines that begin with two; each is written in one piece.
type oneDash struct{ to io.Writer }

func (w oneDash) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("--")) {
		n, err := w.to.Write(line[1:])
		return n + 1, err
	}
	return w.to.Write(line)
}
