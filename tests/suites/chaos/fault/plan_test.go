package fault

import (
	"reflect"
	"testing"
	"time"
)

func TestTheSameSeedGivesTheSameFaults(t *testing.T) {
	m := Machines{Control: []string{"c1", "c2", "c3"}, Nodes: []string{"n1", "n2", "n3"}}
	long := Plan(7, m, 200)
	if !reflect.DeepEqual(long, Plan(7, m, 200)) || !reflect.DeepEqual(long[:50], Plan(7, m, 50)) {
		t.Error("the same seed gave other faults")
	}
	if reflect.DeepEqual(long, Plan(8, m, 200)) {
		t.Error("another seed gave the same faults")
	}
	kinds := map[Kind]bool{}
	for _, f := range long {
		kinds[f.Kind] = true
		if len(f.Machines) == 0 || f.Kind.IsOfUnit() != (f.Unit != "") {
			t.Errorf("a fault that cannot be done: %+v", f)
		}
	}
	if len(kinds) != 9 {
		t.Errorf("200 faults are of the kinds %v alone", kinds)
	}
}

func TestFaultsCoverAllUnitsOfAllMachines(t *testing.T) {
	m := Machines{Control: []string{"c1", "c2"}, Nodes: []string{"n1"}}
	list := FaultsOfAllUnits(Stop, m, time.Minute)
	if want := 2*len(ControlUnits) + len(NodeUnits); len(list) != want {
		t.Errorf("%d faults, want %d", len(list), want)
	}
	if list[0].String() != "stop c1 etcd for 1m0s" {
		t.Error(list[0])
	}
}
