package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
)

// grantedRights lists what a user may do, as "verb subresource name".
type grantedRights []string

func (r grantedRights) Authorize(_ context.Context, _ api.User, q api.Request) (api.Decision, string, error) {
	if q.GroupVersionResource.Resource == "resourceclaims" && slices.Contains(r, q.Verb+" "+q.Subresource+" "+q.Name) {
		return api.Allow, "", nil
	}
	return api.NoOpinion, "", nil
}

// verbOrigin is the verb of a write.
type verbOrigin string

func (s verbOrigin) Verb() string            { return string(s) }
func (s verbOrigin) Options() runtime.Object { return nil }
func (s verbOrigin) Annotate(string, string) {}
func (s verbOrigin) Audited(bool) bool       { return false }

// Each part of a claim's status needs a right of its own.
// Proves S12.
//
//style:long a table of status changes, with the users and claims that they need
func TestClaimStatusPartsNeedSeparateRights(t *testing.T) {
	claim := func(node string, reserved int, devices ...resourcev1.AllocatedDeviceStatus) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop"}}
		if node != "" {
			c.Status.Allocation = &resourcev1.AllocationResult{
				NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: []corev1.NodeSelectorRequirement{
						{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
					}}}},
			}
		}
		c.Status.ReservedFor = make([]resourcev1.ResourceClaimConsumerReference, reserved)
		c.Status.Devices = devices
		return c
	}
	device := func(driver, state string) resourcev1.AllocatedDeviceStatus {
		return resourcev1.AllocatedDeviceStatus{
			Driver:     driver,
			Conditions: []metav1.Condition{{Type: "Ready", Reason: state}},
		}
	}
	on := func(node string) api.User {
		return api.User{
			Name:  "system:serviceaccount:gpu:driver",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}},
		}
	}
	local, anywhere := grantedRights{"associated-node:update driver a"}, grantedRights{"arbitrary-node:update driver a"}
	const binding, driver = "resourceclaims/binding", "resourceclaims/driver"
	for name, c := range map[string]struct {
		user          api.User
		rights        grantedRights
		after, before *resourcev1.ResourceClaim
		verb          string
		refusal       string
	}{
		"nothing": {api.User{}, nil, claim("n", 1, device("a", "x")),
			claim("n", 1, device("a", "x")), "update", ""},
		"allocates without": {api.User{}, local, claim("n", 0), claim("", 0), "update", binding},
		"reserves without":  {api.User{}, anywhere, claim("n", 1), claim("n", 0), "update", binding},
		"allocates": {api.User{}, grantedRights{"update binding c"}, claim("n", 1), claim("", 0),
			"update", ""},
		"allocates by a patch without": {api.User{}, grantedRights{"update binding c"}, claim("n", 1), claim("", 0),
			"patch",
			"patch permission on " + binding},
		"allocates by a patch": {api.User{}, grantedRights{"patch binding c"}, claim("n", 1), claim("", 0), "patch",
			""},
		"reports without": {on("n"), grantedRights{"update binding c"}, claim("n", 0, device("a", "x")),
			claim("n", 0), "update", driver},
		"reports from its node": {on("n"), local, claim("n", 0, device("a", "y")),
			claim("n", 0, device("a", "x")), "update", ""},
		"reports from another": {on("m"), local, claim("n", 0, device("a", "y")),
			claim("n", 0, device("a", "x")), "update", driver},
		"reports from nowhere": {api.User{}, local, claim("n", 0, device("a", "y")),
			claim("n", 0, device("a", "x")), "update", driver},
		"reports from anywhere": {api.User{}, anywhere, claim("n", 0, device("a", "y")),
			claim("n", 0, device("a", "x")), "update", ""},
		"takes back what it said": {on("n"), local, claim("n", 0), claim("n", 0, device("a", "x")), "update",
			""},
		"takes back what another said": {on("n"), local, claim("n", 0, device("a", "x")),
			claim("n", 0, device("a", "x"), device("b", "x")), "update", "driver b"},
		"reports for another as well": {on("n"), local, claim("n", 0, device("a", "y"), device("b", "y")),
			claim("n", 0, device("b", "x")), "update", "driver b"},
		"reports beside another": {on("n"), local, claim("n", 0, device("b", "x"), device("a", "y")),
			claim("n", 0, device("a", "x"), device("b", "x")), "update", ""},
		"may allocate and reports": {on("n"), grantedRights{"update binding c"}, claim("n", 1, device("a", "x")),
			claim("n", 0), "update", driver},
		"reports for a claim of no node": {on("n"), local, claim("", 0, device("a", "x")), claim("", 0), "update",
			driver},
	} {
		a := newWrite(c.user, "UPDATE", "resource.k8s.io:resourceclaims/status", "shop", "c", c.after, c.before)
		a.Origin = verbOrigin(c.verb)
		err := (&deviceStatus{c.rights}).Validate(t.Context(), a)
		if c.refusal == "" && err != nil ||
			c.refusal != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s: %v, want %q", name, err, c.refusal)
		}
	}
	other := newWrite(api.User{}, "UPDATE", "resource.k8s.io:resourceclaims", "shop", "c", claim("n", 1), claim("", 0))
	if err := (&deviceStatus{}).Validate(t.Context(), other); err != nil {
		t.Errorf("another write: %v", err)
	}
}
