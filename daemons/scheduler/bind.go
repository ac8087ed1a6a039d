package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"clusterctl/daemons/api/storage"
	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// writeTimeout bounds every write. A write that takes longer is tried again.
const writeTimeout = 15 * time.Second

// binding is a pod whose node is decided and not written yet.
type binding struct {
	item           *item
	pod            *cluster.Pod
	node           string
	started        time.Time
	deadline       time.Time // deadline for its claims to be bound
	decisions      []cluster.Decision
	written        bool              // whether the decisions are written
	volumeVersions map[string]string // by name: the resource versions of the volumes after they were given to claims
	devices        devices
}

// errPodGone means that a pod is gone or already on a node, so that the failure to bind it need not be reported.
var errPodGone = errors.New("the pod is gone or on a node already")

// assume counts a pod on a node, and its claims as decided, before the API shows it.
func (s *scheduler) assume(it *item, search *search, n *cluster.Node, start time.Time) *binding {
	b := &binding{item: it, pod: it.pod, node: n.Name, started: start, deadline: start.Add(search.profile.BindTimeout)}
	if len(b.pod.Volumes) > 0 {
		b.decisions, _ = s.cluster.Storage.Decide(plugin.UnboundClaims(search.task), n)
		s.cluster.Storage.Reserve(b.decisions, n.Name)
	}
	if len(b.pod.Devices)+len(b.pod.ContainerRequests) > 0 {
		b.devices = s.assumeDevices(search.task, n)
	}
	s.cluster.Assume(b.pod, n)
	return b
}

// bind writes the pod's node once its claims are bound. If a write fails, the pod is tried again later.
func (s *scheduler) bind(life context.Context, b *binding) {
	ctx, cancel := context.WithTimeout(life, writeTimeout)
	defer cancel()
	if !b.written && len(b.decisions)+len(b.devices.claims) > 0 {
		s.writeExpectedNode(ctx, b)
	}
	if len(b.decisions) > 0 && !b.written {
		if err := s.writeClaimDecisions(ctx, b); err != nil {
			s.failBinding(life, b, preBindError("VolumeBinding", err))
			return
		}
		s.mu.Lock()
		b.written = true
		isGone := s.cluster.Pod(b.pod.UID) == nil
		if !isGone {
			s.waiting[b.pod.UID] = b
		}
		s.mu.Unlock()
		if isGone {
			s.failBinding(life, b, errPodGone)
			return
		}
		s.checkWaitingBindings(life)
		return
	}
	pod := b.pod
	if err := s.reserve(ctx, life, b); err != nil {
		s.unreserve(ctx, b)
		s.failBinding(life, b, preBindError("DynamicResources", err))
		return
	}
	err := s.api.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
	if err != nil {
		s.unreserve(ctx, b)
		if apierrors.IsNotFound(err) ||
			apierrors.IsConflict(err) { // it is gone or already bound: the watch will show which
			err = errPodGone
		} else {
			err = fmt.Errorf("running Bind plugin %q: %w", "DefaultBinder", err)
		}
		s.failBinding(life, b, err)
		return
	}
	s.mu.Lock()
	s.cluster.Storage.Release(b.decisions)
	s.mu.Unlock()
	s.queue.removeScheduled(b.item)
	s.metrics.observeAttempt("scheduled", pod.Scheduler, s.now().Sub(b.started))
	s.metrics.observeBound(b.item.attempts, s.now().Sub(b.item.added))
	s.events[pod.Scheduler].Record(pod.Reference(), nil, corev1.EventTypeNormal, "Scheduled", actionBinding,
		"Successfully assigned "+pod.Key()+" to "+b.node)
	s.log.Debug("pod bound", "pod", pod.Key(), "node", b.node)
}

func preBindError(plugin string, err error) error {
	return fmt.Errorf("running PreBind plugin %q: %w", plugin, err)
}

// writeExpectedNode writes the expected node before the pod's claims are ready, so that, for example, an autoscaler
// does not remove the node as unused in between.
func (s *scheduler) writeExpectedNode(ctx context.Context, b *binding) {
	if s.queue.shownNomination(b.pod.UID) == b.node {
		return
	}
	if err := s.patchStatus(ctx, b.pod, map[string]any{"nominatedNodeName": b.node}); err == nil {
		s.queue.recordShownNomination(b.pod.UID, b.node)
	} else if !apierrors.IsNotFound(err) {
		s.log.Warn("write where the pod is expected", "pod", b.pod.Key(), "node", b.node, "error", err)
	}
}

// failBinding reverts what was assumed about a pod, reports the error on the pod and retries it later.
func (s *scheduler) failBinding(life context.Context, b *binding, err error) {
	s.mu.Lock()
	s.revertAssumed(b)
	s.mu.Unlock()
	if err != errPodGone && life.Err() == nil {
		s.metrics.observeAttempt("error", b.pod.Scheduler, s.now().Sub(b.started))
		s.log.Warn("pod not placed", "pod", b.pod.Key(), "node", b.node, "error", err)
		free := *b.pod
		free.Nominated = ""
		s.reportUnschedulable(life, &free, corev1.PodReasonSchedulerError, err.Error())
	}
	s.queue.retry(b.item)
}

func (s *scheduler) revertAssumed(b *binding) {
	s.cluster.Storage.Release(b.decisions)
	s.cluster.RevertAssume(b.pod.UID)
	if len(b.devices.allocated) > 0 {
		s.cluster.Devices.Release(b.devices.allocated)
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DevicesChanged})
	}
	s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone, Node: s.cluster.Node(b.node), Pod: b.pod})
}

// writeClaimDecisions writes which volumes the pod's claims get, or the selected node for claims whose volumes have yet
// to be provisioned.
func (s *scheduler) writeClaimDecisions(ctx context.Context, b *binding) error {
	for _, d := range b.decisions {
		if d.Volume == nil {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": d.Claim.UID, "resourceVersion": d.Claim.ResourceVersion,
				"annotations": map[string]string{storage.AnnSelectedNode: b.node},
			}})
			if err != nil {
				return fmt.Errorf("encode an annotation: %w", err)
			}
			if d.Claim.Annotations[storage.AnnSelectedNode] == b.node {
				continue
			}
			_, err = s.api.CoreV1().
				PersistentVolumeClaims(d.Claim.Namespace).
				Patch(ctx, d.Claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("claim %s: %w", d.Claim.Name, err)
			}
			continue
		}
		volume, err := s.api.CoreV1().PersistentVolumes().Get(ctx, d.Volume.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("volume %s: %w", d.Volume.Name, err)
		}
		if b.volumeVersions == nil {
			b.volumeVersions = map[string]string{}
		}
		if ref := volume.Spec.ClaimRef; ref != nil {
			if ref.UID == d.Claim.UID {
				b.volumeVersions[volume.Name] = volume.ResourceVersion
				continue
			}
			if ref.Namespace != d.Claim.Namespace || ref.Name != d.Claim.Name || ref.UID != "" {
				return apierrors.NewConflict(corev1.Resource("persistentvolumes"), volume.Name,
					fmt.Errorf("it is another claim's"))
			}
		} else {
			if volume.Annotations == nil {
				volume.Annotations = map[string]string{}
			}
			volume.Annotations[storage.AnnBoundByController] = "yes"
		}
		volume.Spec.ClaimRef = &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: d.Claim.Namespace, Name: d.Claim.Name,
			UID:             d.Claim.UID,
			ResourceVersion: d.Claim.ResourceVersion,
		}
		if volume, err = s.api.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("volume %s: %w", d.Volume.Name, err)
		}
		b.volumeVersions[volume.Name] = volume.ResourceVersion
	}
	return nil
}

// verifyVolumeOwner returns an error if a volume that was given to a claim no longer belongs to it. It ignores states
// of the volume from before it was given.
func (b *binding) verifyVolumeOwner(d cluster.Decision, volume *cluster.PersistentVolume) error {
	if volume == nil || volume.DeletionTimestamp != nil {
		return fmt.Errorf("volume %s is gone", d.Volume.Name)
	}
	if order, err := resourceversion.CompareResourceVersion(volume.ResourceVersion,
		b.volumeVersions[volume.Name]); err != nil ||
		order < 0 {
		return nil
	}
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID != d.Claim.UID {
		return fmt.Errorf("ClaimRef got reset for pv %q", volume.Name)
	}
	return nil
}

// checkWaitingBindings continues the bindings whose claims are all bound now, and fails those whose claims were bound
// otherwise.
func (s *scheduler) checkWaitingBindings(ctx context.Context) {
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
		s.resuming.Go(func() { s.resumeBinding(ctx, o.b, o.err) })
	}
}

func (s *scheduler) resumeBinding(ctx context.Context, b *binding, err error) {
	if err != nil {
		s.failBinding(ctx, b, preBindError("VolumeBinding", fmt.Errorf("binding volumes: %w", err)))
		return
	}
	s.bind(ctx, b)
}

func (s *scheduler) claimsBound(b *binding) (bool, error) {
	n, volumes := s.cluster.Node(b.node), s.cluster.Storage
	if n == nil {
		return false, fmt.Errorf("node %s is gone", b.node)
	}
	for _, d := range b.decisions {
		claim := volumes.Claim(d.Claim.Namespace, d.Claim.Name)
		switch {
		case claim == nil || claim.UID != d.Claim.UID || claim.DeletionTimestamp != nil:
			return false, fmt.Errorf("claim %s is gone", d.Claim.Name)
		case !cluster.IsBound(claim):
			seen := claim.ResourceVersion != d.Claim.ResourceVersion
			if d.Volume == nil && seen && claim.Annotations[storage.AnnSelectedNode] != b.node &&
				claim.Spec.VolumeName == "" {
				return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
			}
			if d.Volume != nil {
				if err := b.verifyVolumeOwner(d, volumes.Volume(d.Volume.Name)); err != nil {
					return false, err
				}
			}
			return false, nil
		}
		volume := volumes.Volume(claim.Spec.VolumeName)
		if volume == nil {
			return false, nil // another watch will deliver it
		}
		if !volume.IsReachable(n) {
			return false, fmt.Errorf("claim %s was bound to a volume that the node does not reach", claim.Name)
		}
	}
	return true, nil
}

// expireBindings fails the bindings whose claims were not bound in time.
func (s *scheduler) expireBindings(ctx context.Context) {
	var overdue []*binding
	s.mu.Lock()
	for uid, b := range s.waiting {
		if s.now().After(b.deadline) {
			delete(s.waiting, uid)
			overdue = append(overdue, b)
		}
	}
	s.mu.Unlock()
	for _, b := range overdue {
		s.resuming.Go(func() { s.resumeBinding(ctx, b, context.DeadlineExceeded) })
	}
}

// abandonBinding reverts what is assumed about a deleted pod, and ends its wait for its claims.
func (s *scheduler) abandonBinding(uid types.UID) {
	if b := s.waiting[uid]; b != nil {
		delete(s.waiting, uid)
		s.revertAssumed(b)
	} else if p := s.cluster.Pod(uid); p != nil && p.Assumed { // the goroutine that binds it will find out
		node := p.OnNode()
		s.cluster.RevertAssume(uid)
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone, Node: node, Pod: p})
	}
}
