package plan_test

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

func TestBudgetsArePercentagesOrNumbersOfAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		text        string
		nodes, want int
	}{{"", 3, 1}, {"", 1000, 100}, {"25%", 10, 2}, {"100%", 4, 4}, {"3", 10, 3}, {"0", 10, 1}, {"", 0, 1}} {
		if got := plan.Budget(c.text, c.nodes); got != c.want {
			t.Errorf("%q of %d: %d, want %d", c.text, c.nodes, got, c.want)
		}
	}
}

func TestOnlyContainerRuntimeRestartsNeedADrain(t *testing.T) {
	unit := func(name, note string) []step.Change {
		return []step.Change{{Action: step.Update, Kind: "unit", Name: name, Note: note}}
	}
	for name, c := range map[string]struct {
		changes []step.Change
		want    bool
	}{
		"nothing":         {nil, false},
		"kubelet":         {unit("kubelet.service", "restart, for config.yaml"), false},
		"runtime":         {unit("containerd.service", "restart, for containerd"), true},
		"runtime enabled": {unit("containerd.service", "enable"), false},
		"runtime is down": {unit("containerd.service", "start, it is failed"), false},
		"runtime is created": {[]step.Change{{Action: step.Create, Kind: "unit", Name: "containerd.service",
			Note: "start"}}, false},
	} {
		if got := plan.DrainReason(c.changes); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNodesThatAreNotReadyCountAgainstTheBudget(t *testing.T) {
	ready := map[string]string{"a": "True", "b": "Unknown", "c": "True", "d": "False"}
	for name, c := range map[string]struct {
		budget  int
		changed []string
		want    string
	}{
		"spent":           {2, []string{"a"}, "2 nodes are not ready (b, d)"},
		"room":            {3, []string{"a"}, ""},
		"they are mended": {1, []string{"a", "b", "d"}, ""},
	} {
		err := plan.CheckDrain(c.budget, ready, c.changed)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A change never costs etcd its majority, nor the cluster its last API server.
// Proves P02.
func TestControlPlaneMachinesRestartOnlyWhenTheOthersAreHealthy(t *testing.T) {
	well := func(name string) plan.Health { return plan.Health{Name: name, HasMember: true} }
	dead := func(name string) plan.Health {
		return plan.Health{Name: name, HasMember: true, Etcd: "no answer", API: "no answer"}
	}
	both, api := []string{"etcd", "kube-apiserver"}, []string{"kube-apiserver"}
	for name, c := range map[string]struct {
		list  []plan.Health
		units []string
		want  string
	}{
		"alone":    {[]plan.Health{well("a")}, both, ""},
		"all well": {[]plan.Health{well("a"), well("b"), well("c")}, both, ""},
		"one of three is dead": {[]plan.Health{well("a"), dead("b"), well("c")}, both, "1 of 3 members " +
			"would be left, 2 must agree (b: no answer)"},
		"one of five is dead": {[]plan.Health{well("a"), dead("b"), well("c"), well("d"), well("e")}, both,
			""},
		"two of five are dead": {[]plan.Health{well("a"), dead("b"), dead("c"), well("d"), well("e")}, both,
			"2 of 5"},
		"it is itself dead": {[]plan.Health{dead("a"), well("b"), well("c")}, both, ""},
		"all dead":          {[]plan.Health{dead("a"), dead("b"), dead("c")}, both, ""},
		"etcd stays":        {[]plan.Health{well("a"), dead("b"), well("c")}, api, ""},
		"nothing restarts":  {[]plan.Health{well("a"), dead("b"), dead("c")}, nil, ""},
		"the last API server": {[]plan.Health{well("a"), dead("b"), dead("c")}, api,
			"only one that answers"},
		"two members, both well":         {[]plan.Health{well("a"), well("b")}, both, ""},
		"two members, the other is dead": {[]plan.Health{well("a"), dead("b")}, both, "0 of 2"},
		"a machine without a member":     {[]plan.Health{{Name: "a"}, well("b"), dead("c")}, both, ""},
		"its member is no part of this": {[]plan.Health{well("a"), {Name: "b", API: "x"}, well("c"), well("d")}, both,
			""},
	} {
		err := plan.CheckRestart("a", c.units, c.list)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	here := plan.Health{Name: "b", HasMember: true, IsReached: true, Etcd: "no answer", API: "no answer"}
	err := plan.CheckRestart("a", both, []plan.Health{well("a"), here, well("c")})
	if err == nil || strings.Contains(err.Error(), "taken out") ||
		!strings.Contains(err.Error(), "On b, which can be logged in to, journalctl -u etcd") {
		t.Errorf("a machine that is there and does not work: %v", err)
	}
	if err := plan.CheckRestart("a", both, []plan.Health{well("a"), dead("b"), well("c")}); err == nil ||
		!strings.Contains(err.Error(), "Bring b back; only one that is gone for good is taken out") {
		t.Errorf("a machine that is not there: %v", err)
	}
	if got := plan.ControlOrder([]string{"a", "b", "c"}, []plan.Health{well("a"), dead("b"), well("c")}); !slices.Equal(
		got,
		[]string{"b", "a", "c"},
	) {
		t.Errorf("order %v: what does not work is mended first", got)
	}
}
