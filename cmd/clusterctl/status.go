package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/survey"
	"clusterctl/provision/state"
)

// clusterStatus is the output of status.
type clusterStatus struct {
	Machines []survey.Status   `json:"machines"`
	Nodes    map[string]string `json:"nodes,omitempty"`  // status of the Ready condition, by node
	Health   map[string]string `json:"health,omitempty"` // what workloads wait for; empty if healthy
	API      string            `json:"api,omitempty"`    // why the API does not answer
	// Members describes how etcd's own list of members differs from the machines.
	Members string   `json:"members,omitempty"`
	Keys    []string `json:"keys,omitempty"` // keys that must be replaced
	// SnapshotProblems describes problems with snapshots of the store, by machine.
	SnapshotProblems map[string]string `json:"snapshotTrouble,omitempty"`
	// Dropped maps a node to the packet rules, not made by this cluster, that drop traffic of pods.
	Dropped map[string]string `json:"droppedTraffic,omitempty"`
}

func newStatus() *cobra.Command {
	var flags runFlags
	c := &cobra.Command{
		Use:   "status [FOLDER|FILE]",
		Short: "Show the state of machines, nodes and workloads; exit with 1 if one has a problem",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := flags.loadOffline(c, args)
			if err != nil {
				return err
			}
			engine, err := flags.engine(configuration, nil)
			if err != nil {
				return err
			}
			seen, err := engine.Status(c.Context())
			if err != nil {
				return err
			}
			if seen.State == nil {
				return errNoCluster
			}
			status := clusterStatus{Machines: seen.Machines, Members: seen.Members,
				Keys:             certificate.DueKeys(seen.State),
				SnapshotProblems: map[string]string{}}
			for _, m := range seen.Machines {
				if text := etcd.SnapshotProblem(configuration.Cluster.Etcd.Snapshot, m.Facts.Snapshot,
					time.Now()); text != "" &&
					slices.Contains(m.Roles, config.RoleControlPlane) {
					status.SnapshotProblems[m.Address] = text
				}
			}
			if err := status.collect(c.Context(), seen.State, configuration.Cluster); err != nil {
				status.API = err.Error()
			}
			if flags.json {
				if err := printJSON(c, status); err != nil {
					return err
				}
			} else if err := status.print(c); err != nil {
				return err
			}
			if !status.isHealthy() {
				return exitCode(1)
			}
			return nil
		},
	}
	flags.configFlags.add(c)
	flags.addReach(c)
	flags.addSelection(c)
	c.Flags().BoolVar(&flags.json, "json", false, "as JSON")
	return c
}

func (s *clusterStatus) collect(ctx context.Context, st *state.State, c *config.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	live, err := connectAPI(st, c)
	if err != nil {
		return err
	}
	if s.Nodes, err = live.Nodes(ctx); err != nil {
		return err
	}
	if s.Dropped, err = live.DroppedTraffic(ctx); err != nil {
		return err
	}
	s.Health, err = live.Health(ctx, c)
	return err
}

func (s *clusterStatus) isHealthy() bool {
	for _, m := range s.Machines {
		if m.Error != "" || m.NoAPI != "" || len(m.Changes) > 0 || s.node(m) != "True" && s.node(m) != "-" {
			return false
		}
	}
	for _, waits := range s.Health {
		if waits != "" {
			return false
		}
	}
	return s.API == "" && s.Members == "" && len(s.SnapshotProblems)+len(s.Dropped) == 0
}

func (s *clusterStatus) node(m survey.Status) string {
	if !slices.Contains(m.Roles, config.RoleNode) {
		return "-"
	}
	if ready, ok := s.Nodes[m.Name]; ok {
		return ready
	}
	return "absent"
}

func (s *clusterStatus) print(c *cobra.Command) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tROLES\tREADY\tCERTIFICATES\tAS DECLARED")
	for _, m := range s.Machines {
		declared, expiry := "yes", "-"
		if len(m.Changes) > 0 {
			declared = fmt.Sprintf("no, %d differences: see plan", len(m.Changes))
		}
		if m.Error != "" {
			declared = "not reached: " + config.EscapeIndented(m.Error, "  ")
		}
		if t := m.Facts.CertExpiry; !t.IsZero() {
			expiry = fmt.Sprintf("%d days", int(time.Until(t).Hours()/24))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.Address, strings.Join(m.Roles, ","), s.node(m), expiry, declared)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Health)) {
		text := "well"
		if s.Health[name] != "" {
			text = config.EscapeIndented(s.Health[name], "  ")
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", name, text)
	}
	for _, m := range s.Machines {
		if m.NoAPI != "" {
			fmt.Fprintf(c.OutOrStdout(), "%s: cannot reach an API server: %s\n", m.Address,
				config.EscapeIndented(m.NoAPI, "  "))
		}
	}
	for _, machine := range slices.Sorted(maps.Keys(s.SnapshotProblems)) {
		fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", machine, config.EscapeIndented(s.SnapshotProblems[machine], "  "))
	}
	for _, m := range s.Machines {
		for _, text := range m.Foreign {
			fmt.Fprintf(c.OutOrStdout(), "%s: %s, and clusterctl did not write this file\n", m.Address,
				config.EscapeIndented(text, "  "))
		}
	}
	if s.Members != "" {
		fmt.Fprintln(c.OutOrStdout(), "The store's members:", config.EscapeIndented(s.Members, "  "))
	}
	for _, text := range s.Keys {
		fmt.Fprintln(c.OutOrStdout(), "Note:", text)
	}
	for _, node := range slices.Sorted(maps.Keys(s.Dropped)) {
		fmt.Fprintf(c.OutOrStdout(), "%s: packet rules of other programs drop packets of pods: %s\n", node,
			config.EscapeIndented(s.Dropped[node], "  "))
	}
	if s.API != "" {
		fmt.Fprintln(c.OutOrStdout(), "The API does not answer:", config.EscapeIndented(s.API, "  "))
	}
	return nil
}
