package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// lateObjects are the objects of a cache that has not yet seen the last writes.
type lateObjects struct {
	api.Objects
	current api.CurrentObjects
	err     error
}

func (o lateObjects) GetCurrent(
	ctx context.Context,
	resource schema.GroupResource,
	namespace, name string,
) (runtime.Object, bool, error) {
	if o.err != nil {
		return nil, false, o.err
	}
	return o.current.GetCurrent(ctx, resource, namespace, name)
}

// A namespace that was created a moment ago may be missing in the cache. Only the store's answer counts.
func TestNamespacesThatTheCacheLacksAreReadFromTheStore(t *testing.T) {
	without, with := storedObjects(), storedObjects()
	with.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}})
	for name, c := range map[string]struct {
		objects api.CurrentObjects
		matches func(error) bool
	}{
		"created a moment ago": {
			lateObjects{without, with, nil}, func(err error) bool { return err == nil },
		},
		"missing":       {lateObjects{without, without, nil}, apierrors.IsNotFound},
		"not read":      {lateObjects{without, nil, context.DeadlineExceeded}, apierrors.IsTimeout},
		"in the cache":  {with, func(err error) bool { return err == nil }},
		"nowhere to be": {without, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			p := &namespaceLifecycle{objects: c.objects}
			a := &api.Admission{Operation: "CREATE", Namespace: "fresh", Name: "c",
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
			if err := p.Admit(t.Context(), a); !c.matches(err) {
				t.Errorf("the answer is %v", err)
			}
		})
	}
}
