package write

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// Stored objects are shared by all readers, so a write without changes must not modify them.
func TestWritesWithoutChangesKeepTheSharedObject(t *testing.T) {
	var nodes *kinds.Kind
	for _, k := range kinds.All() {
		if k.Resource == "nodes" {
			nodes = k
		}
	}
	s := New(Config{}, nil)
	q := request.NewOwn(serverUser, request.Target{Served: wire.Served{Kind: nodes}, IsServed: true}, "", "", "n")
	entry, err := cache.NewEntry(
		q.StoredKind(),
		"n",
		[]byte(
			`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"1","generation":7},"spec":{"podCIDR":"10.0.0.0/24"}}`,
		),
		5,
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	w := &write{s: s, q: q, manager: serverFieldManager}
	stored, err := entry.Object()
	if err != nil {
		t.Fatal(err)
	}
	before := stored.DeepCopyObject()
	e, lost, err := w.tryModify(context.Background(), entry,
		func(live runtime.Object) (runtime.Object, error) { return live, nil })
	if err != nil || lost || e != entry {
		t.Errorf("it came to %v %v %v", e, lost, err)
	}
	if after, err := entry.Object(); err != nil || !equality.Semantic.DeepEqual(after, before) {
		t.Errorf("stored is %+v, was %+v", after, before)
	}
}
