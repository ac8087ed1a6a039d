package cloudnode

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// testCluster is a controller with caches that the test fills, and a server whose state may differ.
type testCluster struct {
	*controller
	*fake.Clientset
	events *record.FakeRecorder
}

func newTestCluster(t *testing.T, cached *corev1.ConfigMap, n *corev1.Node, live ...runtime.Object) *testCluster {
	t.Helper()
	w := &testCluster{Clientset: fake.NewClientset(live...), events: record.NewFakeRecorder(100)}
	c := loop.Context{
		Client:    w.Clientset,
		Informers: informers.New(w.Clientset),
		Events:    w.events,
		Log:       slog.New(slog.DiscardHandler),
	}
	w.controller = New(c).(*controller)
	if err := informers.Nodes(c.Informers).Informer().GetIndexer().Add(n); err != nil {
		t.Fatal(err)
	}
	if cached != nil {
		w.cacheInventory(t, cached)
	}
	return w
}

// cacheInventory adds an inventory to the cache.
func (w *testCluster) cacheInventory(t *testing.T, m *corev1.ConfigMap) {
	t.Helper()
	if err := informers.ConfigMaps(w.ownInformers).Informer().GetIndexer().Add(m); err != nil {
		t.Fatal(err)
	}
}

// syncAll syncs the inventory and the node.
func (w *testCluster) syncAll(t *testing.T) error {
	t.Helper()
	if err := w.sync(t.Context(), inventoryKey); err != nil {
		t.Fatal(err)
	}
	return w.sync(t.Context(), "n1")
}

// writeVerbs returns the verbs of the requests that change nodes.
func (w *testCluster) writeVerbs() (verbs []string) {
	for _, a := range w.Actions() {
		if a.GetResource().Resource == "nodes" && a.GetVerb() != "get" {
			verbs = append(verbs, a.GetVerb())
		}
	}
	return verbs
}

func (w *testCluster) recordedEvents() (list []string) {
	for len(w.events.Events) > 0 {
		list = append(list, <-w.events.Events)
	}
	return list
}

func newConfigMap(t *testing.T, version string, list inventory.Inventory) *corev1.ConfigMap {
	t.Helper()
	data, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       metav1.NamespaceSystem,
			Name:            inventory.Name,
			ResourceVersion: version,
		},
		Data: data,
	}
}

func newEmptyConfigMap(t *testing.T, version string) *corev1.ConfigMap {
	list := machines()
	delete(list, "n1")
	return newConfigMap(t, version, list)
}

// Proves S22.
func TestNodesWithoutAMachineAreDeletedWithAnEvent(t *testing.T) {
	n := node(ownProviderID, corev1.ConditionUnknown)
	w := newTestCluster(t, newEmptyConfigMap(t, "9"), n, newEmptyConfigMap(t, "9"), n)
	if err := w.syncAll(t); err != nil {
		t.Fatal(err)
	}
	if got := w.writeVerbs(); !slices.Equal(got, []string{"delete"}) {
		t.Errorf("asked to %v", got)
	}
	if got := w.recordedEvents(); !slices.Equal(got,
		[]string{"Normal DeletingNode Deleting node n1 because it does not exist in the cloud provider"}) {
		t.Errorf("said %q", got)
	}
	for _, a := range w.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			if p := d.DeleteOptions.Preconditions; p == nil || *p.UID != "u1" || *p.ResourceVersion != "5" {
				t.Errorf("deleted whatever there is by then: %+v", d.DeleteOptions)
			}
		}
	}
}

// A missing inventory, or a machine missing from it, causes a deletion only if the API server confirms it now.
// Proves S22.
func TestMissingInventoriesDeleteNothing(t *testing.T) {
	silent, alive := node(ownProviderID, corev1.ConditionUnknown), node(ownProviderID, corev1.ConditionTrue)
	another := node(ownProviderID, corev1.ConditionUnknown, func(n *corev1.Node) { n.UID = "u2" })
	empty := newConfigMap(t, "9", nil)
	broken := newEmptyConfigMap(t, "9")
	broken.Data["n2"] = "{"
	for _, c := range []struct {
		name   string
		cached *corev1.ConfigMap
		live   []runtime.Object
		fails  error
		want   string // text of an event or of the error
	}{
		{"no inventory", nil, []runtime.Object{silent}, nil, "there is none"},
		{"an empty one", empty, []runtime.Object{empty, silent}, nil, "it is empty"},
		{"one that cannot be read", broken, []runtime.Object{broken, silent}, nil, "unexpected EOF"},
		{"one that the server does not have", newEmptyConfigMap(t, "9"), []runtime.Object{silent}, nil, "not found"},
		{"one that is empty at the server", newEmptyConfigMap(t, "9"), []runtime.Object{empty, silent}, nil,
			"it is empty"},
		{"one that is older at the server", newEmptyConfigMap(t, "9"),
			[]runtime.Object{newEmptyConfigMap(t, "8"), silent}, nil, "older"},
		{"one that has the machine at the server", newEmptyConfigMap(t, "9"),
			[]runtime.Object{newConfigMap(t, "10", machines()), silent}, nil, ""},
		{"a server that fails", newEmptyConfigMap(t, "9"), []runtime.Object{newEmptyConfigMap(t, "9"), silent},
			apierrors.NewInternalError(errors.New("broken")), "broken"},
		{"a server that does not find the kind", newEmptyConfigMap(t, "9"),
			[]runtime.Object{newEmptyConfigMap(t, "9"), silent},
			apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, inventory.Name), "not found"},
		{"a node that lives at the server", newEmptyConfigMap(t, "9"),
			[]runtime.Object{newEmptyConfigMap(t, "9"), alive}, nil, ""},
		{"a node that is another at the server", newEmptyConfigMap(t, "9"),
			[]runtime.Object{newEmptyConfigMap(t, "9"), another}, nil, ""},
		{"a node that is gone at the server", newEmptyConfigMap(t, "9"), []runtime.Object{newEmptyConfigMap(t, "9")},
			nil, ""},
	} {
		w := newTestCluster(t, c.cached, silent, c.live...)
		if c.fails != nil {
			w.PrependReactor("get", "*",
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fails })
		}
		err := w.syncAll(t)
		message := strings.Join(w.recordedEvents(), "\n")
		if err != nil {
			message += err.Error()
		}
		if got := w.writeVerbs(); len(got) > 0 || !strings.Contains(message, c.want) || c.want == "" && message != "" {
			t.Errorf("%s: asked to %v, said %q, want %q", c.name, got, message, c.want)
		}
	}
}

// A cache may return to an earlier state, for example after a list from a server that lags behind. Such a state has no
// effect until the cache has caught up.
// Proves S22.
func TestOlderInventoriesAreIgnored(t *testing.T) {
	n := node(ownProviderID, corev1.ConditionUnknown)
	w := newTestCluster(t, newConfigMap(t, "9", machines()), n, newEmptyConfigMap(t, "20"), n)
	for _, m := range []*corev1.ConfigMap{newConfigMap(t, "9", machines()), newEmptyConfigMap(t, "8")} {
		w.cacheInventory(t, m)
		if err := w.syncAll(t); err != nil {
			t.Fatal(err)
		}
		if got := w.writeVerbs(); slices.Contains(got, "delete") {
			t.Errorf("by version %s: asked to %v", m.ResourceVersion, got)
		}
	}
	if got := strings.Join(w.recordedEvents(), "\n"); !strings.Contains(got, "InventoryUnavailable") ||
		!strings.Contains(got, "older than one") {
		t.Errorf("said %q", got)
	}
	w.cacheInventory(t, newEmptyConfigMap(t, "20"))
	if err := w.syncAll(t); err != nil || !slices.Contains(w.writeVerbs(), "delete") {
		t.Errorf("by the latest one: asked to %v (%v)", w.writeVerbs(), err)
	}
}

// An unusable inventory is reported by events about the ConfigMap and by a metric. A cluster that never had an
// inventory, such as a development cluster, reports nothing.
// Proves S22.
func TestUnusableInventoriesAreReported(t *testing.T) {
	broken := newConfigMap(t, "10", machines())
	broken.Data["n2"] = "{"
	foreign := node("", corev1.ConditionTrue)
	for _, c := range []struct {
		name   string
		node   *corev1.Node
		caches []*corev1.ConfigMap // successive states; nil means that it is gone
		reason string
		events int
	}{
		{"one that is good", node(ownProviderID, corev1.ConditionTrue),
			[]*corev1.ConfigMap{newConfigMap(t, "9", machines())}, "", 0},
		{"none ever", foreign, []*corev1.ConfigMap{nil}, "", 0},
		{"none, with Nodes that had one", node(ownProviderID, corev1.ConditionTrue), []*corev1.ConfigMap{nil, nil},
			"Missing", 1},
		{"one that is deleted", foreign, []*corev1.ConfigMap{newConfigMap(t, "9", machines()), nil}, "Missing", 1},
		{"one that is broken", foreign, []*corev1.ConfigMap{broken, broken}, "Invalid", 1},
		{"one from before", foreign,
			[]*corev1.ConfigMap{newConfigMap(t, "9", machines()), newConfigMap(t, "8", machines())},
			"Older", 1},
		{"one that was mended", foreign, []*corev1.ConfigMap{broken, newConfigMap(t, "11", machines())}, "", 1},
	} {
		w := newTestCluster(t, nil, c.node, c.node)
		registry := prometheus.NewRegistry()
		w.Metrics = registry
		w.RegisterMetrics(w.unusable)
		for _, m := range c.caches {
			if m != nil {
				w.cacheInventory(t, m)
			} else if err := informers.ConfigMaps(w.ownInformers).Informer().GetIndexer().Delete(newConfigMap(t, "1",
				nil)); err != nil {
				t.Fatal(err)
			}
			if err := w.sync(t.Context(), inventoryKey); err != nil {
				t.Fatal(err)
			}
		}
		recorded := w.recordedEvents()
		if len(recorded) != c.events ||
			c.events > 0 && !strings.HasPrefix(recorded[0],
				"Warning InvalidInventory Nothing is decided about machines") {
			t.Errorf("%s: said %q", c.name, recorded)
		}
		found, err := registry.Gather()
		if err != nil || len(found) != 1 || found[0].GetName() != "cloud_node_inventory_error" ||
			len(found[0].GetMetric()) != len(unusableReasons) {
			t.Fatalf("%s: the metrics are %v (%v)", c.name, found, err)
		}
		for _, m := range found[0].GetMetric() {
			want := 0.
			if r := m.GetLabel()[0].GetValue(); r == c.reason {
				want = 1
			}
			if m.GetGauge().GetValue() != want {
				t.Errorf("%s: %v, want %v", c.name, m, want)
			}
		}
	}
}

func TestWarningsAreRecordedOnce(t *testing.T) {
	n := node(formerProviderID, corev1.ConditionTrue)
	w := newTestCluster(t, newConfigMap(t, "9", machines()), n, n)
	for range 3 {
		if err := w.syncAll(t); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.recordedEvents(); len(got) != 1 ||
		!strings.HasPrefix(got[0], "Warning MachineReplaced Machine "+formerProviderID+" has been replaced by "+
			ownProviderID) {
		t.Errorf("said %q", got)
	}
}
