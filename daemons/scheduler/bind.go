package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storage "k8s.io/component-helpers/storage/volume"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// writeTimeout bounds every write; what is not written by then is tried again.
const writeTimeout = 15 * time.Second

// binding is a pod on its way to a node.
type binding struct {
	it        *item
	pod       *cluster.Pod
	node      string
	began     time.Time
	until     time.Time // its claims must be bound by then
	decisions []cluster.Decision
	written   bool // the decisions are
	devices   devices
}

// assume counts a pod on a node, and its claims as decided, before the API shows it.
func (s *scheduler) assume(it *item, search *search, n *cluster.Node, began time.Time) *binding {
	b := &binding{it: it, pod: it.pod, node: n.Name, began: began, until: began.Add(search.profile.BindTimeout)}
	if len(b.pod.Volumes) > 0 {
		b.decisions, _ = s.cluster.Storage.Decide(plugin.Unbound(search.task), n)
		s.cluster.Storage.Reserve(b.decisions, n.Name)
	}
	if len(b.pod.Devices)+len(b.pod.Askers) > 0 {
		b.devices = s.assumeDevices(search.task, n)
	}
	s.cluster.Assume(b.pod, n)
	return b
}

// bind writes that a pod goes to a node, when its claims are bound. If it cannot be written, the pod is tried again later.
func (s *scheduler) bind(life context.Context, b *binding) {
	ctx, cancel := context.WithTimeout(life, writeTimeout)
	defer cancel()
	if len(b.decisions) > 0 && !b.written {
		if err := s.claim(ctx, b); err != nil {
			s.fail(b, "write what becomes of its claims", err)
			return
		}
		s.mu.Lock()
		b.written = true
		s.waiting[b.pod.UID] = b
		s.mu.Unlock()
		s.claimsChanged(ctx)
		return
	}
	pod := b.pod
	if err := s.reserve(ctx, life, b); err != nil {
		s.unreserve(ctx, b)
		s.fail(b, "reserve its claims of devices", err)
		return
	}
	err := s.api.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
	if err != nil {
		s.unreserve(ctx, b)
		s.fail(b, "bind it", err)
		return
	}
	s.mu.Lock()
	s.cluster.Storage.Release(b.decisions)
	s.mu.Unlock()
	s.queue.done(b.it)
	s.metrics.attempt("scheduled", pod.Scheduler, s.now().Sub(b.began))
	s.metrics.bound(b.it.attempts, s.now().Sub(b.it.added))
	s.events.Eventf(pod.Reference(), corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s to %s", pod.Key(), b.node)
	s.log.Debug("pod bound", "pod", pod.Key(), "node", b.node)
}

// fail takes back what was assumed of a pod, which is tried again.
func (s *scheduler) fail(b *binding, what string, err error) {
	// Not found or in conflict: it is gone, or somewhere already. The watch says which.
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.metrics.attempt("error", b.pod.Scheduler, s.now().Sub(b.began))
		s.log.Warn("pod not placed: "+what, "pod", b.pod.Key(), "node", b.node, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.Storage.Release(b.decisions)
	s.cluster.Forget(b.pod.UID)
	if len(b.devices.allocated) > 0 {
		s.cluster.Devices.Release(b.devices.allocated)
		defer s.happened(plugin.Happened{Event: plugin.DevicesChanged})
	}
	s.queue.retry(b.it)
	s.happened(plugin.Happened{Event: plugin.PodGone, Node: s.cluster.Node(b.node)})
}

// claim writes which volumes the pod's claims get, and where those are made that they have to wait for.
func (s *scheduler) claim(ctx context.Context, b *binding) error {
	for _, d := range b.decisions {
		if d.Volume == nil {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": d.Claim.UID, "resourceVersion": d.Claim.ResourceVersion, "annotations": map[string]string{storage.AnnSelectedNode: b.node},
			}})
			if err != nil {
				return fmt.Errorf("encode an annotation: %w", err)
			}
			if d.Claim.Annotations[storage.AnnSelectedNode] == b.node {
				continue
			}
			_, err = s.api.CoreV1().PersistentVolumeClaims(d.Claim.Namespace).Patch(ctx, d.Claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("claim %s: %w", d.Claim.Name, err)
			}
			continue
		}
		volume, err := s.api.CoreV1().PersistentVolumes().Get(ctx, d.Volume.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("volume %s: %w", d.Volume.Name, err)
		}
		if ref := volume.Spec.ClaimRef; ref != nil {
			if ref.UID == d.Claim.UID {
				continue
			}
			if ref.Namespace != d.Claim.Namespace || ref.Name != d.Claim.Name || ref.UID != "" {
				return apierrors.NewConflict(corev1.Resource("persistentvolumes"), volume.Name, fmt.Errorf("it is another claim's"))
			}
		} else {
			if volume.Annotations == nil {
				volume.Annotations = map[string]string{}
			}
			volume.Annotations[storage.AnnBoundByController] = "yes"
		}
		volume.Spec.ClaimRef = &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: d.Claim.Namespace, Name: d.Claim.Name, UID: d.Claim.UID,
			ResourceVersion: d.Claim.ResourceVersion,
		}
		if _, err := s.api.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("volume %s: %w", d.Volume.Name, err)
		}
	}
	return nil
}

// claimsChanged goes on with the pods whose claims are all bound now, and takes back those whose claims went another way.
func (s *scheduler) claimsChanged(ctx context.Context) {
	type outcome struct {
		b   *binding
		err error
	}
	var ended []outcome
	s.mu.Lock()
	for uid, b := range s.waiting {
		done, err := s.claimsBound(b)
		if done || err != nil {
			delete(s.waiting, uid)
			ended = append(ended, outcome{b, err})
		}
	}
	s.mu.Unlock()
	for _, o := range ended {
		s.goingOn.Go(func() { s.goOn(ctx, o.b, o.err) })
	}
}

func (s *scheduler) goOn(ctx context.Context, b *binding, err error) {
	if err != nil {
		s.fail(b, "wait for its claims", err)
		return
	}
	s.bind(ctx, b)
}

func (s *scheduler) claimsBound(b *binding) (bool, error) {
	n, known := s.cluster.Node(b.node), s.cluster.Storage
	if n == nil {
		return false, fmt.Errorf("node %s is gone", b.node)
	}
	for _, d := range b.decisions {
		claim := known.Claim(d.Claim.Namespace, d.Claim.Name)
		switch {
		case claim == nil || claim.UID != d.Claim.UID || claim.DeletionTimestamp != nil:
			return false, fmt.Errorf("claim %s is gone", d.Claim.Name)
		case !cluster.Bound(claim):
			seen := claim.ResourceVersion != d.Claim.ResourceVersion
			if _, selected := claim.Annotations[storage.AnnSelectedNode]; d.Volume == nil && seen && !selected && claim.Spec.VolumeName == "" {
				return false, fmt.Errorf("no volume could be made for claim %s on the node", claim.Name)
			}
			return false, nil
		}
		volume := known.Volume(claim.Spec.VolumeName)
		if volume == nil {
			return false, nil // it comes by another watch
		}
		if !volume.Reachable(n) {
			return false, fmt.Errorf("claim %s was bound to a volume that the node does not reach", claim.Name)
		}
	}
	return true, nil
}

// expire takes back the pods whose claims were not bound in time.
func (s *scheduler) expire() {
	var late []*binding
	s.mu.Lock()
	for uid, b := range s.waiting {
		if s.now().After(b.until) {
			delete(s.waiting, uid)
			late = append(late, b)
		}
	}
	s.mu.Unlock()
	for _, b := range late {
		s.fail(b, "wait for its claims", context.DeadlineExceeded)
	}
}
