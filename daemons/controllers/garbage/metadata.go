package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"clusterctl/daemons/controllers/loop"
)

// minimalMetadata holds the metadata of an object that is in no shared cache.
type minimalMetadata struct {
	namespace         string
	name              string
	uid               types.UID
	version           string
	owners            []metav1.OwnerReference
	finalizers        []string
	deletionTimestamp *metav1.Time
}

func (b *minimalMetadata) GetNamespace() string                        { return b.namespace }
func (b *minimalMetadata) GetName() string                             { return b.name }
func (b *minimalMetadata) GetUID() types.UID                           { return b.uid }
func (b *minimalMetadata) GetResourceVersion() string                  { return b.version }
func (b *minimalMetadata) GetOwnerReferences() []metav1.OwnerReference { return b.owners }
func (b *minimalMetadata) GetFinalizers() []string                     { return b.finalizers }
func (b *minimalMetadata) GetDeletionTimestamp() *metav1.Time          { return b.deletionTimestamp }

// GetObjectMeta returns what a cache needs to identify the object and to notice changes.
func (b *minimalMetadata) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: b.namespace, Name: b.name, UID: b.uid, ResourceVersion: b.version}
}

// metadataInterner lets bare objects share equal data: the names of namespaces, and the owner references of objects
// with the same owner.
type metadataInterner struct {
	mu         sync.Mutex
	namespaces *lru.Cache
	owners     *lru.Cache // by the first owner's UID

	texts loop.TextArena
	arena loop.ValueArena[minimalMetadata]
}

const maxInterned = 4096

func newMetadataInterner() *metadataInterner {
	return &metadataInterner{namespaces: lru.New(maxInterned), owners: lru.New(maxInterned)}
}

// intern returns the metadata to store for an object.
func (w *metadataInterner) intern(m *metav1.PartialObjectMetadata) *minimalMetadata {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := minimalMetadata{namespace: m.Namespace, name: m.Name, uid: m.UID, version: m.ResourceVersion,
		owners: m.OwnerReferences, finalizers: m.Finalizers, deletionTimestamp: m.DeletionTimestamp}
	if cached, ok := w.namespaces.Get(b.namespace); ok {
		b.namespace = cached.(string)
	} else {
		w.texts.Copy(&b.namespace)
		w.namespaces.Add(b.namespace, b.namespace)
	}
	w.texts.Copy(&b.name, (*string)(&b.uid), &b.version)
	if len(b.owners) == 0 {
		return w.arena.CopyOne(b)
	}
	if cached, ok := w.owners.Get(b.owners[0].UID); ok &&
		slices.EqualFunc(cached.([]metav1.OwnerReference), b.owners, sameReference) {
		b.owners = cached.([]metav1.OwnerReference)
	} else {
		w.owners.Add(b.owners[0].UID, b.owners)
	}
	return w.arena.CopyOne(b)
}

func sameReference(a, b metav1.OwnerReference) bool {
	flag := func(a, b *bool) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		flag(a.Controller, b.Controller) && flag(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}
