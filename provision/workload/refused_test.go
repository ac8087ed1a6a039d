package workload

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Objects that are refused because of later objects of the same run, or because of objects that are deleted last, are
// tried again then. Examples are a renamed service that keeps its node port, and an object whose webhook comes later in
// the list. An object that is finally refused is reported once.
// Proves P05.
func TestObjectsRefusedAtFirstAreAppliedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newFakeLive(newOwnObject("v1", "ConfigMap", "default", "old"))
		existing := map[string]bool{"old": true}
		client.PrependReactor("delete", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			delete(existing, a.(clienttesting.DeleteActionImpl).Name)
			return false, nil, nil
		})
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			p := a.(clienttesting.PatchActionImpl)
			switch {
			case p.Name == "renamed" && existing["old"], p.Name == "early" && !existing["d"], p.Name == "never":
				return true, nil, apierrors.NewBadRequest("not as long as it is so")
			}
			existing[p.Name] = true
			return true, newItem("v1", a.GetResource().Resource, a.GetNamespace(), p.Name, nil), nil
		})
		c := &config.Cluster{Name: "home", Objects: []config.Object{
			newDeclared("object.renamed", 1, newItem("v1", "ConfigMap", "default", "renamed", nil)),
			newDeclared("object.early", 2, newItem("v1", "ConfigMap", "default", "early", nil)),
			newDeclared("object.never", 3, newItem("v1", "ConfigMap", "default", "never", nil)),
			newDeclared("object.d", 4, newItem("v1", "Pod", "default", "d", nil)),
			newDeclared("object.after", 5, newItem("v1", "ConfigMap", "default", "after", nil)),
		}}
		before := []state.Object{
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "old", Address: "object.old"},
		}
		var events []string
		say := func(o plan.Object) { events = append(events, o.Name+" "+o.Action) }
		applied, err := l.Apply(t.Context(), c, before, say)
		var refused session.RefusedError
		if !errors.As(err, &refused) || len(refused.List) != 1 || refused.List[0].Address != "object.never" {
			t.Errorf("refused are %v", err)
		}
		for _, want := range []string{"default/renamed create", "default/early create", "default/old remove"} {
			if !slices.Contains(events, want) {
				t.Errorf("%q is not among %v", want, events)
			}
		}
		if n := strings.Count(strings.Join(events, "\n"), "default/never"); n != 1 {
			t.Errorf("what is refused for good is said %d times: %v", n, events)
		}
		if len(applied) != 6 { // with the DNS service
			t.Errorf("applied are %v", applied)
		}
		// A wave that depends on another begins after the refused objects of the other were accepted.
		c.Objects = c.Objects[1:2]
		c.Objects[0].Block = "object.early"
		delete(existing, "early")
		c.Objects = append(c.Objects, newDeclared("object.d", 4, newItem("v1", "Pod", "default", "d", nil)),
			newDeclared("object.after", 5, newItem("v1", "ConfigMap", "default", "after", nil)))
		c.Objects[1].Block, c.Objects[2].Block, c.Objects[2].DependsOn = "object.d", "object.after", []string{
			"object.early",
		}
		delete(existing, "d")
		if _, err := l.Apply(t.Context(), c, nil, say); err != nil {
			t.Errorf("with a wave that waits: %v", err)
		}
	})
}
