package kubelet

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The reported features stay while the runtime does not respond.
func TestRuntimeFeaturesStayWhileTheRuntimeIsUnavailable(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	before := k.agent.MeasureStatus(t.Context(), &corev1.NodeStatus{})
	if len(before.RuntimeHandlers) == 0 || before.Features == nil {
		t.Fatalf("handlers %v, features %v", before.RuntimeHandlers, before.Features)
	}
	n.runtime.Fail = func(call string) error {
		if call == "Status" {
			return errors.New("it is down")
		}
		return nil
	}
	after := k.agent.MeasureStatus(t.Context(), &before)
	if len(after.RuntimeHandlers) != len(before.RuntimeHandlers) || after.Features == nil {
		t.Errorf("handlers %v, features %v", after.RuntimeHandlers, after.Features)
	}
	ready := after.Conditions[len(after.Conditions)-1]
	if ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionFalse ||
		!strings.Contains(ready.Message, "container runtime is down") {
		t.Errorf("it says %+v", ready)
	}
}
