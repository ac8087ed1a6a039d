package workload

import "testing"

// Otherwise a program that runs for long would not apply a declaration that changes while the object does not.
func TestAChangedDeclarationIsComparedAgain(t *testing.T) {
	live := newItem("v1", "ConfigMap", "default", "a", map[string]any{"data": map[string]any{"x": "1"}})
	live.SetUID("u")
	live.SetResourceVersion("1")
	declare := func(value string) Desired {
		return NewDesired("a", newItem("v1", "ConfigMap", "default", "a",
			map[string]any{"data": map[string]any{"x": value}}), false)
	}
	for _, row := range []struct{ changing, want bool }{{false, true}, {true, false}} {
		s := unchangedCache{hasChangingDeclarations: row.changing}
		s.record(declare("1"), live)
		if !s.isUnchanged(declare("1"), live) {
			t.Error("the same declaration is compared again")
		}
		if got := s.isUnchanged(declare("2"), live); got != row.want {
			t.Errorf("another declaration counts as unchanged: %v", got)
		}
		next := live.DeepCopy()
		next.SetResourceVersion("2")
		if s.isUnchanged(declare("1"), next) {
			t.Error("a changed object counts as unchanged")
		}
	}
}

// Objects of one field manager are foreign to another one, although both belong to clusterctl.
func TestFieldManagersDoNotTakeObjectsFromEachOther(t *testing.T) {
	own := newOwnObject("v1", "ConfigMap", "default", "a")
	own.SetLabels(map[string]string{ManagedByLabel: Manager})
	other := liveOver(&connection{manager: "another"})
	if got := liveOver(&connection{}).creatorOf(own); got != "" {
		t.Errorf("it is foreign to its own manager: %s", got)
	}
	if got := other.creatorOf(own); got != Manager {
		t.Errorf("its creator is %q for another manager", got)
	}
}
