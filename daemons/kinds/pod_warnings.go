package kinds

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podWarnings makes the Warnings of a kind that is a pod, or makes them: spec finds what of it is the pod's.
func podWarnings[T runtime.Object](spec func(T) *corev1.PodSpec, path ...string) func(runtime.Object) []string {
	at := field.NewPath(path[0], path[1:]...)
	return func(obj runtime.Object) []string { return podDoubts(spec(obj.(T)), at) }
}

// oldLabels of nodes were renamed long ago.
var oldLabels = map[string]string{
	"beta.kubernetes.io/arch":                  `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                    `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region": `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":         `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
}

// podDoubts says what of a pod is taken, and is probably not what was meant.
func podDoubts(spec *corev1.PodSpec, at *field.Path) []string {
	var doubts []string
	doubt := func(at *field.Path, format string, args ...any) {
		doubts = append(doubts, at.String()+": "+fmt.Sprintf(format, args...))
	}
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if text := oldLabels[key]; text != "" {
			doubt(at.Child("nodeSelector").Key(key), "%s", text)
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		if text := oldLabels[c.TopologyKey]; text != "" {
			doubt(at.Child("topologySpreadConstraints").Index(i).Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
	}
	secrets := map[string]bool{}
	for i, s := range spec.ImagePullSecrets {
		where := at.Child("imagePullSecrets").Index(i).Child("name")
		if s.Name == "" {
			doubt(where, "invalid empty name %q", "")
		} else if secrets[s.Name] {
			doubt(at.Child("imagePullSecrets").Index(i), "duplicate name %q", s.Name)
		}
		secrets[s.Name] = true
	}
	for i, v := range spec.Volumes {
		where := at.Child("volumes").Index(i)
		for _, old := range []struct {
			set   bool
			name  string
			since string
		}{
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11"}, {v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
			{v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"}, {v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"}, {v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"}, {v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
		} {
			if old.set {
				doubt(where.Child(old.name), "%s", old.since)
			}
		}
	}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			doubts = append(doubts, containerDoubts(&list.containers[i], at.Child(list.name).Index(i))...)
		}
	}
	return doubts
}

func containerDoubts(c *corev1.Container, at *field.Path) []string {
	var doubts []string
	for i, e := range c.Env {
		if slices.ContainsFunc(c.Env[:i], func(before corev1.EnvVar) bool { return before.Name == e.Name }) {
			doubts = append(doubts, fmt.Sprintf("%s: hides previous definition of %q, which may be dropped when using apply", at.Child("env").Index(i), e.Name))
		}
	}
	for i, p := range c.Ports {
		same := func(before corev1.ContainerPort) bool {
			return before.ContainerPort == p.ContainerPort && before.Protocol == p.Protocol && before.HostPort == p.HostPort && before.HostIP == p.HostIP
		}
		if j := slices.IndexFunc(c.Ports[:i], same); j >= 0 {
			doubts = append(doubts, fmt.Sprintf("%s: duplicate port definition with %s", at.Child("ports").Index(i), at.Child("ports").Index(j)))
		}
	}
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"limits", c.Resources.Limits}, {"requests", c.Resources.Requests}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if q, ok := list.of[name]; ok && q.MilliValue()%1000 != 0 {
				doubts = append(doubts, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Child("resources", list.name).Key(string(name)), q.String()))
			}
		}
	}
	return doubts
}
