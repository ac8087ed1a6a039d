// Package fake implements the clients of package kubernetes with objects in memory, for tests. It wraps client-go's
// fake clientset.
package fake

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"clusterctl/kube/discovery"
	"clusterctl/kube/kubernetes"
)

// Clientset is client-go's fake as a kubernetes.Interface.
type Clientset struct{ *fake.Clientset }

var _ kubernetes.Interface = (*Clientset)(nil)

// NewClientset returns clients of some objects.
func NewClientset(objects ...runtime.Object) *Clientset {
	return &Clientset{fake.NewClientset(objects...)}
}

// Discovery implements kubernetes.Interface.
func (c *Clientset) Discovery() discovery.Interface { return c.Clientset.Discovery() }
