package ownership

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// kindConverter converts objects between the versions in which a kind is served, for field managers.
type kindConverter struct {
	scheme *runtime.Scheme
	kind   *kinds.Kind
}

// servedIn returns the kind as served in a version.
func (v kindConverter) servedIn(gvk schema.GroupVersionKind) (wire.Served, bool) {
	if gvk == v.kind.GVK {
		return wire.Served{Kind: v.kind}, true
	}
	for i := range v.kind.Aliases {
		if v.kind.Aliases[i].GVK == gvk {
			return wire.Served{Kind: v.kind, Alias: &v.kind.Aliases[i]}, true
		}
	}
	return wire.Served{}, false
}

// Convert implements runtime.ObjectConvertor.
func (v kindConverter) Convert(in, out, context any) error { return v.scheme.Convert(in, out, context) }

// ConvertToVersion implements runtime.ObjectConvertor.
func (v kindConverter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	from, ok := v.servedIn(in.GetObjectKind().GroupVersionKind())
	if !ok || len(v.kind.Aliases) == 0 {
		return v.scheme.ConvertToVersion(in, to)
	}
	all := []schema.GroupVersionKind{v.kind.GVK}
	for _, a := range v.kind.Aliases {
		all = append(all, a.GVK)
	}
	wanted, ok := to.KindForGroupVersionKinds(all)
	if !ok {
		return nil, fmt.Errorf("a %s cannot be converted to %s", v.kind.GVK.Kind, to.Identifier())
	}
	target, ok := v.servedIn(wanted)
	if !ok {
		return nil, fmt.Errorf("a %s is not served as %s", v.kind.GVK.Kind, wanted)
	}
	if u, ok := in.(*unstructured.Unstructured); ok {
		typed := from.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			return nil, fmt.Errorf("unable to convert unstructured object to %s: %w", from.Version(), err)
		}
		in = typed
	}
	if from.Version() == target.Version() {
		return in, nil
	}
	hub, err := from.ToStored(in)
	if err != nil {
		return nil, err
	}
	return target.ToServed(hub)
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (v kindConverter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
