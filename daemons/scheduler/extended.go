package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/device"
	"clusterctl/daemons/scheduler/plugin"
)

// createExtendedClaim creates the claim object for a pod's extended resources. From then on, the allocation counts for
// that object.
func (s *scheduler) createExtendedClaim(ctx context.Context, b *binding) (*resourcev1.ResourceClaim, error) {
	decided := b.devices.extendedClaim.Claim
	claim := decided.DeepCopy()
	claim.Name, claim.UID = "", ""
	created, err := s.api.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources: %w", err)
	}
	b.devices.createdClaim = created
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.Devices.RecordCreated(decided.UID, created)
	for i, a := range b.devices.allocated {
		if a.Claim == decided {
			b.devices.allocated[i] = &device.Allocation{Claim: created, Result: a.Result, Shares: a.Shares}
		}
	}
	return created, nil
}

// reportExtendedClaim writes to a pod's status which claim was created for its extended resources, and what each
// container gets. If none was created and the status names one of an earlier attempt, it removes that.
func (s *scheduler) reportExtendedClaim(ctx context.Context, b *binding) error {
	var status *corev1.PodExtendedResourceClaimStatus
	if b.devices.createdClaim != nil {
		status = &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: b.devices.createdClaim.Name,
			RequestMappings:   b.devices.extendedClaim.Mappings,
		}
	} else if !b.pod.Extended {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": b.pod.UID}, "status": map[string]any{"extendedResourceClaimStatus": status},
	})
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	_, err = s.api.CoreV1().
		Pods(b.pod.Namespace).
		Patch(ctx, b.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the claim for extended resources: %w", err)
	}
	return nil
}

// awaitClaimInWatch reads a claim that was created here until the watch shows it. If the claim is deleted before that,
// the watch never shows it, so its devices are released.
func (s *scheduler) awaitClaimInWatch(ctx context.Context, claim *resourcev1.ResourceClaim) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(outcomeInterval):
		}
		s.mu.Lock()
		unseen := s.cluster.Devices.IsAwaitingWatch(claim)
		s.mu.Unlock()
		if !unseen {
			return
		}
		now, err := s.api.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if !isClaimAbsent(err, claim) && (err != nil || now.UID == claim.UID) {
			continue
		}
		s.mu.Lock()
		if s.cluster.Devices.IsAwaitingWatch(claim) {
			s.cluster.Devices.ReleaseDeleted(claim)
			s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DevicesChanged})
		}
		s.mu.Unlock()
		return
	}
}

// discardLeftOverClaim deletes the claim that an earlier attempt created for a pod's extended resources, so that the
// pod can be tried again. Equal pods need not wait for that.
func (s *scheduler) discardLeftOverClaim(ctx context.Context, pod *cluster.Pod, claim *resourcev1.ResourceClaim) {
	if claim == nil {
		return
	}
	s.queue.moveToOwnClass(pod.UID)
	s.binds.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		s.deleteExtendedClaim(ctx, pod, claim)
		return nil
	})
}

// moveToOwnClass moves a refused pod to a class of its own and lets equal pods be tried at once: the reason for its
// refusal does not apply to them.
func (q *queue) moveToOwnClass(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[uid]
	if it == nil || it.pos < 0 || it.class.part != partParked || it.class.key == string(uid) {
		return
	}
	equals := it.class
	alone := &class{
		key:           string(uid),
		priority:      it.pod.Priority,
		sample:        it.pod,
		oldest:        it.added,
		members:       []*item{it},
		waitingCount:  1,
		refusals:      equals.refusals,
		retryAt:       equals.retryAt,
		parkedAt:      equals.parkedAt,
		helpfulEvents: equals.helpfulEvents,
		refusal:       equals.refusal,
	}
	q.leaveClass(it)
	it.class, it.pos = alone, 0
	q.classes[alone.key] = alone
	q.park(alone)
	if equals.waitingCount > 0 {
		equals.refusals, equals.retryAt, equals.refusal = equals.refusals-1, q.now(), nil
		q.activate(equals, "")
	}
}

// deleteExtendedClaim deletes the claim for a pod's extended resources and its finalizer. No other pod uses it.
func (s *scheduler) deleteExtendedClaim(ctx context.Context, pod *cluster.Pod, claim *resourcev1.ResourceClaim) {
	api := s.api.ResourceV1().ResourceClaims(claim.Namespace)
	remove := func() error {
		now, err := api.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID == claim.UID && slices.Contains(now.Finalizers, resourcev1.Finalizer) {
			now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
			if _, err := api.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return api.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	}
	err := remove()
	for tries := 0; apierrors.IsConflict(err) && tries < maxConflictRetries; tries++ {
		err = remove()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		s.log.Warn("delete the claim for a pod's extended resources", "claim", claim.Namespace+"/"+claim.Name, "pod",
			pod.Key(), "error", err)
	}
}

// leftOverClaim returns the claim of an earlier attempt if it prevented the pod from being scheduled.
func leftOverClaim(task *plugin.Task, p Placement) *resourcev1.ResourceClaim {
	if p.Refusals[plugin.ClaimLeftOver] == 0 {
		return nil
	}
	return task.Devices.CreatedClaim(task.Pod)
}

// extendedResources returns the extended resources that a class provides.
func extendedResources(c *resourcev1.DeviceClass) []string {
	if c == nil {
		return nil
	}
	names := []string{resourcev1.ResourceDeviceClassPrefix + c.Name}
	if c.Spec.ExtendedResourceName != nil {
		names = append(names, *c.Spec.ExtendedResourceName)
	}
	return names
}
