package workload

import (
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/provision/plan"
)

func waitingPod(name, made string, status map[string]any) *unstructured.Unstructured {
	p := newItem("v1", "Pod", "shop", name, map[string]any{"status": status})
	p.SetLabels(map[string]string{"app": "web"})
	_ = unstructured.SetNestedField(p.Object, made, "metadata", "creationTimestamp")
	return p
}

func containerIn(state, last map[string]any) map[string]any {
	return map[string]any{"containerStatuses": []any{map[string]any{"name": "web", "state": state, "lastState": last}}}
}

func inWait(reason, message string) map[string]any {
	return map[string]any{"waiting": map[string]any{"reason": reason, "message": message}}
}

// A wait reports what it waits for, during the wait and at its timeout.
// Proves P03.
func TestWaitsReportWhyPodsAreBlocked(t *testing.T) {
	const early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	unscheduled := map[string]any{
		"conditions": []any{map[string]any{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
			"message": "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: " +
				"}. preemption: none."}},
	}
	running := containerIn(map[string]any{"running": map[string]any{}}, nil)
	for name, test := range map[string]struct {
		pods []*unstructured.Unstructured
		want string
	}{
		"no node": {[]*unstructured.Unstructured{waitingPod("web-1", early, unscheduled)},
			"; web-1 has no node: 0/2 nodes are available: 2 node(s) had untolerated taint " +
				"{node.kubernetes.io/disk-pressure: }. preemption: none"},
		"the newest first": {[]*unstructured.Unstructured{waitingPod("web-1", early, unscheduled),
			waitingPod("web-2", late, containerIn(inWait("ImagePullBackOff", "Back-off\npulling image"), nil))},
			"; web-2 has container web in ImagePullBackOff: Back-off pulling image"},
		"it ended": {[]*unstructured.Unstructured{waitingPod("web-1", early,
			containerIn(inWait("CrashLoopBackOff", "back-off 10s"),
				map[string]any{"terminated": map[string]any{"exitCode": int64(3)}}))},
			"; web-1 has container web in CrashLoopBackOff, it ended with 3"},
		"on its way": {[]*unstructured.Unstructured{waitingPod("web-1", early,
			containerIn(inWait("ContainerCreating", ""), nil)), waitingPod("web-2", early, running)}, ""},
		"no pods": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				deployment := newItem("apps/v1", "Deployment", "shop", "web", map[string]any{
					"spec": map[string]any{
						"replicas": int64(2),
						"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
					},
					"status": map[string]any{"updatedReplicas": int64(2), "replicas": int64(2)},
				})
				l, client := newFakeLive(deployment)
				for _, p := range test.pods {
					if err := client.Tracker().Add(p); err != nil {
						t.Fatal(err)
					}
				}
				var messages []string
				err := l.wait(t.Context(), []Desired{{Address: "workload.web", Object: deployment}},
					func(o plan.Object) { messages = append(messages, o.Note) })
				want := "0 of 2 pods are available" + test.want
				if err == nil || !strings.Contains(err.Error(), "does not become healthy: "+want+". See kubectl") {
					t.Errorf("the wait ended with %v, want %q in it", err, want)
				}
				if messages[0] != "0 of 2 pods are available" || messages[len(messages)-1] != want {
					t.Errorf("said %q", messages)
				}
			})
		})
	}
}
