package devicetaint

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"clusterctl/daemons/api"
	"clusterctl/daemons/controllers/loop"
)

// reportInterval is the minimum time between two updates of a rule's status.
const reportInterval = 10 * time.Second

// ruleImpact holds what a rule affects, assuming that its effect is NoExecute.
type ruleImpact struct {
	published, allocated int
	pods, namespaces     int // that have yet to be evicted
}

// evictions counts, by rule UID, the pods evicted since this process started.
type evictions struct {
	mu     sync.Mutex
	counts map[types.UID]int
}

func (e *evictions) count(rule types.UID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[rule]
}

func (e *evictions) add(rule types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[types.UID]int{}
	}
	e.counts[rule]++
}

func (e *evictions) delete(rule types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.counts, rule)
}

// isAffected reports whether a rule with the effect NoExecute evicts pods that use a claim, now or later.
func isAffected(rule *resourcev1.DeviceTaintRule, claim *resourcev1.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	taint := rule.Spec.Taint
	taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	return slices.ContainsFunc(
		claim.Status.Allocation.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool {
			if !api.TaintsDevice(rule, r.Driver, r.Pool, r.Device) {
				return false
			}
			_, ever := toleratedUntil(r.Tolerations, &taint)
			return ever
		},
	)
}

// impactOf computes what a rule affects. usedBy returns the pods that use a claim and are not being deleted.
func impactOf(
	rule *resourcev1.DeviceTaintRule,
	claims []*resourcev1.ResourceClaim,
	pools map[[2]string][]*resourcev1.Device,
	usedBy func(*resourcev1.ResourceClaim) []*corev1.Pod,
) (r ruleImpact) {
	for pool, devices := range pools {
		for _, d := range devices {
			if api.TaintsDevice(rule, pool[0], pool[1], d.Name) {
				r.published++
			}
		}
	}
	pods, namespaces := sets.New[types.UID](), sets.New[string]()
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, d := range claim.Status.Allocation.Devices.Results {
			if api.TaintsDevice(rule, d.Driver, d.Pool, d.Device) {
				r.allocated++
			}
		}
		if !isAffected(rule, claim) {
			continue
		}
		for _, pod := range usedBy(claim) {
			pods.Insert(pod.UID)
			namespaces.Insert(pod.Namespace)
		}
	}
	r.pods, r.namespaces = pods.Len(), namespaces.Len()
	return r
}

// progressCondition returns a rule's condition, without its transition time.
func progressCondition(rule *resourcev1.DeviceTaintRule, r ruleImpact, evicted int) metav1.Condition {
	c := metav1.Condition{
		Type:               resourcev1.DeviceTaintConditionEvictionInProgress,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: rule.Generation,
	}
	where := countText(r.namespaces, "namespace", "different namespaces")
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		switch {
		case r.pods > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = countText(r.pods, "pod needs", "pods need") + " to be evicted in " + where + "."
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		c.Message = fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute. "+
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
			countText(r.published, "published device", "published devices"), countText(r.allocated, "allocated device",
				"allocated devices"), countText(r.pods, "pod", "pods"), where)
	default:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if evicted > 0 {
		if c.Message != "" {
			c.Message += " "
		}
		c.Message += countText(evicted, "pod", "pods") + " evicted since starting the controller."
	}
	return c
}

func countText(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// report updates a rule's status, unless that was done less than reportInterval ago. For a rule without effect it does
// so once.
func (t *controller) report(ctx context.Context, name string) error {
	rule, err := t.rules.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	now := t.Now()
	i := slices.IndexFunc(rule.Status.Conditions,
		func(c metav1.Condition) bool { return c.Type == resourcev1.DeviceTaintConditionEvictionInProgress })
	var before metav1.Condition
	if i >= 0 {
		before = rule.Status.Conditions[i]
		if before.ObservedGeneration == rule.Generation {
			if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNone {
				return nil
			}
			if left := reportInterval - now.Sub(before.LastTransitionTime.Time); left > 0 {
				t.reports.AddAfter(name, left)
				return nil
			}
		}
	}
	found := t.impact(rule)
	if found.pods > 0 && rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
		t.reports.AddAfter(name, reportInterval) // no event of this rule marks the eviction of the last pod
	}
	after := progressCondition(rule, found, t.evicted.count(rule.UID))
	if after.LastTransitionTime = before.LastTransitionTime; after == before {
		return nil
	}
	after.LastTransitionTime = metav1.NewTime(now)
	updated := rule.DeepCopy()
	if i >= 0 {
		updated.Status.Conditions[i] = after
	} else {
		updated.Status.Conditions = append(updated.Status.Conditions, after)
	}
	if _, err := t.Client.ResourceV1().DeviceTaintRules().UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of DeviceTaintRule %s: %w", name, err)
	}
	return nil
}

func (t *controller) impact(rule *resourcev1.DeviceTaintRule) ruleImpact {
	pools := map[[2]string][]*resourcev1.Device{}
	for _, obj := range t.slices.List() {
		if s, ok := obj.(*resourcev1.ResourceSlice); ok {
			if pool := [2]string{s.Spec.Driver, s.Spec.Pool.Name}; pools[pool] == nil {
				pools[pool] = t.devicesOf(pool[0], pool[1])
			}
		}
	}
	var claims []*resourcev1.ResourceClaim
	for _, obj := range t.claims.List() {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
			claims = append(claims, claim)
		}
	}
	return impactOf(rule, claims, pools, t.usedBy)
}

// usedBy returns the pods that use a claim and are not being deleted.
func (t *controller) usedBy(claim *resourcev1.ResourceClaim) (pods []*corev1.Pod) {
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup != "" || user.Resource != "pods" {
			continue
		}
		if pod, err := t.pods.Pods(claim.Namespace).Get(user.Name); err == nil && pod.UID == user.UID &&
			loop.IsActive(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}
