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

// completeTimeout limits completions that ask the cluster.
const completeTimeout = 3 * time.Second

// nameLister returns completions. If the configuration or the state cannot be read, it returns none, because a
// completion should not print errors.
type nameLister func(f *runFlags, c *load.Configuration) []string

// completeArguments completes a command's arguments, at most max of them; zero means any number.
func completeArguments(f *runFlags, folder *string, max int, of nameLister) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if max > 0 && len(args) >= max {
			return nil, cobra.ShellCompDirectiveDefault
		}
		configuration, diags := load.Load(
			load.Options{Path: *folder, Vars: f.vars, VarFiles: f.varFiles, Environ: os.Environ()},
		)
		if diags.HasErrors() || configuration == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list := slices.DeleteFunc(of(f, configuration),
			func(n string) bool { return !strings.HasPrefix(n, toComplete) || slices.Contains(args, n) })
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

// declaredAddresses returns the addresses for -target and similar flags: those that are declared and those that were
// applied.
func declaredAddresses(f *runFlags, c *load.Configuration) (list []string) {
	for _, d := range c.Graph {
		if kind, _, _ := strings.Cut(d.Address, "."); kind == "machine" || kind == "workload" || kind == "object" ||
			kind == "storage_class" ||
			kind == "git_source" ||
			kind == "helm_release" ||
			kind == "kustomization" ||
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
	if s := readState(f, c); s != nil {
		list = slices.Collect(maps.Keys(s.Machines))
		if all, err := stateEntries(s, nil); err == nil {
			for _, e := range all {
				list = append(list, e.Address)
			}
		}
	}
	return list
}

func kubeconfigNames(f *runFlags, c *load.Configuration) (list []string) {
	store, err := f.store(c)
	if err != nil {
		return nil
	}
	handed, err := state.IssuedKubeconfigs(store.Dir)
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
	s := readState(f, c)
	if s == nil {
		return nil
	}
	live, err := connectAPI(s, c.Cluster)
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

// snapshotNames asks the machines for their snapshots. It must not ask for a passphrase, trust a new host key, or send
// programs.
func snapshotNames(f *runFlags, c *load.Configuration) (list []string) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	quiet := *f
	quiet.acceptNewHostKeys, quiet.isUnattended = false, true
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

// completeSnapshot completes names of snapshots, or local files if the argument contains a slash, which distinguishes
// them.
func completeSnapshot(f *storeFlags) cobra.CompletionFunc {
	named := completeArguments(&f.runFlags, &f.folder, 1, func(flags *runFlags, c *load.Configuration) []string {
		return append(snapshotNames(flags, c), latestArgument)
	})
	return func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(toComplete, "/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return named(c, args, toComplete)
	}
}

func controlPlaneNames(_ *runFlags, c *load.Configuration) (list []string) {
	for _, m := range c.Cluster.ControlPlane() {
		list = append(list, m.Name)
	}
	return list
}

// certificateNames returns the arguments of certs renew.
func certificateNames(f *runFlags, c *load.Configuration) []string {
	list := []string{"all"}
	if s := readState(f, c); s != nil {
		for _, i := range issuedCertificates(s) {
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

// completeFlag completes a flag of a command that takes the configuration in -C.
func completeFlag(c *cobra.Command, flag string, f *runFlags, folder *string, of nameLister) {
	_ = c.RegisterFlagCompletionFunc(
		flag,
		func(c *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return completeArguments(f, folder, 0, of)(c, nil, toComplete)
		},
	) // never fails, because the flag exists
}

func readState(f *runFlags, c *load.Configuration) *state.State {
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

// completeFlags completes flags of commands that take the configuration as an argument.
func (f *runFlags) completeFlags(c *cobra.Command, of nameLister, flags ...string) {
	for _, flag := range flags {
		_ = c.RegisterFlagCompletionFunc(
			flag,
			func(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
				folder := "."
				if len(args) > 0 {
					folder = args[0]
				}
				return completeArguments(f, &folder, 0, of)(c, nil, toComplete)
			},
		) // never fails, because the flag exists
	}
}

// keepSingleDash offers flags with one dash if the user typed one dash, because a shell drops completions that do not
// continue the typed word.
func keepSingleDash(root *cobra.Command, args []string) {
	if len(args) < 3 || args[1] != cobra.ShellCompRequestCmd && args[1] != cobra.ShellCompNoDescRequestCmd {
		return
	}
	if toComplete := args[len(args)-1]; strings.HasPrefix(toComplete, "-") && !strings.HasPrefix(toComplete, "--") {
		root.SetOut(dashRemover{os.Stdout})
	}
}

// dashRemover removes one dash from lines that begin with two. Each line must be written with one call.
type dashRemover struct{ to io.Writer }

func (w dashRemover) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("--")) {
		n, err := w.to.Write(line[1:])
		return n + 1, err
	}
	return w.to.Write(line)
}
