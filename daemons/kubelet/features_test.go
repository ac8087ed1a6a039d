package kubelet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNodeStatusReportsTheFeaturesOfItsRuntime(t *testing.T) {
	said := runtimeHandlers(&criapi.StatusResponse{RuntimeHandlers: []*criapi.RuntimeHandler{
		{Name: "runc", Features: &criapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}},
		{Name: "gvisor"},
		{Name: "", Features: &criapi.RuntimeHandlerFeatures{UserNamespaces: true}},
	}})
	var got []string
	for _, h := range said {
		got = append(
			got,
			fmt.Sprintf("%q %v %v", h.Name, *h.Features.RecursiveReadOnlyMounts, *h.Features.UserNamespaces),
		)
	}
	if want := `"" false false, "gvisor" false false, "runc" true false`; strings.Join(got, ", ") != want {
		t.Errorf("handlers %v, want %s", got, want)
	}
	if f := runtimeFeatures(&criapi.StatusResponse{}); f != nil {
		t.Errorf("a runtime that does not say what it can do can %+v", f)
	}
	for _, groups := range []bool{true, false} {
		f := runtimeFeatures(&criapi.StatusResponse{Features: &criapi.RuntimeFeatures{
			SupplementalGroupsPolicy: groups}})
		if f == nil || f.SupplementalGroupsPolicy == nil || *f.SupplementalGroupsPolicy != groups {
			t.Errorf("features %+v", f)
		}
	}
}

// The reported features stay while the runtime does not respond.
func TestRuntimeFeaturesStayWhileTheRuntimeIsUnavailable(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	was := k.measureStatus(t.Context(), &corev1.NodeStatus{})
	if len(was.RuntimeHandlers) == 0 || was.Features == nil {
		t.Fatalf("handlers %v, features %v", was.RuntimeHandlers, was.Features)
	}
	n.runtime.Fail = func(call string) error {
		if call == "Status" {
			return errors.New("it is down")
		}
		return nil
	}
	is := k.measureStatus(t.Context(), &was)
	if len(is.RuntimeHandlers) != len(was.RuntimeHandlers) || is.Features == nil {
		t.Errorf("handlers %v, features %v", is.RuntimeHandlers, is.Features)
	}
	ready := is.Conditions[len(is.Conditions)-1]
	if ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionFalse ||
		!strings.Contains(ready.Message, "container runtime is down") {
		t.Errorf("it says %+v", ready)
	}
}
