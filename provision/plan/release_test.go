package plan_test

import (
	"strings"
	"testing"

	"clusterctl/provision/host"
	"clusterctl/provision/plan"
)

func kubernetes(v string) host.Release { return host.Release{Version: v, Kubernetes: v, Build: v} }

func server(address, from string, moves bool) plan.MachineRelease {
	return plan.MachineRelease{Address: address, HasServer: true, From: kubernetes(from), ChangesRelease: moves}
}

func node(address, from string, moves bool) plan.MachineRelease {
	return plan.MachineRelease{Address: address, HasKubelet: true, From: kubernetes(from), ChangesRelease: moves}
}

func TestVersionSkewFollowsKubernetes(t *testing.T) {
	for _, c := range []struct {
		name, to string
		list     []plan.MachineRelease
		want     string // part of the refusal; empty: none
	}{
		{"one minor version up", "v1.38.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", true), server("c2", "v1.37.2", true),
				node("n", "v1.37.2", true)},
			""},
		{"a patch", "v1.37.3", []plan.MachineRelease{server("c1", "v1.37.2", true), node("n", "v1.37.2", true)}, ""},
		{"another build", "v1.37.2", []plan.MachineRelease{server("c1", "v1.37.2", false), node("n", "v1.37.2", true)},
			""},
		{"two minor versions up", "v1.39.0", []plan.MachineRelease{server("c1", "v1.37.2", true)}, "c1: its API " +
			"server is " +
			"of Kubernetes v1.37.2"},
		{"an API server left behind by two", "v1.39.0",
			[]plan.MachineRelease{server("c1", "v1.38.0", true), server("c2", "v1.37.2", false)}, "c2: its API server"},
		{"an API server left behind by one", "v1.38.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", true), server("c2", "v1.37.2", false)}, ""},
		{"nodes before the control plane", "v1.38.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", false), node("n", "v1.37.2", true)}, "Update the control " +
				"plane " +
				"first"},
		{"nodes before one of the control plane", "v1.38.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", true), server("c2", "v1.37.2", false),
				node("n", "v1.37.2", true)},
			"c2: its API server would stay"},
		{"a node three behind", "v1.38.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", true), node("n", "v1.35.9", false)},
			""},
		{"a node four behind", "v1.39.0",
			[]plan.MachineRelease{server("c1", "v1.38.0", true), node("n", "v1.35.9", true)},
			"n: its kubelet is of Kubernetes v1.35.9, and may be three"},
		{"the control plane below its nodes", "v1.36.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", true), node("n", "v1.37.2", true)}, "bring the nodes there " +
				"first"},
		{"nodes down first", "v1.36.0",
			[]plan.MachineRelease{server("c1", "v1.37.2", false), node("n", "v1.37.2", true)}, ""},
		{"nothing is known", "v1.39.0", []plan.MachineRelease{{Address: "c1", HasServer: true, ChangesRelease: true}},
			""},
	} {
		err := plan.CheckSkew(kubernetes(c.to), c.list)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestOlderReleasesAreFoundByVersionAndHistory(t *testing.T) {
	release := func(version, kubernetes, build string) host.Release {
		return host.Release{Version: version, Kubernetes: kubernetes, Build: build}
	}
	a, b := release("4f438ca", "v1.37.2", "a"), release("956d56f-dirty", "v1.37.2", "b")
	for _, c := range []struct {
		name     string
		from, to host.Release
		history  []host.Release
		older    bool
	}{
		{"Kubernetes", release("v2.0.0", "v1.38.0", "b"), release("v3.0.0", "v1.37.9", "a"), nil, true},
		{"clusterctl", release("v1.10.0", "v1.37.2", "b"), release("v1.9.0", "v1.37.2", "a"), nil, true},
		{"commits after a tag", release("v1.0.0-12-gabcdef0", "v1.37.2", "b"), release("v1.0.0", "v1.37.2", "a"), nil,
			true},
		{"more commits after a tag", release("v1.0.0-2-gabcdef0", "v1.37.2", "b"),
			release("v1.0.0-12-gabcdef0-dirty", "v1.37.2", "a"), nil, false},
		{"before a release", release("v1.0.0", "v1.37.2", "b"), release("v1.0.0-rc.1", "v1.37.2", "a"), nil, true},
		{"commits, had before", b, a, []host.Release{a, b}, true},
		{"commits, had after", a, b, []host.Release{a, b}, false},
		{"commits, never had", b, a, []host.Release{b}, false},
		{"the same build", b, b, []host.Release{b}, false},
	} {
		err := plan.CheckDowngrade(c.to,
			[]plan.MachineRelease{{Address: "m", From: c.from, ChangesRelease: true}, {Address: "other", From: c.from}},
			c.history, "")
		if (err != nil) != c.older || err != nil && strings.Contains(err.Error(), "other") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := plan.CheckDowngrade(c.to, []plan.MachineRelease{{Address: "m", From: c.from, ChangesRelease: true}},
			c.history,
			c.to.Build); err != nil {
			t.Errorf("%s, by name: %v", c.name, err)
		}
	}
}
