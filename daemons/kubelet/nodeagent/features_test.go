package nodeagent

import (
	"fmt"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNodeStatusReportsTheFeaturesOfItsRuntime(t *testing.T) {
	handlers := runtimeHandlers(&criapi.StatusResponse{RuntimeHandlers: []*criapi.RuntimeHandler{
		{Name: "runc", Features: &criapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}},
		{Name: "gvisor"},
		{Name: "", Features: &criapi.RuntimeHandlerFeatures{UserNamespaces: true}},
	}})
	var got []string
	for _, h := range handlers {
		got = append(got, fmt.Sprintf("%q %v %v", h.Name, *h.Features.RecursiveReadOnlyMounts,
			*h.Features.UserNamespaces))
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
