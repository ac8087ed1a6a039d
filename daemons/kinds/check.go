package kinds

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// servedVersion is a kind in one of its served versions.
type servedVersion struct {
	kind  *Kind
	alias *Alias // nil for the version of kind.GVK
}

var versions = sync.OnceValue(func() map[schema.GroupVersionKind]servedVersion {
	all := map[schema.GroupVersionKind]servedVersion{}
	for _, k := range All() {
		all[k.GVK] = servedVersion{kind: k}
		for i := range k.Aliases {
			all[k.Aliases[i].GVK] = servedVersion{k, &k.Aliases[i]}
		}
	}
	return all
})

// CheckNew returns the validation errors that the API server would return when the object is created. It does not check
// what depends on a running cluster: quotas, policies, webhooks and references to other objects. It modifies obj. It
// returns no errors for kinds that are not served or not stored.
func CheckNew(gvk schema.GroupVersionKind, obj runtime.Object) field.ErrorList {
	v, served := versions()[gvk]
	if !served || v.kind.Virtual {
		return nil
	}
	k := v.kind
	if v.alias != nil && v.alias.ToHub != nil {
		hub, err := v.alias.ToHub(obj)
		if err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		obj = hub
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if k.Default != nil {
		k.Default(obj)
	}
	if k.Namespaced && m.GetNamespace() == "" {
		m.SetNamespace(metav1.NamespaceDefault)
	}
	m.SetUID(uuid.NewUUID())
	m.SetResourceVersion("")
	if k.PrepareCreate != nil {
		k.PrepareCreate(obj)
	}
	ClearDisabled(obj, nil)
	names := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if k.NameErrors != nil {
		names = k.NameErrors
	}
	errs := validation.ValidateObjectMetaAccessor(m, k.Namespaced, names, field.NewPath("metadata"))
	switch {
	case v.alias != nil && v.alias.Checks != nil:
		errs = append(errs, v.alias.Checks(obj, nil)...)
	case k.Validate != nil:
		errs = append(errs, k.Validate(obj)...)
	}
	return errs
}
