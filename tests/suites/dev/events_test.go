package dev

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An event names its controller, because clients select events by it.
// Proves S17.
func TestEventsNameTheControllerThatTheyAreFrom(t *testing.T) {
	ns := createNamespace(t)
	createDeployment(t, ns, 1, nil)
	startJob(t, ns, nil, "true")
	for reason, want := range map[string]string{"ScalingReplicaSet": "deployment-controller",
		"Completed": "job-controller", "Scheduled": "default-scheduler"} {
		waitFor(t, reason, func(ctx context.Context) (bool, any) {
			list, err := sharedClient.CoreV1().
				Events(ns).
				List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",source=" + want})
			if err != nil {
				return false, err
			}
			for _, e := range list.Items {
				if e.ReportingController != want {
					t.Errorf("%s is reported by %q and from %q", reason, e.ReportingController, e.Source.Component)
				}
			}
			return len(list.Items) > 0, "no event of " + want
		})
	}
	created, err := sharedClient.CoreV1().
		Events(ns).
		List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SuccessfulCreate"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range created.Items {
		if want := map[string]string{"ReplicaSet": "replicaset-controller",
			"Job": "job-controller"}[e.InvolvedObject.Kind]; e.Source.Component != want {
			t.Errorf("the event of a pod of a %s is from %q, want %q", e.InvolvedObject.Kind, e.Source.Component, want)
		}
	}
}
