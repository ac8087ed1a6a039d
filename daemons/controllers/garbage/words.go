package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// words makes the graph's objects, of which there are as many as the cluster has, so that they share what is equal in them: the
// names of namespaces, and the owners of those that belong to one.
type words struct {
	mu         sync.Mutex
	namespaces *lru.Cache
	owners     *lru.Cache // by the first owner's UID
}

const maxWords = 4096

func newWords() *words { return &words{namespaces: lru.New(maxWords), owners: lru.New(maxWords)} }

// object is what is kept of an object.
func (w *words) object(of *served, m *metav1.PartialObjectMetadata) *object {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &object{
		identity: identity{served: of, namespace: m.Namespace, name: m.Name, uid: m.UID},
		version:  m.ResourceVersion, owners: m.OwnerReferences, finalizers: m.Finalizers, deleting: m.DeletionTimestamp != nil,
	}
	if known, ok := w.namespaces.Get(o.namespace); ok {
		o.namespace = known.(string)
	} else {
		w.namespaces.Add(o.namespace, o.namespace)
	}
	if len(o.owners) == 0 {
		return o
	}
	if known, ok := w.owners.Get(o.owners[0].UID); ok && slices.EqualFunc(known.([]metav1.OwnerReference), o.owners, identical) {
		o.owners = known.([]metav1.OwnerReference)
	} else {
		w.owners.Add(o.owners[0].UID, o.owners)
	}
	return o
}

func identical(a, b metav1.OwnerReference) bool {
	flag := func(a, b *bool) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		flag(a.Controller, b.Controller) && flag(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// GetObjectMeta is how a cache knows an object, and whether it has changed.
func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.version}
}
