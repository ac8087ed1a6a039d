package core

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
)

// A status may only contain devices that the container requested, each once.
func TestDeviceStatusesAreValidated(t *testing.T) {
	healthy := []corev1.ResourceHealth{{ResourceID: "d/p/x", Health: corev1.ResourceHealthStatusHealthy}}
	report := func(name corev1.ResourceName, r ...corev1.ResourceHealth) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{{Name: name, Resources: r}}
	}
	old := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{
			Name: "claims",
			Resources: corev1.ResourceRequirements{
				Claims: []corev1.ResourceClaim{{Name: "all"}, {Name: "one", Request: "gpu"}},
			},
		},
		{
			Name: "extended",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
			},
		},
		{
			Name:      "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		},
	}}}
	for name, c := range map[string]struct {
		container string
		status    []corev1.ResourceStatus
		refused   string // the field below the container's status
	}{
		"a claim":                            {"claims", report("claim:all", healthy...), ""},
		"a claim's request":                  {"claims", report("claim:one/gpu", healthy...), ""},
		"another request":                    {"claims", report("claim:one/nic", healthy...), "[0].name"},
		"all of a claim of which it has one": {"claims", report("claim:one", healthy...), "[0].name"},
		"another claim":                      {"none", report("claim:all", healthy...), "[0].name"},
		"an extended resource":               {"extended", report("example.com/gpu", healthy...), ""},
		"an extended resource by a claim":    {"extended", report("claim:made/gpu", healthy...), ""},
		"a resource that it has not":         {"none", report("example.com/gpu", healthy...), "[0].name"},
		"one name twice": {"claims", append(report("claim:all", healthy...), report("claim:all")...),
			"[1].name"},
		"one device twice": {"claims", report("claim:all", healthy[0], healthy[0]), "[0].resources[1].resourceID"},
		"another word": {"claims", report("claim:all", corev1.ResourceHealth{ResourceID: "x", Health: "Wild"}),
			"[0].resources[0].health"},
		"a message": {"claims",
			report("claim:all", corev1.ResourceHealth{ResourceID: "x", Health: "Unknown",
				Message: new(strings.Repeat("a", 1024))}), ""},
		"a long message": {"claims",
			report("claim:all", corev1.ResourceHealth{ResourceID: "x", Health: "Unknown",
				Message: new(strings.Repeat("a", 1025))}), "[0].resources[0].message"},
	} {
		pod := old.DeepCopy()
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: c.container, AllocatedResourcesStatus: c.status}}
		errs := validatePodStatusUpdate(pod, old)
		want := "status.containerStatuses[0].allocatedResourcesStatus" + c.refused
		if c.refused == "" && len(errs) > 0 ||
			c.refused != "" && !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == want }) {
			t.Errorf("%s: %v", name, errs)
		}
	}
	visited := old.DeepCopy()
	visited.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{
		{Name: "e", AllocatedResourcesStatus: report("claim:all", healthy...)},
	}
	if errs := validatePodStatusUpdate(visited, old); len(errs) != 1 ||
		errs[0].Field != "status.ephemeralContainerStatuses[0].allocatedResourcesStatus" {
		t.Errorf("an ephemeral container: %v", errs)
	}
}

// Pod-level resources can be resized within those of the containers, and cannot be removed.
func TestPodLevelResourcesCanBeResized(t *testing.T) {
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	pod := func(whole *corev1.ResourceRequirements) *corev1.Pod {
		own := corev1.ResourceRequirements{Requests: list("100m"), Limits: list("200m")}
		p := &corev1.Pod{Spec: corev1.PodSpec{Resources: whole,
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: own}}}}
		podspec.DefaultPod(p)
		return p
	}
	both := func(cpu string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: list(cpu), Limits: list(cpu)}
	}
	for name, c := range map[string]struct {
		after, before *corev1.ResourceRequirements
		refused       string // field and detail
	}{
		"larger":        {both("2"), both("1"), ""},
		"smaller":       {both("500m"), both("1"), ""},
		"for the first": {&corev1.ResourceRequirements{Requests: list("150m"), Limits: list("1")}, nil, ""},
		"no longer": {nil, &corev1.ResourceRequirements{Requests: list("150m"), Limits: list("1")},
			"spec.resources: pod-level resources cannot be removed"},
		"without a limit": {&corev1.ResourceRequirements{Requests: list("1")}, both("1"),
			"spec.resources.limits[cpu]: resource limits cannot be removed"},
		"below containers": {both("50m"), both("1"),
			"spec.resources.requests[cpu]: must be greater than or equal to aggregate container requests of 100m"},
		"with a device": {&corev1.ResourceRequirements{Requests: list("1"),
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("1")}},
			both("1"),
			"spec: only cpu and memory resources are mutable"},
	} {
		errs := slices.DeleteFunc(ValidateResize(pod(c.after), pod(c.before)), func(e *field.Error) bool {
			return e.Field == "metadata.name" || e.Field == "metadata.namespace"
		})
		if c.refused == "" && len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		if c.refused != "" && !slices.ContainsFunc(errs,
			func(e *field.Error) bool { return e.Field+": "+e.Detail == c.refused }) {
			t.Errorf("%s: %v, want %s", name, errs, c.refused)
		}
	}
}
