package client

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithoutManagers is a transform function for informers. It returns the object without managed fields. It does not
// change its argument, because a client without a server, such as a fake one, may share that object with others.
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
