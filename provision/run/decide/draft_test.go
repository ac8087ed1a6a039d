package decide_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/state"
)

// A plan that is not applied must not change the state that another plan begins with.
func TestPlanningDoesNotChangeTheState(t *testing.T) {
	s, err := state.New("home", func() (map[string]certs.Pair, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	control := config.Machine{Address: "machine.c", Name: "c", IP: netip.MustParseAddr("10.0.0.1"),
		Roles: []string{config.RoleControlPlane}}
	node := config.Machine{Address: "machine.old", Name: "n", IP: netip.MustParseAddr("10.0.0.2"),
		Roles: []string{config.RoleNode}}
	s.Machines[control.Address] = state.Machine{Machine: control, HasJoined: true}
	s.Machines[node.Address] = state.Machine{Machine: node, HasJoined: true}
	s.Etcd["c"] = state.Member{InitialCluster: "c=https://10.0.0.1:2380"}
	s.Etcd["gone"] = state.Member{Existing: true}
	s.Objects = []state.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", Address: "machine.old.x"}}
	before := encode(t, s)

	renamed, second := node, control
	renamed.Address = "machine.new"
	second.Address, second.Name, second.IP = "machine.d", "d", netip.MustParseAddr("10.0.0.3")
	c := &config.Cluster{
		Name: "home", Machines: []config.Machine{control, second, renamed},
		Moved:      []config.Moved{{From: "machine.old", To: "machine.new"}},
		Encryption: config.Encryption{Provider: "secretbox", Key: "k", Resources: []string{"secrets"}},
	}
	c.Etcd.Members = 2
	situation := &decide.Situation{Config: c, State: s, Now: time.Now}
	draft, err := situation.Draft(s)
	if err != nil {
		t.Fatal(err)
	}
	members := plan.DecideMembers(c, draft.State, []string{"gone"})
	if after := encode(t, s); after != before {
		t.Errorf("the state is changed:\n%s\nwas\n%s", after, before)
	}
	if _, ok := draft.State.Machines["machine.new"]; !ok || !draft.HasRenames ||
		len(draft.State.Keys.Encryption.Keys) != 1 || draft.State.Objects[0].Address != "machine.new.x" {
		t.Errorf("the draft lacks what the configuration says: %s", encode(t, draft.State))
	}
	if _, ok := draft.State.Etcd["gone"]; !ok || len(members) != 2 || !members["d"].Existing {
		t.Errorf("the members are %v, of %v", members, draft.State.Etcd)
	}
}

// encode returns a state and its keys as text.
func encode(t *testing.T, s *state.State) string {
	t.Helper()
	text, err := json.MarshalIndent([]any{s, s.Keys}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
