package workload

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// manyObjects returns an API with n config maps that are as declared, which counts its requests.
func manyObjects(n int) (l *Live, c *config.Cluster, before []state.Object, requested func() map[string]int) {
	var existing []runtime.Object
	c = &config.Cluster{Name: "home"}
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		o := newOwnObject("v1", "ConfigMap", "default", name)
		o.SetLabels(map[string]string{ManagedByLabel: Manager})
		o.SetUID("u")
		o.SetResourceVersion(fmt.Sprint(i + 1))
		existing = append(existing, o)
		d := newDeclared("object."+name, i, newItem("v1", "ConfigMap", "default", name, nil))
		c.Objects = append(c.Objects, d)
		before = append(before,
			state.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, Address: d.Address})
	}
	l, client := newFakeLive(existing...)
	client.PrependReactor(
		"patch",
		"services",
		func(a clienttesting.Action) (bool, runtime.Object, error) { // the DNS service
			return true, newItem("v1", "Service", a.GetNamespace(), a.(clienttesting.PatchActionImpl).Name, nil), nil
		},
	)
	var mu sync.Mutex
	counts := map[string]int{}
	client.PrependReactor("*", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		verb := a.GetVerb()
		p, patch := a.(clienttesting.PatchActionImpl)
		if patch && len(p.PatchOptions.DryRun) == 0 {
			verb = "apply"
		}
		counts[verb]++
		mu.Unlock()
		if !patch {
			return false, nil, nil
		}
		o := newItem("v1", "ConfigMap", a.GetNamespace(), p.Name, nil)
		o.SetLabels(map[string]string{ManagedByLabel: Manager})
		if strings.Contains(string(p.Patch), `"changed"`) {
			o.Object["data"] = map[string]any{"x": "changed"}
		}
		return true, o, nil
	})
	return l, c, before, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		old := counts
		counts = map[string]int{}
		return old
	}
}

// Many objects cost one list, and a dry run for each. When the same run applies them, only those that differ are
// requested again.
func TestManyObjectsAreListedOnceAndDryRunOnce(t *testing.T) {
	const n = 100
	l, c, before, requested := manyObjects(n)
	c.Objects[7].Content["data"] = map[string]any{"x": "changed"}
	entries, _, err := l.Plan(t.Context(), c, before)
	if err != nil {
		t.Fatal(err)
	}
	if _, changes := (&plan.Plan{Objects: entries}).Count(plan.Change); changes != 1 {
		t.Errorf("%d objects are to change, not one", changes)
	}
	if got := requested(); got["get"] != 0 || got["list"] != 1 || got["patch"] != n {
		t.Errorf("a plan asked %v, a list and %d dry runs are due", got, n)
	}
	if _, err := l.Apply(t.Context(), c, before, func(plan.Object) {}); err != nil {
		t.Fatal(err)
	}
	if got := requested(); got["get"] != 0 || got["list"] != 1 || got["patch"] != 1 || got["apply"] != 1 {
		t.Errorf("applying asked %v: a list, a dry run of the one that differs, and its write are due", got)
	}
}

// A webhook or another client may have changed an object since it was compared. Then it is compared again.
func TestObjectsChangedSinceThePlanAreComparedAgain(t *testing.T) {
	l, c, before, requested := manyObjects(20)
	if _, _, err := l.Plan(t.Context(), c, before); err != nil {
		t.Fatal(err)
	}
	requested()
	client, err := l.client(schema.FromAPIVersionAndKind("v1", "ConfigMap"), "default")
	if err != nil {
		t.Fatal(err)
	}
	touched := newOwnObject("v1", "ConfigMap", "default", "c003")
	touched.SetUID("u")
	touched.SetResourceVersion("1000")
	touched.Object["data"] = map[string]any{"by": "hand"}
	if _, err := client.Update(t.Context(), touched, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	requested()
	if _, err := l.Apply(t.Context(), c, before, func(plan.Object) {}); err != nil {
		t.Fatal(err)
	}
	if got := requested(); got["patch"] != 1 || got["apply"] != 1 {
		t.Errorf("applying asked %v: the one that was changed by hand is to be compared and written", got)
	}
}

// Results of parallel applies are reported in the order of the configuration. Objects that are no longer declared are
// deleted in parallel, too.
func TestObjectsAppliedInParallelAreReportedInOrder(t *testing.T) {
	const n = 60
	l, c, before, requested := manyObjects(n)
	c.Objects = c.Objects[:0]
	for i := range n {
		o := newDeclared(fmt.Sprintf("object.n%03d", i), i, newItem("v1", "ConfigMap", "default",
			fmt.Sprintf("n%03d", i), nil))
		c.Objects = append(c.Objects, o)
	}
	var recorded []string
	applied, err := l.Apply(t.Context(), c, before, func(o plan.Object) {
		if o.Kind == "ConfigMap" {
			recorded = append(recorded, o.Action+" "+o.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(recorded) != 2*n || !slices.IsSorted(recorded[:n]) || !slices.IsSorted(recorded[n:]) ||
		!strings.HasPrefix(recorded[0], plan.Create) ||
		!strings.HasPrefix(recorded[n], plan.Remove) {
		t.Errorf("the reports are %q", recorded)
	}
	got := requested()
	if got["apply"] != n || got["delete"] != n || got["patch"] != 0 || got["get"] != 0 {
		t.Errorf("applying asked %v: %d writes and %d deletions are due, and no single reads", got, n, n)
	}
	if len(applied) != n+1 { // with the DNS service
		t.Errorf("%d objects are remembered", len(applied))
	}
}
