package scheduler

import (
	"context"
	"errors"
	"net/http"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/scheduler/plugin"
)

// unknownOutcomeError is the error of a write that may have been carried out: its answer was lost or late.
type unknownOutcomeError struct{ error }

func (u *unknownOutcomeError) Unwrap() error { return u.error }

// isRefusedWrite reports whether the API server answered that it did not carry out a write.
func isRefusedWrite(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}

// isClaimAbsent reports whether an error is the API server's answer that exactly this claim does not exist. Any other
// 404 proves nothing. Devices that are wrongly considered free would be allocated twice.
func isClaimAbsent(err error, claim *resourcev1.ResourceClaim) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "resourceclaims" && details.Name == claim.Name
}

// outcomeInterval is the interval between reads of a claim whose allocation is in doubt.
const outcomeInterval = time.Second

// awaitOutcome reads a claim until it is known whether its allocation was written. The devices stay in use until then.
// A claim without an allocation counts as an answer only after writeTimeout, because a delayed write may still arrive.
func (s *scheduler) awaitOutcome(ctx context.Context, claim *resourcev1.ResourceClaim) {
	for start := time.Now(); ; {
		s.mu.Lock()
		doubted := s.cluster.Devices.IsUncertain(claim)
		s.mu.Unlock()
		if !doubted || s.resolveOutcome(ctx, claim, time.Since(start) >= writeTimeout) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(outcomeInterval):
		}
	}
}

// resolveOutcome reads a claim once, and reports whether the doubt has ended. isLate reports that no write of the claim
// can arrive any more.
func (s *scheduler) resolveOutcome(ctx context.Context, claim *resourcev1.ResourceClaim, isLate bool) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now, err := s.api.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	isGone := isClaimAbsent(err, claim) || err == nil && now.UID != claim.UID
	if err != nil && !isGone {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !isGone && now.Status.Allocation != nil:
		s.cluster.Devices.MarkWritten(now)
	case isGone || isLate:
		s.cluster.Devices.ConfirmUnwritten(claim)
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.DevicesChanged})
	default:
		return false
	}
	return true
}
