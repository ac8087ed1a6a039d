package write

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// mergedScale applies replicas that a manager declares. Owning a Scale's replicas means owning the object's. So the
// managed fields are translated to those of a Scale, and back.
func (s *Writes) mergedScale(
	q *request.Request,
	live runtime.Object,
	declared *unstructured.Unstructured,
	doubts []error,
) (runtime.Object, error) {
	if live == nil {
		return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	m, err := meta.Accessor(live)
	if err != nil {
		return nil, err
	}
	account := managedfields.NewScaleHandler(m.GetManagedFields(), q.Served.Version().GroupVersion(),
		replicasPaths(q.Served))
	before, err := scaleOf(q, live)
	if err != nil {
		return nil, err
	}
	if before.ManagedFields, err = account.ToSubresource(); err != nil {
		return nil, fmt.Errorf("read who manages the replicas: %w", err)
	}
	fields, err := s.config.Owners.Scale()
	if err != nil {
		return nil, err
	}
	merged, err := applyDeclared(q, fields, before, declared, doubts)
	if err != nil {
		return nil, err
	}
	scale, ok := merged.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("a Scale became a %T", merged)
	}
	if err := setNameAndNamespace(q, scale); err != nil {
		return nil, err
	}
	entries, err := account.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("write down who manages the replicas: %w", err)
	}
	obj, err := applyScale(q, live, func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return scale, nil })
	if err != nil {
		return nil, err
	}
	if m, err = meta.Accessor(obj); err != nil {
		return nil, err
	}
	m.SetManagedFields(entries)
	return obj, nil
}

// replicasPaths returns the path of the replicas in each version of a kind. It is empty for versions without a scale.
func replicasPaths(s wire.Served) managedfields.ResourcePathMappings {
	if s.Untyped == nil {
		return managedfields.ResourcePathMappings{
			s.GVK.GroupVersion().String(): fieldpath.MakePathOrDie("spec", "replicas"),
		}
	}
	paths := managedfields.ResourcePathMappings{}
	for _, v := range s.Untyped.Family.Versions {
		var path fieldpath.Path
		if v.Scale != nil {
			for _, name := range v.Scale.Path {
				path = append(path, fieldpath.PathElement{FieldName: &name})
			}
		}
		paths[v.GVK.GroupVersion().String()] = path
	}
	return paths
}
