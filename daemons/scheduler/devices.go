package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/device"
	"clusterctl/daemons/scheduler/plugin"
)

// devices holds what has to be written about a pod's ResourceClaims.
type devices struct {
	claims    []*resourcev1.ResourceClaim // claims to reserve for the pod
	allocated []*device.Allocation        // those of the claims that get devices
	// the last of the claims, if the node provides the pod's extended resources as devices
	extendedClaim *plugin.ExtendedClaim
	createdClaim  *resourcev1.ResourceClaim // the object that was created for special
	err           error                     // why the devices are not available after all
}

// assumeDevices selects the devices for a pod's claims and counts them as allocated. The filters have just accepted the
// node.
func (s *scheduler) assumeDevices(task *plugin.Task, n *cluster.Node) devices {
	claims, refused := plugin.ClaimsOf(task)
	if refused != nil {
		return devices{err: errors.New(refused.Reasons[0])}
	}
	out := devices{claims: claims.All}
	special, plan, refused := claims.PlanFor(task, n)
	if refused != nil {
		return devices{err: errors.New(refused.Reasons[0])}
	}
	if out.extendedClaim = special; special != nil {
		special.Claim.UID = types.UID(uuid.NewString())
		out.claims = append(out.claims[:len(out.claims):len(out.claims)], special.Claim)
	}
	if plan != nil {
		out.allocated, out.err = plan.AllocateOn(n.Object(), s.cluster.Devices.Catalog, s.cluster.Devices.Use)
		for _, a := range out.allocated {
			a.SetShareIDs(func() types.UID { return types.UID(uuid.NewString()) })
		}
		s.cluster.Devices.Assume(out.allocated)
	}
	return out
}

// maxConflictRetries is the maximum number of times that a claim is read again after a conflict.
const maxConflictRetries = 5

// reserve writes the allocations of a pod's claims and reserves them for the pod. ctx bounds the writes. life bounds
// the reads that determine the outcome of a write whose answer was lost.
func (s *scheduler) reserve(ctx, life context.Context, b *binding) error {
	if b.devices.err != nil {
		return b.devices.err
	}
	for i, claim := range b.devices.claims {
		if b.devices.extendedClaim != nil && claim == b.devices.extendedClaim.Claim {
			var err error
			if claim, err = s.createExtendedClaim(ctx, b); err != nil {
				return err
			}
			b.devices.claims[i] = claim
		}
		var result *resourcev1.AllocationResult
		if i := slices.IndexFunc(b.devices.allocated,
			func(a *device.Allocation) bool { return a.Claim.UID == claim.UID }); i >= 0 {
			result = b.devices.allocated[i].Result
		}
		written, err := s.updateClaim(ctx, claim,
			func(c *resourcev1.ResourceClaim) error { return setReservation(c, b.pod, result) })
		var lost *unknownOutcomeError
		if result != nil && errors.As(err, &lost) {
			s.mu.Lock()
			s.cluster.Devices.MarkUncertain(claim)
			s.mu.Unlock()
			s.resuming.Go(func() { s.awaitOutcome(life, claim) })
		}
		if err != nil {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		if result != nil {
			s.mu.Lock()
			s.cluster.Devices.MarkWritten(written)
			unseen := s.cluster.Devices.IsAwaitingWatch(written)
			s.mu.Unlock()
			if unseen {
				s.resuming.Go(func() { s.awaitClaimInWatch(life, written) })
			}
		}
	}
	return s.reportExtendedClaim(ctx, b)
}

// setReservation updates a claim's status: it reserves the claim for the pod, and sets the allocation if result is not
// nil.
func setReservation(c *resourcev1.ResourceClaim, pod *cluster.Pod, result *resourcev1.AllocationResult) error {
	switch {
	case c.DeletionTimestamp != nil && !plugin.IsReservedFor(c, pod.UID):
		return errors.New("it was deleted in the meantime")
	case result != nil && c.Status.Allocation != nil:
		return errors.New("another process allocated devices to it in the meantime")
	case result == nil && c.Status.Allocation == nil:
		return errors.New("it has lost its devices in the meantime")
	}
	if result != nil {
		c.Status.Allocation = result.DeepCopy()
	}
	if !plugin.IsReservedFor(c, pod.UID) {
		if len(c.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize {
			return fmt.Errorf("it is reserved for %d pods already, which is the most that a claim may have",
				len(c.Status.ReservedFor))
		}
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return nil
}

// updateClaim applies change to a claim and writes its status, repeating it with a fresh object after conflicts. A
// claim that gets devices gets a finalizer, which holds it until they are free.
func (s *scheduler) updateClaim(
	ctx context.Context,
	claim *resourcev1.ResourceClaim,
	change func(*resourcev1.ResourceClaim) error,
) (*resourcev1.ResourceClaim, error) {
	api := s.api.ResourceV1().ResourceClaims(claim.Namespace)
	now := claim.DeepCopy()
	for tries := 0; ; tries++ {
		if tries > 0 {
			var err error
			if now, err = api.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return nil, err
			}
			if now.UID != claim.UID {
				return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), claim.Name)
			}
		}
		before := now.DeepCopy()
		if err := change(now); err != nil {
			if tries == 0 {
				continue // the cached claim may be stale
			}
			return nil, err
		}
		written, err := s.writeClaim(ctx, before, now)
		if apierrors.IsConflict(err) && tries < maxConflictRetries {
			continue
		}
		return written, err
	}
}

func (s *scheduler) writeClaim(
	ctx context.Context,
	before, now *resourcev1.ResourceClaim,
) (*resourcev1.ResourceClaim, error) {
	api := s.api.ResourceV1().ResourceClaims(now.Namespace)
	if now.Status.Allocation != nil && !slices.Contains(before.Finalizers, resourcev1.Finalizer) {
		kept := before.DeepCopy()
		kept.Finalizers = append(kept.Finalizers, resourcev1.Finalizer)
		written, err := api.Update(ctx, kept, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		now.ObjectMeta = written.ObjectMeta
	}
	written, err := api.UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if err != nil && !isRefusedWrite(err) {
		return nil, &unknownOutcomeError{err}
	}
	return written, err
}

// unreserve removes a pod's reservations after it could not be bound. Allocated claims retain their devices, since the
// pod is tried again.
func (s *scheduler) unreserve(ctx context.Context, b *binding) {
	if len(b.devices.claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		writeTimeout) // the failure may be that ctx has expired
	defer cancel()
	for _, claim := range b.devices.claims {
		if claim == b.devices.createdClaim {
			s.deleteExtendedClaim(ctx, b.pod, claim)
			continue
		}
		if b.devices.extendedClaim != nil && claim == b.devices.extendedClaim.Claim {
			continue // its object was not created
		}
		_, err := s.updateClaim(ctx, claim, func(c *resourcev1.ResourceClaim) error {
			if !plugin.IsReservedFor(c, b.pod.UID) {
				return errNothingToDo
			}
			c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor,
				func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == b.pod.UID })
			return nil
		})
		if err != nil && !errors.Is(err, errNothingToDo) && !apierrors.IsNotFound(err) {
			s.log.Warn("take back the reservation of a claim", "claim", claim.Namespace+"/"+claim.Name, "pod",
				b.pod.Key(), "error", err)
		}
	}
}

var errNothingToDo = errors.New("nothing to do")

// unusableAllocation returns a claim of the pod whose devices cannot be used on the nodes that would fit, and that no
// other pod uses.
func unusableAllocation(task *plugin.Task, p Placement) *resourcev1.ResourceClaim {
	if len(task.Pod.Devices) == 0 || p.Refusals[plugin.DevicesUnreachable] == 0 {
		return nil
	}
	claims, refused := plugin.ClaimsOf(task)
	if refused != nil {
		return nil
	}
	for _, c := range claims.Allocated {
		users := len(c.Status.ReservedFor)
		if c.Status.Allocation.NodeSelector != nil &&
			(users == 0 || users == 1 && plugin.IsReservedFor(c, task.Pod.UID)) {
			return c
		}
	}
	return nil
}

// deallocate frees the devices of a claim, so that its pod can get others elsewhere.
func (s *scheduler) deallocate(ctx context.Context, pod *cluster.Pod, claim *resourcev1.ResourceClaim) {
	if claim == nil {
		return
	}
	s.binds.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		freed := claim.DeepCopy() // the version that was checked: a newer one may be in use
		freed.Status.ReservedFor, freed.Status.Allocation, freed.Status.Devices = nil, nil, nil
		_, err := s.api.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, freed, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.log.Warn("free the devices of a claim", "claim", claim.Namespace+"/"+claim.Name, "pod", pod.Key(),
				"error", err)
		} else if err == nil {
			s.log.Info("freed the devices of a claim for a pod that cannot go where they "+
				"are", "claim", claim.Namespace+"/"+claim.Name, "pod", pod.Key())
		}
		return nil
	})
}

func (s *scheduler) deviceUpdated(obj any, action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := plugin.ClusterEvent{EventKind: plugin.DevicesChanged, Device: obj, Action: action}
	if c, ok := obj.(*resourcev1.ResourceClaim); ok {
		old := s.cluster.Devices.Claim(c.Namespace, c.Name)
		what.Claim = c.Namespace + "/" + c.Name
		what.IsFreed = old != nil && old.Status.Allocation != nil && (c.Status.Allocation == nil || c.UID != old.UID)
	}
	if c, ok := obj.(*resourcev1.DeviceClass); ok {
		what.Extended = append(extendedResources(s.cluster.Devices.Class(c.Name)), extendedResources(c)...)
	}
	s.cluster.Devices.Set(obj)
	s.activateHelped(what)
}

func (s *scheduler) deviceDeleted(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := plugin.ClusterEvent{EventKind: plugin.DevicesChanged, Device: obj, Action: plugin.ActionDelete}
	if c, ok := obj.(*resourcev1.ResourceClaim); ok {
		what.Claim, what.IsFreed = c.Namespace+"/"+c.Name, true
	}
	if c, ok := obj.(*resourcev1.DeviceClass); ok {
		what.Extended = extendedResources(c) // another class may provide the resource now
	}
	s.cluster.Devices.Delete(obj)
	s.activateHelped(what)
}
