package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// Times of waiting for health.
const (
	healthTimeout  = 5 * time.Minute
	healthInterval = 150 * time.Millisecond
	// silenceTimeout is how long the API may not answer. A changing control plane is back long before.
	silenceTimeout = time.Minute
	// podCheckInterval is how long an object may take before its pods are checked for a reason, and the interval of
	// these checks.
	podCheckInterval = 2 * time.Second
)

// Wait waits until all objects with replicas are healthy. It returns an error for a Job that has failed, but does not
// wait for running Jobs.
func (l *Live) Wait(ctx context.Context, c *config.Cluster, report func(plan.Object)) error {
	desired, err := Objects(c)
	if err != nil {
		return err
	}
	for i := range desired {
		desired[i].HasDependents = false // they have been applied
	}
	return l.wait(ctx, desired, report)
}

// wait waits until all objects with replicas are healthy, and until all Jobs with dependents have completed.
func (l *Live) wait(ctx context.Context, desired []Desired, report func(plan.Object)) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout+longestJob(desired))
	defer cancel()
	for _, d := range desired {
		if !slices.Contains(awaitedKinds, d.Object.GetKind()) {
			continue
		}
		if err := l.waitFor(ctx, d, report); err != nil {
			return err
		}
	}
	return nil
}

// awaitedKinds are the kinds that apply waits for.
var awaitedKinds = []string{"Deployment", "StatefulSet", "DaemonSet", jobKind}

const jobKind = "Job"

// longestJob returns the longest deadline of the Jobs with dependents.
func longestJob(desired []Desired) (longest time.Duration) {
	for _, d := range desired {
		if d.Object.GetKind() == jobKind && d.HasDependents {
			limit, _, _ := unstructured.NestedInt64(d.Object.Object, "spec", "activeDeadlineSeconds")
			longest = max(longest, time.Duration(min(limit, maxJobSeconds))*time.Second)
		}
	}
	return longest
}

// maxJobSeconds limits the deadline of a Job for which apply waits.
const maxJobSeconds = 7 * 24 * 60 * 60

// waitFor waits until an object is healthy, or until a Job with dependents has completed.
func (l *Live) waitFor(ctx context.Context, d Desired, report func(plan.Object)) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	kind := d.Object.GetKind()
	o := plan.Object{Address: d.Address, Kind: kind, Name: fullName(d.Object.GetNamespace(), d.Object.GetName())}
	answeredAt, checkedAt, reason := time.Now(), time.Now(), ""
	for reported := ""; ; {
		live, err := l.get(ctx, d.reference())
		missing := "is not there"
		switch {
		case err != nil && ctx.Err() != nil:
			missing = reported // report the last known reason at the timeout
		case err != nil:
			missing = err.Error()
		case live != nil:
			answeredAt = time.Now()
			if failure := jobFailure(live); failure != "" {
				return fmt.Errorf("%s: %s %s %s%s", d.Address, kind, o.Name, failure, l.blockingReason(ctx, live))
			}
			if missing = d.missing(live); missing != "" {
				if time.Since(checkedAt) > podCheckInterval {
					checkedAt, reason = time.Now(), l.blockingReason(ctx, live)
				}
				missing += reason
			}
		case kind == jobKind && !d.HasDependents:
			return nil // a finished Job can have been deleted because of its time to live
		default:
			answeredAt = time.Now()
		}
		if time.Since(answeredAt) > silenceTimeout {
			return fmt.Errorf("%s: whether %s %s is healthy is not known, since the API does not answer: %w",
				d.Address, kind, o.Name, err)
		}
		if missing == "" {
			return nil
		}
		if missing != reported {
			reported = missing
			o.Note = missing
			report(o)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %s %s does not become healthy: %s. See kubectl describe, and kubectl get "+
				"events, in its namespace", d.Address, kind, o.Name, missing)
		case <-tick.C:
		}
	}
}

// missing returns what a live object is waiting for, or "".
func (d Desired) missing(live *unstructured.Unstructured) string {
	if live.GetKind() != jobKind {
		return DescribeUnhealthy(live)
	}
	if done, _ := jobCondition(live, batchv1.JobComplete); done || !d.HasDependents {
		return ""
	}
	if suspended, _, _ := unstructured.NestedBool(live.Object, "spec", "suspend"); suspended {
		return "suspended"
	}
	succeeded, _, _ := unstructured.NestedInt64(live.Object, "status", "succeeded")
	completions, isSet, _ := unstructured.NestedInt64(live.Object, "spec", "completions")
	if !isSet {
		completions = 1
	}
	return fmt.Sprintf("%d of %d completions", succeeded, completions)
}

// jobFailure returns why a Job has failed. It returns "" for other Jobs and other kinds.
func jobFailure(live *unstructured.Unstructured) string {
	if live.GetKind() != jobKind {
		return ""
	}
	if failed, why := jobCondition(live, batchv1.JobFailed); failed {
		return "has failed: " + why
	}
	return ""
}

// jobCondition reports whether a condition of a Job is true, and returns its explanation.
func jobCondition(live *unstructured.Unstructured, kind batchv1.JobConditionType) (isTrue bool, why string) {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == string(kind) && m["status"] == "True" {
			reason, _ := m["reason"].(string)
			message, _ := m["message"].(string)
			return true, oneLine(strings.TrimSuffix(reason+": "+message, ": "))
		}
	}
	return false, ""
}

// DescribeUnhealthy returns what a Deployment, StatefulSet or DaemonSet is waiting for, or "".
func DescribeUnhealthy(live *unstructured.Unstructured) string {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(live.Object, fields...)
		return n
	}
	if number("status", "observedGeneration") < live.GetGeneration() {
		return "not yet seen by its controller"
	}
	want, updated, available := number("spec", "replicas"), number("status", "updatedReplicas"), number("status",
		"availableReplicas")
	switch live.GetKind() {
	case "DaemonSet":
		want, updated, available = number("status", "desiredNumberScheduled"), number("status",
			"updatedNumberScheduled"), number("status", "numberAvailable")
	default:
		if _, set, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); !set {
			want = 1
		}
	}
	switch {
	case updated < want:
		return fmt.Sprintf("%d of %d pods are of the new version", updated, want)
	case live.GetKind() == "Deployment" && number("status", "replicas") > updated:
		return fmt.Sprintf("%d old pods are still there", number("status", "replicas")-updated)
	case available < want:
		return fmt.Sprintf("%d of %d pods are available", available, want)
	}
	return ""
}
