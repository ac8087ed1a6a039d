// Package kinds declares every kind of object that the API server serves, one file
// each: its names, columns, defaults, validation and subresources. A kind's routes,
// storage key, discovery entry, OpenAPI schema and kubectl columns all follow from
// its one declaration. The package decides and computes; it stores and fetches nothing.
package kinds

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is the declaration of one kind. The zero value of an optional field means
// what upstream does most often.
type Kind struct {
	GVK        schema.GroupVersionKind // the version that is stored, and preferred
	Resource   string                  // plural, as in paths: "pods"
	Singular   string                  // as in kubectl: "pod"
	ShortNames []string
	Categories []string // such as "all"
	Namespaced bool

	// StorageKey is the part of the key after the prefix, as upstream lays it:
	// "pods", "services/specs", "minions". Empty means Resource.
	StorageKey string

	// New and NewList return empty typed objects of GVK.
	New     func() runtime.Object
	NewList func() runtime.Object

	// Aliases are further group versions under which the same stored objects are
	// served (events.k8s.io/v1 for events).
	Aliases []Alias

	// Verbs that are served, all when nil: create, get, list, watch, update,
	// patch, delete, deletecollection.
	Verbs []string

	// CreateOnUpdate says that a PUT makes an object that is missing.
	CreateOnUpdate bool

	// ConditionalUpdate says that a PUT must tell what version it was made from: what others wrote in between would be
	// lost without anybody noticing.
	ConditionalUpdate bool

	// Virtual kinds are answered and never stored (reviews): only create is served, or
	// the Verbs that are named, by a handler that the API server has for them.
	Virtual bool

	// Default fills in what the client left out. It is called after decoding a write.
	Default func(obj runtime.Object)

	// PrepareCreate and PrepareUpdate settle what clients do not decide: the status is
	// emptied or kept, immutable server-set fields are carried over. The API server
	// has done metadata (uid, timestamps, and generation, which it raises when anything
	// but metadata and status changed, if HasGeneration, or Counts says so) by itself.
	PrepareCreate func(obj runtime.Object)
	PrepareUpdate func(obj, old runtime.Object)
	HasGeneration bool
	Counts        func(obj, old runtime.Object) bool

	// NameError returns why a name is not allowed; nil means a DNS subdomain.
	NameErrors func(name string, prefix bool) []string

	// Validate and ValidateUpdate return everything wrong with a write besides its
	// metadata, which the API server has validated.
	Validate       func(obj runtime.Object) field.ErrorList
	ValidateUpdate func(obj, old runtime.Object) field.ErrorList

	// Warnings returns doubts about what is written, for the Warning header: old is nil for what is
	// new. Deprecated is said there whatever is asked of the kind.
	Warnings   func(obj, old runtime.Object) []string
	Deprecated string

	// Fields returns the selectable fields besides metadata.name and
	// metadata.namespace, as spec.nodeName of pods. IndexedFields names those of
	// them that watches and lists should find without looking at every object.
	Fields        func(obj runtime.Object) fields.Set
	IndexedFields []string
	// FieldPlaces says where in an object's JSON the same fields are, in the order of their names, all of them or nil.
	// It spares decoding objects, for kinds of which there are very many.
	FieldPlaces []FieldPlace

	// Columns are kubectl's, after NAME, which every kind has; Row returns the cells
	// for one object in the same order. Nil means AGE alone.
	Columns []metav1.TableColumnDefinition
	Row     func(obj runtime.Object) []any
	// WholeRow says that Columns and Row begin with NAME or place it themselves,
	// as events do, whose NAME comes last.
	WholeRow bool

	// GracePeriod returns the seconds that a deletion waits for its executor (the
	// kubelet, for pods), given what the client asked for (nil: nothing). Nil func: 0.
	GracePeriod func(obj runtime.Object, asked *int64) int64

	// Status, if set, makes the status subresource: a write there changes only the
	// status (and what StatusMeta allows of metadata), a write to the object never does.
	Status *Status

	// Scale, if set, makes the scale subresource.
	Scale *Scale

	// Subresources names the others, which the API server has a handler for each:
	// binding, eviction, token, log, exec, attach, portforward, proxy, approval,
	// finalize, ephemeralcontainers, resize.
	Subresources []string

	// Dependents is the default for the dependents of a deleted object if the request has no propagation policy.
	Dependents Dependents

	// Finalizers are those that a deletion adds, for what has to be done before.
	Finalizers []string

	// Untyped is set for kinds that an object in the cluster declares, each version of
	// which is a Kind of its own.
	Untyped *Untyped
}

// Dependents selects what happens to the dependents of a deleted object if the request does not specify it.
type Dependents int

// Upstream's defaults.
const (
	DeleteDependents Dependents = iota // delete dependents in the background
	OrphanDependents                   // orphan dependents, as the first versions of the kind did
	NoDependents                       // the kind owns no objects; propagation policies are ignored
)

// Alias is a further group version of a kind.
type Alias struct {
	GVK      schema.GroupVersionKind
	New      func() runtime.Object
	NewList  func() runtime.Object
	FromHub  func(hub runtime.Object) (runtime.Object, error) // hub is of the kind's GVK
	ToHub    func(obj runtime.Object) (runtime.Object, error)
	Resource string // empty: the kind's

	// Checks, if set, are this version's, in place of Validate and ValidateUpdate: it is given
	// objects of the kind's own version, and nil for old when there is none.
	Checks func(obj, old runtime.Object) field.ErrorList
}

// Status is how a kind's status subresource behaves.
type Status struct {
	// Copy puts from's status into to. The write to the object itself keeps the
	// stored status, a write to the status keeps everything else.
	Copy func(to, from runtime.Object)
	// Prepare settles what of a new status clients do not decide; may be nil.
	Prepare func(obj, old runtime.Object)
	// Validate returns what is wrong with a new status; may be nil.
	Validate func(obj, old runtime.Object) field.ErrorList
	// KeepsMeta says that a write to the status changes nothing of metadata.
	KeepsMeta bool
	// Keeps names fields of metadata that a write to the status does not change.
	Keeps []string
}

// Scale is how replicas are read and set through the scale subresource
// (autoscaling/v1 Scale).
type Scale struct {
	Get  func(obj runtime.Object) (spec, status int32, selector string)
	Set  func(obj runtime.Object, replicas int32)
	Path []string // names of the fields that lead to the replicas; nil: spec and replicas
}

// GVR returns the stored version's resource.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.GVK.GroupVersion().WithResource(k.Resource)
}

// GR returns the group and resource.
func (k *Kind) GR() schema.GroupResource { return k.GVR().GroupResource() }
