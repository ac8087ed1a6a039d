package client

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithoutManagers is a transformation for informers, which keeps of an object all but who manages its fields. The
// object that it gets stays as it is: a client that is no server's may show it to others as well.
func WithoutManagers(obj any) (any, error) {
	m, ok := obj.(metav1.Object)
	if !ok || len(m.GetManagedFields()) == 0 {
		return obj, nil
	}
	copied := reflect.New(reflect.TypeOf(obj).Elem())
	copied.Elem().Set(reflect.ValueOf(obj).Elem())
	m = copied.Interface().(metav1.Object)
	m.SetManagedFields(nil)
	return m, nil
}
