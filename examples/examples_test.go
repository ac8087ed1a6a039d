// Package examples holds complete configurations, each loaded, validated and turned
// into every machine's steps by its test.
package examples

import (
	"os"
	"slices"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/load"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
	"clusterctl/provision/workload"
)

type files struct{}

func (files) File(name string) (bundle.File, error) {
	return bundle.File{Name: name, Digest: "0", Size: 1}, nil
}

func authorities() (map[string]certs.Pair, error) {
	pairs := map[string]certs.Pair{}
	for name, commonName := range certs.CommonNames {
		p, err := certs.NewCA(commonName, 0, time.Now())
		if err != nil {
			return nil, err
		}
		pairs[name] = p
	}
	return pairs, nil
}

func TestEveryExampleIsValidFormattedAndCanBePlanned(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		found++
		t.Run(e.Name(), func(t *testing.T) {
			c, diags := load.Load(load.Options{Path: e.Name()})
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			if changed, err := load.Format(e.Name()); err != nil || len(changed) > 0 {
				t.Errorf("layout is not the usual one: %v, %v", changed, err)
			}
			s, err := state.New(c.Cluster.Name, authorities)
			if err != nil {
				t.Fatal(err)
			}
			s.Etcd = plan.DecideMembers(c.Cluster, s, nil)
			for _, m := range c.Cluster.Machines {
				steps, err := role.Steps(
					role.Input{
						Cluster: c.Cluster,
						Machine: m,
						State:   s,
						Files:   files{},
						Facts:   host.Facts{CanAdjustOOM: true},
					},
				)
				if err != nil {
					t.Fatal(err)
				}
				changes, err := step.Check(t.Context(), &hostfake.Host{}, steps)
				if err != nil {
					t.Fatalf("%s: %v", m.Address, err)
				}
				if !slices.ContainsFunc(changes, func(c step.Change) bool { return c.Action == step.Create }) {
					t.Errorf("%s: a fresh machine gets nothing", m.Address)
				}
			}
			if _, err := workload.Objects(c.Cluster); err != nil {
				t.Error(err)
			}
		})
	}
	if found < 4 {
		t.Errorf("%d examples, want single, small, ha and workloads", found)
	}
}
