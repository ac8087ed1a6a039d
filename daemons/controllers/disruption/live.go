package disruption

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

// liveScales reads the scale of controllers that are not watched from the API server. It supports any kind with a scale
// subresource.
type liveScales struct {
	objects dynamic.Interface
	kinds   discovery.Interface
	mapper  meta.ResettableRESTMapper
}

func newLive(c loop.Context) liveScales {
	kinds := c.Client.Discovery()
	return liveScales{c.Dynamic, kinds, discovery.NewMapper(kinds)}
}

// scaleOf returns a controller's scale. It returns nil if the controller does not exist or was replaced by another of
// the same name.
func (l liveScales) scaleOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*desiredScale, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ref.Kind}
	mapping, err := l.mapper.RESTMapping(kind, version.Version)
	if meta.IsNoMatchError(err) {
		l.mapper.Reset() // the kind may be new
		mapping, err = l.mapper.RESTMapping(kind, version.Version)
	}
	if err != nil {
		return nil, err
	}
	u, err := l.objects.Resource(mapping.Resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	if apierrors.IsNotFound(err) {
		return nil, l.checkScalable(mapping.Resource)
	}
	if err != nil {
		return nil, fmt.Errorf("get the scale of %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &scale); err != nil {
		return nil, fmt.Errorf("read the scale of %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	if scale.UID != ref.UID {
		return nil, nil
	}
	return &desiredScale{scale.UID, scale.Spec.Replicas}, nil
}

// checkScalable returns an error if a resource has no scale subresource. A 404 for the scale then says nothing about
// the object.
func (l liveScales) checkScalable(r schema.GroupVersionResource) error {
	list, err := l.kinds.ServerResourcesForGroupVersion(r.GroupVersion().String())
	if err != nil {
		return err
	}
	for _, served := range list.APIResources {
		if served.Name == r.Resource+"/scale" {
			return nil
		}
	}
	return fmt.Errorf("%s does not implement the scale subresource", r.GroupResource())
}
