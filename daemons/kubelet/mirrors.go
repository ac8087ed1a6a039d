package kubelet

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/pod"
	"clusterctl/kube/kubernetes"
)

// mirrorPods maintains a mirror pod in the API for every static pod, so that API clients can see it.
type mirrorPods struct {
	client kubernetes.Interface
	log    *slog.Logger

	mu       sync.Mutex
	static   map[string]*corev1.Pod // by namespace/name
	existing map[string]*corev1.Pod // mirror pods seen in the API, by namespace/name
	held     map[types.UID]bool     // static pods that keep running although their manifests cannot be read
}

// setHeld sets the static pods that keep running although their manifests cannot be read.
func (m *mirrorPods) setHeld(held map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = maps.Clone(held)
}

// heldPods returns the held pods.
func (m *mirrorPods) heldPods() map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.held)
}

// replace sets the current static pods. It returns the pods that are gone or have a new version. A held pod stays even
// if found lacks it.
func (m *mirrorPods) replace(found map[string]*corev1.Pod, held map[types.UID]bool) (removed []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, before := range m.static {
		if now, ok := found[name]; ok && now.UID == before.UID || !ok && held[before.UID] {
			found[name] = before
			continue
		}
		removed = append(removed, before)
	}
	m.static = found
	return removed
}

// find returns the mirror of this version of a static pod, or nil if there is none.
func (m *mirrorPods) find(p *corev1.Pod) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mirror := m.existing[podName(p)]; mirror != nil &&
		mirror.Annotations[pod.MirrorAnnotation] == p.Annotations[pod.HashAnnotation] {
		return mirror
	}
	return nil
}

func (m *mirrorPods) staticPod(name string) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.static[name]
}

func (m *mirrorPods) addMirror(p *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.existing[podName(p)] = p
}

func (m *mirrorPods) removeMirror(p *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.existing[podName(p)]; before != nil && before.UID == p.UID {
		delete(m.existing, podName(p))
	}
}

// sync creates and deletes mirror pods in the API until they match the static pods.
func (m *mirrorPods) sync(ctx context.Context, node *metav1.OwnerReference) {
	m.mu.Lock()
	var create, remove []*corev1.Pod
	for name, p := range m.static {
		if m.existing[name] == nil && node != nil {
			create = append(create, p)
		}
	}
	for name, mirror := range m.existing {
		p := m.static[name]
		if p == nil && m.held[types.UID(mirror.Annotations[pod.MirrorAnnotation])] && mirror.DeletionTimestamp == nil {
			continue
		}
		if p == nil || p.Annotations[pod.HashAnnotation] != mirror.Annotations[pod.MirrorAnnotation] ||
			mirror.DeletionTimestamp != nil {
			remove = append(remove, mirror)
		}
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	zero := int64(0)
	for _, p := range remove {
		err := m.client.CoreV1().
			Pods(p.Namespace).
			Delete(ctx, p.Name,
				metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			m.log.Warn("delete mirror pod", "pod", podName(p), "error", err)
		}
	}
	for _, p := range create {
		mirror := p.DeepCopy()
		mirror.UID, mirror.ResourceVersion = "", ""
		mirror.Annotations[pod.MirrorAnnotation] = p.Annotations[pod.HashAnnotation]
		mirror.OwnerReferences = []metav1.OwnerReference{*node}
		if _, err := m.client.CoreV1().Pods(p.Namespace).Create(ctx, mirror, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			m.log.Warn("create mirror pod", "pod", podName(p), "error", err)
		}
	}
}

// nodeOwner returns an owner reference to the node for mirror pods. It returns nil until
// the node is registered.
func nodeOwner(node *corev1.Node) *metav1.OwnerReference {
	if node == nil || node.UID == "" {
		return nil
	}
	yes := true
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes}
}
