package admission

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds"
)

// ownerReferencesName is the plugin's name in --enable-admission-plugins. The plugin is disabled by default.
const ownerReferencesName = "OwnerReferencesPermissionEnforcement"

// ownerReferences keeps users from making the garbage collector delete or keep objects that they may not delete or
// finalize themselves. Changing the owners of an object requires the right to delete it. Blocking an owner's deletion
// requires the right to set the owner's finalizers.
type ownerReferences struct {
	objects      api.Objects
	authorizer   api.Authorizer
	builtInKinds map[schema.GroupKind]kinds.Kind
}

func newOwnerReferences(objects api.Objects, authorizer api.Authorizer) *ownerReferences {
	p := &ownerReferences{objects: objects, authorizer: authorizer, builtInKinds: map[schema.GroupKind]kinds.Kind{}}
	for _, k := range kinds.All() {
		p.builtInKinds[k.GVK.GroupKind()] = kinds.Kind{Resource: k.Resource, Namespaced: k.Namespaced}
	}
	return p
}

// Validate checks changes of an object's owners.
func (p *ownerReferences) Validate(ctx context.Context, a *api.Admission) error {
	if a.Object == nil || a.Subresource == "status" || a.Operation != "CREATE" && a.Operation != "UPDATE" {
		return nil
	}
	now, err := ownersOf(a.Object)
	if err != nil {
		return nil // it has no metadata
	}
	var before []metav1.OwnerReference
	if a.Old != nil {
		if before, err = ownersOf(a.Old); err != nil {
			return nil
		}
	}
	if equality.Semantic.DeepEqual(now, before) {
		return nil
	}
	if a.Operation == "UPDATE" {
		right := api.Request{
			Verb:                 "delete",
			Resource:             true,
			GroupVersionResource: a.Resource,
			Namespace:            a.Namespace,
			Name:                 a.Name,
		}
		if !p.isAllowed(ctx, a.User, right) {
			return forbidden(a, errors.New("cannot set an ownerRef on a resource you can't delete"))
		}
	}
	for _, ref := range newlyBlocking(now, before) {
		right, err := p.finalizersRequest(a, ref)
		if err != nil {
			return forbidden(a, fmt.Errorf("cannot set blockOwnerDeletion in this case: %w", err))
		}
		if !p.isAllowed(ctx, a.User, right) {
			return forbidden(a, errors.New(
				"cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"))
		}
	}
	return nil
}

func (p *ownerReferences) isAllowed(ctx context.Context, u api.User, r api.Request) bool {
	d, _, err := p.authorizer.Authorize(ctx, u, r)
	return err == nil && d == api.Allow
}

func ownersOf(obj any) ([]metav1.OwnerReference, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return m.GetOwnerReferences(), nil
}

// newlyBlocking returns the owners whose deletion the object blocks now, and did not block before.
func newlyBlocking(now, before []metav1.OwnerReference) (list []metav1.OwnerReference) {
	blocked := map[string]bool{}
	for _, ref := range before {
		blocked[string(ref.UID)] = ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	}
	for _, ref := range now {
		if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion && !blocked[string(ref.UID)] {
			list = append(list, ref)
		}
	}
	return list
}

// finalizersRequest returns the right to set an owner's finalizers.
func (p *ownerReferences) finalizersRequest(a *api.Admission, ref metav1.OwnerReference) (api.Request, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return api.Request{}, err
	}
	k, ok := p.builtInKinds[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}]
	if !ok {
		if k, ok = p.declaredKind(gv.Group, ref.Kind); !ok {
			return api.Request{}, fmt.Errorf("no kind %s of %s is served", ref.Kind, ref.APIVersion)
		}
	}
	r := api.Request{
		Verb:                 "update",
		Resource:             true,
		GroupVersionResource: gv.WithResource(k.Resource),
		Subresource:          "finalizers",
		Name:                 ref.Name,
	}
	if k.Namespaced {
		r.Namespace = a.Namespace
	}
	return r, nil
}

// declaredKind finds a kind that a CustomResourceDefinition declares.
func (p *ownerReferences) declaredKind(group, kind string) (kinds.Kind, bool) {
	for _, obj := range p.objects.List(resourceName{Group: apiextensionsv1.GroupName,
		Resource: "customresourcedefinitions"}, "") {
		if d, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && d.Spec.Group == group &&
			d.Status.AcceptedNames.Kind == kind {
			return kinds.Kind{
				Resource:   d.Status.AcceptedNames.Plural,
				Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
			}, true
		}
	}
	return kinds.Kind{}, false
}
