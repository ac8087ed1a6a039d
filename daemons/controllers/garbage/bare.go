package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"clusterctl/daemons/controllers/loop"
)

// bare holds the metadata of an object that is in no shared cache.
type bare struct {
	namespace  string
	name       string
	uid        types.UID
	version    string
	owners     []metav1.OwnerReference
	finalizers []string
	deleted    *metav1.Time
}

func (b *bare) GetNamespace() string                        { return b.namespace }
func (b *bare) GetName() string                             { return b.name }
func (b *bare) GetUID() types.UID                           { return b.uid }
func (b *bare) GetResourceVersion() string                  { return b.version }
func (b *bare) GetOwnerReferences() []metav1.OwnerReference { return b.owners }
func (b *bare) GetFinalizers() []string                     { return b.finalizers }
func (b *bare) GetDeletionTimestamp() *metav1.Time          { return b.deleted }

// GetObjectMeta returns what a cache needs to identify the object and to notice changes.
func (b *bare) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: b.namespace, Name: b.name, UID: b.uid, ResourceVersion: b.version}
}

// words lets bare objects share equal data: the names of namespaces, and the owner references of objects with the same
// owner.
type words struct {
	mu         sync.Mutex
	namespaces *lru.Cache
	owners     *lru.Cache // by the first owner's UID

	shelf loop.Shelf
	all   loop.Row[bare]
}

const maxWords = 4096

func newWords() *words { return &words{namespaces: lru.New(maxWords), owners: lru.New(maxWords)} }

// bare returns the metadata to store for an object.
func (w *words) bare(m *metav1.PartialObjectMetadata) *bare {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := bare{namespace: m.Namespace, name: m.Name, uid: m.UID, version: m.ResourceVersion,
		owners: m.OwnerReferences, finalizers: m.Finalizers, deleted: m.DeletionTimestamp}
	if known, ok := w.namespaces.Get(b.namespace); ok {
		b.namespace = known.(string)
	} else {
		w.shelf.Keep(&b.namespace)
		w.namespaces.Add(b.namespace, b.namespace)
	}
	w.shelf.Keep(&b.name, (*string)(&b.uid), &b.version)
	if len(b.owners) == 0 {
		return w.all.One(b)
	}
	if known, ok := w.owners.Get(b.owners[0].UID); ok &&
		slices.EqualFunc(known.([]metav1.OwnerReference), b.owners, identical) {
		b.owners = known.([]metav1.OwnerReference)
	} else {
		w.owners.Add(b.owners[0].UID, b.owners)
	}
	return w.all.One(b)
}

func identical(a, b metav1.OwnerReference) bool {
	flag := func(a, b *bool) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		flag(a.Controller, b.Controller) && flag(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}
