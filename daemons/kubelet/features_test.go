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
	was := k.agent.MeasureStatus(t.Context(), &corev1.NodeStatus{})
	if len(was.RuntimeHandlers) == 0 || was.Features == nil {
		t.Fatalf("handlers %v, features %v", was.RuntimeHandlers, was.Features)
	}
	n.runtime.Fail = func(call string) error {
		if call == "Status" {
			return errors.New("it is down")
		}
		return nil
	}
	is := k.agent.MeasureStatus(t.Context(), &was)
	if len(is.RuntimeHandlers) != len(was.RuntimeHandlers) || is.Features == nil {
		t.Errorf("handlers %v, features %v", is.RuntimeHandlers, is.Features)
	}
	ready := is.Conditions[len(is.Conditions)-1]
	if ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionFalse ||
		!strings.Contains(ready.Message, "container runtime is down") {
		t.Errorf("it says %+v", ready)
	}
}
