package kubelet

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The events of a node show when its kubelet started, how it became ready and not ready, and when it was cordoned.
func TestNodeEventsExplainTheState(t *testing.T) {
	n := newNode(t)
	n.options.Simulated = false // simulated nodes record fewer events
	n.file.NodeStatusUpdateFrequency = metav1.Duration{Duration: 20 * time.Millisecond}
	var down atomic.Bool
	down.Store(true)
	n.runtime.Fail = func(call string) error {
		if call == "Status" && down.Load() {
			return errors.New("it is down")
		}
		return nil
	}
	n.start()
	wasRecorded := func(reason string) func() bool {
		return func() bool {
			list, err := n.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
				return e.Reason == reason && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "n1" &&
					string(e.InvolvedObject.UID) == "n1" &&
					e.Source.Component == "kubelet"
			})
		}
	}
	for _, reason := range []string{"Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure",
		"NodeHasSufficientPID"} {
		n.until("the node to tell "+reason, wasRecorded(reason))
	}
	down.Store(false)
	n.until("the node to tell that it is ready", wasRecorded("NodeReady"))
	down.Store(true)
	n.until("the node to tell that it is not ready", wasRecorded("NodeNotReady"))
	node, err := n.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	if _, err := n.client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the node to tell that it is cordoned", wasRecorded("NodeNotSchedulable"))
}
