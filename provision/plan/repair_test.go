package plan_test

import (
	"slices"
	"testing"

	"clusterctl/certs"
	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

// Broken parts are repaired first, without changes to working parts.
// Proves P05.
func TestOnlyBrokenUnitsAreRepairedFirst(t *testing.T) {
	change := func(action, kind string, broken bool) step.Change {
		return step.Change{Action: action, Kind: kind, IsBroken: broken}
	}
	serving, client := &step.Certificate{Path: "/pki/apiserver"}, &step.Kubeconfig{Path: "/kubelet.conf"}
	unitFile, config := &step.File{
		Path: "/etc/systemd/system/kubelet.service",
	}, &step.File{
		Path: "/kubelet/config.yaml",
	}
	program, other := &step.Symlink{Path: "/bin/kubelet"}, &step.File{Path: "/etc/other"}
	kubelet := &step.Unit{
		Name:  "kubelet.service",
		Files: []string{unitFile.Path, program.Path, client.Path, config.Path},
	}
	server := &step.Unit{Name: "kube-apiserver.service", Files: []string{"/pki/apiserver.crt"}}
	etcd := &step.Unit{Name: "etcd.service"}
	added := &step.Kubeconfig{Path: "/gitops.conf"}
	addedUnit := &step.Unit{Name: "gitops-controller.service", Files: []string{added.Path}}
	issued := map[string]certs.Revoked{serving.Label(): {}, client.Label(): {}}
	none := step.Change{}
	for name, c := range map[string]struct {
		steps   []step.Step
		changes []step.Change
		want    []int
	}{
		"nothing differs": {[]step.Step{serving, server}, []step.Change{none, none}, nil},
		"a certificate that is only due": {[]step.Step{serving, server},
			[]step.Change{change("~", "file", false), change("~", "unit", false)}, nil},
		"one that has ended: its server runs": {[]step.Step{serving, server},
			[]step.Change{change("~", "file", true), change("~", "unit", false)}, []int{0}},
		"one that has ended: its server died": {[]step.Step{serving, server},
			[]step.Change{change("~", "file", true), change("~", "unit", true)}, []int{0, 1}},
		"credentials that have ended": {[]step.Step{client, kubelet},
			[]step.Change{change("~", "file", true), change("~", "unit", false)}, []int{0, 1}},
		"and more changes: the rest is later": {[]step.Step{client, config, kubelet},
			[]step.Change{change("~", "file", true), change("~", "file", false), change("~", "unit", false)}, []int{0}},
		"a unit that runs with an edited file": {[]step.Step{config, kubelet},
			[]step.Change{change("~", "file", false), change("~", "unit", false)}, nil},
		"a dead unit with an edited file": {[]step.Step{config, other, kubelet},
			[]step.Change{change("~", "file", false), change("~", "file", false), change("~", "unit", true)},
			[]int{0, 2}},
		"a dead unit, and files are missing": {[]step.Step{other, unitFile, kubelet},
			[]step.Change{change("+", "file", false), change("+", "file", false), change("~", "unit", true)},
			[]int{0, 1, 2}},
		"a dead unit whose program is missing": {[]step.Step{program, kubelet},
			[]step.Change{change("+", "link", false), change("~", "unit", true)}, []int{0, 1}},
		"credentials that are lost": {[]step.Step{client, kubelet},
			[]step.Change{change("+", "file", true), change("~", "unit", false)}, []int{0, 1}},
		"credentials of a new part": {[]step.Step{added, addedUnit},
			[]step.Change{change("+", "file", true), change("+", "unit", false)}, nil},
		"a certificate of a new part": {[]step.Step{&step.Certificate{Path: "/pki/etcd/server"}},
			[]step.Change{change("+", "file", true)}, nil},
		"a dead unit with a drop-in": {[]step.Step{&step.DropIns{Unit: "kubelet.service"}, kubelet},
			[]step.Change{change("-", "drop-in", false), change("~", "unit", true)}, []int{0, 1}},
		"a dead unit in an update": {[]step.Step{program, kubelet},
			[]step.Change{change("~", "link", false), change("~", "unit", true)}, nil},
		"a dead member of the store": {[]step.Step{etcd}, []step.Change{change("~", "unit", true)},
			[]int{0}},
		"a dead member that has to join anew": {[]step.Step{&step.EtcdJoin{}, etcd},
			[]step.Change{change("+", "etcd", false), change("~", "unit", true)}, nil},
		"a dead member with a former one's data": {[]step.Step{&step.RemoveFormerEtcd{}, etcd},
			[]step.Change{change("-", "directory", false), change("~", "unit", true)}, nil},
	} {
		if got := plan.RepairSteps(c.steps, c.changes, issued); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
