package ownership

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

// customConverter converts between the versions of a custom resource, for field managers.
type customConverter struct{ family *kinds.Family }

// Convert implements runtime.ObjectConvertor.
func (m customConverter) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, also := out.(*unstructured.Unstructured)
	if !ok || !also {
		return fmt.Errorf("a %T cannot be made of a %T", out, in)
	}
	made, err := m.convertTo(from, to.GroupVersionKind())
	if err != nil {
		return err
	}
	to.Object = made.Object
	return nil
}

func (m customConverter) convertTo(u *unstructured.Unstructured,
	gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	k := m.family.Version(gvk.Version)
	if k == nil {
		return nil, runtime.NewNotRegisteredErrForKind("the definition", gvk)
	}
	made, err := m.family.Convert(context.Background(), []*unstructured.Unstructured{u}, k)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (m customConverter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	u, isType := in.(*unstructured.Unstructured)
	if !ok || !isType {
		return nil, fmt.Errorf("a %s cannot be converted to %s", in.GetObjectKind().GroupVersionKind(), to.Identifier())
	}
	if gvk == u.GroupVersionKind() {
		return ShallowCopy(in), nil
	}
	return m.convertTo(u, gvk)
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (customConverter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (customConverter) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
