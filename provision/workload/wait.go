package workload

import (
	"context"
	"fmt"
	"time"

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

// Wait waits until all objects with replicas are healthy.
func (l *Live) Wait(ctx context.Context, c *config.Cluster, report func(plan.Object)) error {
	desired, err := Objects(c)
	if err != nil {
		return err
	}
	return l.wait(ctx, desired, report)
}

func (l *Live) wait(ctx context.Context, desired []Desired, report func(plan.Object)) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for _, d := range desired {
		kind := d.Object.GetKind()
		if kind != "Deployment" && kind != "StatefulSet" && kind != "DaemonSet" {
			continue
		}
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
				if missing = DescribeUnhealthy(live); missing != "" {
					if time.Since(checkedAt) > podCheckInterval {
						checkedAt, reason = time.Now(), l.blockingReason(ctx, live)
					}
					missing += reason
				}
			default:
				answeredAt = time.Now()
			}
			if time.Since(answeredAt) > silenceTimeout {
				return fmt.Errorf("%s: whether %s %s is healthy is not known, since the API does not answer: %w",
					d.Address, kind, o.Name, err)
			}
			if missing == "" {
				break
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
	return nil
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
