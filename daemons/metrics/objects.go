package metrics

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/kube/kubernetes"
)

// Pod holds what is needed about a running pod. Its ObjectMeta has only names, labels and the version.
type Pod struct {
	metav1.ObjectMeta
	Node       string
	Containers []string
}

// key returns namespace/name, the key in answers.
func (p *Pod) key() string { return p.Namespace + "/" + p.Name }

// Objects provides the nodes and running pods from the API. Returned objects must not be changed.
type Objects interface {
	Node(name string) *corev1.Node
	Nodes() []*corev1.Node
	Pod(namespace, name string) *Pod
	Pods(namespace string) []*Pod // an empty namespace means all
	PodsOn(node string) []*Pod
}

// objectWatcher implements Objects with watches of the API.
type objectWatcher struct {
	factories   []*informers.Factory
	nodes, pods cache.SharedIndexInformer
}

const byNode = "node"

func newObjectWatcher(client kubernetes.Interface) (*objectWatcher, error) {
	nodes := informers.New(client, informers.WithTransform(trimNode))
	pods := informers.New(client, informers.WithTransform(trimPod),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)).String()
		}))
	w := &objectWatcher{
		factories: []*informers.Factory{nodes, pods},
		nodes:     informers.Nodes(nodes).Informer(),
		pods:      informers.Pods(pods).Informer(),
	}
	err := w.pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		if p, ok := obj.(*Pod); ok {
			return []string{p.Node}, nil
		}
		return nil, fmt.Errorf("a %T among the pods", obj)
	}})
	return w, err
}

// run watches until ctx ends.
func (w *objectWatcher) run(ctx context.Context) {
	for _, f := range w.factories {
		f.StartWithContext(ctx)
	}
	<-ctx.Done()
	for _, f := range w.factories {
		f.Shutdown()
	}
}

// awaitSync waits for the initial objects. It returns false if ctx ends first.
func (w *objectWatcher) awaitSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.nodes.HasSynced, w.pods.HasSynced)
}

func (w *objectWatcher) isSynced() bool { return w.nodes.HasSynced() && w.pods.HasSynced() }

func (w *objectWatcher) checkSynced() error {
	if !w.isSynced() {
		return errors.New("nodes and pods are not known yet")
	}
	return nil
}

// Node implements Objects.
func (w *objectWatcher) Node(name string) *corev1.Node {
	obj, _, _ := w.nodes.GetIndexer().GetByKey(name) // an in-memory index does not fail
	n, _ := obj.(*corev1.Node)
	return n
}

// Nodes implements Objects.
func (w *objectWatcher) Nodes() []*corev1.Node {
	return convertAll[*corev1.Node](w.nodes.GetIndexer().List())
}

// Pod implements Objects.
func (w *objectWatcher) Pod(namespace, name string) *Pod {
	obj, _, _ := w.pods.GetIndexer().GetByKey(namespace + "/" + name) // an in-memory index does not fail
	p, _ := obj.(*Pod)
	return p
}

// Pods implements Objects.
func (w *objectWatcher) Pods(namespace string) []*Pod {
	if namespace == "" {
		return convertAll[*Pod](w.pods.GetIndexer().List())
	}
	return w.byIndex(cache.NamespaceIndex, namespace)
}

// PodsOn implements Objects.
func (w *objectWatcher) PodsOn(node string) []*Pod { return w.byIndex(byNode, node) }

func (w *objectWatcher) byIndex(index, value string) []*Pod {
	found, _ := w.pods.GetIndexer().ByIndex(index, value) // both indexes exist
	return convertAll[*Pod](found)
}

func convertAll[T any](objs []any) []T {
	out := make([]T, 0, len(objs))
	for _, obj := range objs {
		if one, ok := obj.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

// trimPod reduces a pod to what is needed.
func trimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &Pod{ObjectMeta: trimMeta(p.ObjectMeta), Node: p.Spec.NodeName}
	for i := range p.Spec.InitContainers {
		out.Containers = append(out.Containers, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		out.Containers = append(out.Containers, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		out.Containers = append(out.Containers, p.Spec.EphemeralContainers[i].Name)
	}
	return out, nil
}

// trimNode reduces a node to what is needed: its conditions and its kubelet's address.
func trimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta), Status: corev1.NodeStatus{
		Addresses: n.Status.Addresses, DaemonEndpoints: n.Status.DaemonEndpoints, Conditions: n.Status.Conditions,
	}}, nil
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            m.Name,
		Namespace:       m.Namespace,
		UID:             m.UID,
		Labels:          m.Labels,
		ResourceVersion: m.ResourceVersion,
	}
}
