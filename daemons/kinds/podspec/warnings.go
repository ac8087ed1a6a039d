package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/warn"
)

// PodWarnings returns warnings for new pods only: programs update pods often.
func PodWarnings(obj, old runtime.Object) []string {
	if old != nil {
		return nil
	}
	pod := obj.(*corev1.Pod)
	return append(labelWarnings(pod.Name, "the Pod's hostname"), Warnings(&pod.ObjectMeta, &pod.Spec, nil)...)
}

// TemplateWarnings returns the Warnings function of a kind with a pod template. template returns the template of an
// object, or nil. Updates that change only the metadata cause no warnings.
func TemplateWarnings[T metav1.Object](
	template func(T) *corev1.PodTemplateSpec,
	path ...string,
) func(obj, old runtime.Object) []string {
	at := field.NewPath(path[0], path[1:]...)
	return func(obj, old runtime.Object) []string {
		o := obj.(any).(T)
		t := template(o)
		if t == nil || old != nil && old.(any).(T).GetGeneration() == o.GetGeneration() {
			return nil
		}
		return Warnings(&t.ObjectMeta, &t.Spec, at)
	}
}

// WithNameWarnings adds a warning if the object's name, which becomes part of pod names and hostnames, is not a valid
// label.
func WithNameWarnings(others func(obj, old runtime.Object) []string) func(obj, old runtime.Object) []string {
	return func(obj, old runtime.Object) []string {
		var doubts []string
		if old == nil {
			doubts = labelWarnings(obj.(metav1.Object).GetName(), "Pod names and hostnames")
		}
		return append(doubts, others(obj, old)...)
	}
}

func labelWarnings(name, use string) []string {
	wrong := validation.IsDNS1123Label(name)
	if len(wrong) == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is "+
			"recommended: %v", use, wrong),
	}
}

// oldAnnotations lists annotations of pods that have no effect any more.
var oldAnnotations = []struct{ key, text string }{
	{
		"scheduler.alpha.kubernetes.io/critical-pod",
		`non-functional in v1.16+; use the "priorityClassName" field instead`,
	},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

const (
	seccompText  = `non-functional in v1.27+; use the "seccompProfile" field instead`
	nullSelector = "a null labelSelector results in matching no pod"
)

// Warnings returns warnings about valid parts of a pod that are probably not intended. at is the path of its
// metadata and spec, or nil for a pod itself.
func Warnings(meta *metav1.ObjectMeta, spec *corev1.PodSpec, at *field.Path) []string {
	var d warn.List
	path := at.Child("spec")
	// Paths are made only for warnings: most pods have none.
	annotation := func(key string) *field.Path { return at.Child("metadata", "annotations").Key(key) }
	placementWarnings(&d, spec, path)
	for _, old := range oldAnnotations {
		if _, ok := meta.Annotations[old.key]; ok {
			d.Addf(annotation(old.key), "%s", old.text)
		}
	}
	if len(spec.Volumes) > 0 {
		volumeWarnings(&d, spec.Volumes, path.Child("volumes"))
	}
	addressWarnings(&d, spec, path)
	secrets := map[string]bool{}
	for i, s := range spec.ImagePullSecrets {
		if secrets[s.Name] {
			d.Addf(path.Child("imagePullSecrets").Index(i).Child("name"), "duplicate name %q", s.Name)
		}
		secrets[s.Name] = true
	}
	for i, s := range spec.ImagePullSecrets {
		if s.Name == "" {
			d.Addf(path.Child("imagePullSecrets").Index(i).Child("name"), "invalid empty name %q", "")
		}
	}
	if len(spec.Overhead) > 0 {
		fractionWarnings(&d, spec.Overhead, path.Child("overhead"))
	}
	security := spec.SecurityContext
	if _, ok := meta.Annotations[corev1.SeccompPodAnnotationKey]; ok &&
		(security == nil || security.SeccompProfile == nil) {
		d.Addf(annotation(corev1.SeccompPodAnnotationKey), "%s", seccompText)
	}
	containers := allContainers(spec, path)
	for _, c := range containers {
		if len(meta.Annotations) > 0 {
			annotationWarnings(&d, meta, security, c, annotation)
		}
		if len(c.Resources.Limits) > 0 {
			fractionWarnings(&d, c.Resources.Limits, c.path.Child("resources", "limits"))
		}
		if len(c.Resources.Requests) > 0 {
			fractionWarnings(&d, c.Resources.Requests, c.path.Child("resources", "requests"))
		}
		if len(c.Env) > 0 {
			environmentWarnings(&d, c.Env, c.path.Child("env"))
		}
	}
	portWarnings(&d, containers)
	portNameWarnings(&d, containers)
	if s := spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		d.Addf(path.Child("terminationGracePeriodSeconds"),
			"must be >= 0; negative values are invalid and will be treated as 1")
	}
	return d
}

// annotationWarnings warns about annotations that were replaced by fields of a container.
func annotationWarnings(
	d *warn.List,
	meta *metav1.ObjectMeta,
	security *corev1.PodSecurityContext,
	c containerPath,
	annotation func(key string) *field.Path,
) {
	key := corev1.SeccompContainerAnnotationKeyPrefix + c.Name
	if _, ok := meta.Annotations[key]; ok && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
		d.Addf(annotation(key), "%s", seccompText)
	}
	key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	confined := security != nil && security.AppArmorProfile != nil ||
		c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
	if _, ok := meta.Annotations[key]; ok && !confined {
		d.Addf(annotation(key), `deprecated since v1.30; use the "appArmorProfile" field instead`)
	}
}

// containerPath is a container of any type with its path.
type containerPath struct {
	*corev1.Container
	path *field.Path
}

// allContainers returns all containers, init containers first.
func allContainers(spec *corev1.PodSpec, path *field.Path) []containerPath {
	var all []containerPath
	for i := range spec.InitContainers {
		all = append(all, containerPath{&spec.InitContainers[i], path.Child("initContainers").Index(i)})
	}
	for i := range spec.Containers {
		all = append(all, containerPath{&spec.Containers[i], path.Child("containers").Index(i)})
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		all = append(all, containerPath{&c, path.Child("ephemeralContainers").Index(i)})
	}
	return all
}

// fractionWarnings warns about fractions of bytes: the suffix m means thousandths, and is rarely intended.
func fractionWarnings(d *warn.List, list corev1.ResourceList, at *field.Path) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			d.Addf(at.Key(string(name)), "fractional byte value %q is invalid, must be an integer", q.String())
		}
	}
}

// environmentWarnings warns about variables that are set twice, unless the second value extends the first.
func environmentWarnings(d *warn.List, env []corev1.EnvVar, at *field.Path) {
	seen := map[string]bool{}
	for i, e := range env {
		before := "$(" + e.Name + ")"
		adds := e.ValueFrom == nil && e.Value != before && strings.Contains(e.Value, before)
		if seen[e.Name] && !adds {
			d.Addf(at.Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
		}
		seen[e.Name] = true
	}
}

// portWarnings warns about ports that several containers have: at most one of them can be reached.
func portWarnings(d *warn.List, containers []containerPath) {
	type placedPort struct {
		corev1.ContainerPort
		at *field.Path
	}
	var seen []placedPort
	for _, c := range containers {
		for i, p := range c.Ports {
			at := c.path.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				d.Addf(at, "hostIP set without hostPort: %+v",
					apiPort{p.Name, p.HostPort, p.ContainerPort, p.Protocol, p.HostIP})
			}
			for _, other := range seen[max(0, len(seen)-warn.MaxComparisons):] {
				switch {
				case other.ContainerPort.ContainerPort != p.ContainerPort || other.Protocol != p.Protocol:
				case other.HostIP == p.HostIP && other.HostPort == p.HostPort:
					d.Addf(at, "duplicate port definition with %s", other.at)
				case other.HostPort == 0 || p.HostPort == 0:
					d.Addf(at, "overlapping port definition with %s", other.at)
				case other.HostPort == p.HostPort && (other.HostIP == "") != (p.HostIP == ""):
					d.Addf(at, "dangerously ambiguous port definition with %s", other.at)
				}
			}
			seen = append(seen, placedPort{p, at})
		}
	}
}

// apiPort is a port in the field order of messages.
type apiPort struct {
	Name                    string
	HostPort, ContainerPort int32
	Protocol                corev1.Protocol
	HostIP                  string
}

// portNameWarnings warns about port names that several containers have: a lookup by name returns the first.
func portNameWarnings(d *warn.List, containers []containerPath) {
	seen := map[string]*field.Path{}
	for _, c := range containers {
		for i, p := range c.Ports {
			at := c.path.Child("ports").Index(i)
			if first := seen[p.Name]; first != nil {
				d.Addf(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s",
					p.Name, first, first)
			} else if p.Name != "" {
				seen[p.Name] = at
			}
		}
	}
}

// addressWarnings warns about duplicate addresses, and about addresses in ambiguous forms.
func addressWarnings(d *warn.List, spec *corev1.PodSpec, path *field.Path) {
	seen := map[string]bool{}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i).Child("ip")
		if seen[alias.IP] {
			d.Addf(at, "duplicate ip %q", alias.IP)
		}
		seen[alias.IP] = true
		d.Add(warn.Address(at, alias.IP)...)
	}
	if spec.DNSConfig != nil {
		for i, server := range spec.DNSConfig.Nameservers {
			d.Add(warn.Address(path.Child("dnsConfig", "nameservers").Index(i), server)...)
		}
	}
}

// placementWarnings warns about renamed node labels, and about selectors that select no pod.
func placementWarnings(d *warn.List, spec *corev1.PodSpec, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if text := warn.RenamedLabels[key]; text != "" {
			d.Addf(path.Child("nodeSelector").Key(key), "%s", text)
		}
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		n, at := spec.Affinity.NodeAffinity, path.Child("affinity", "nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			for i, t := range r.NodeSelectorTerms {
				warn.NodeTerm(d, t, false,
					at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
			}
		}
		for i, t := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			warn.NodeTerm(d, t.Preference, true,
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		at := path.Child("topologySpreadConstraints").Index(i)
		if text := warn.RenamedLabels[c.TopologyKey]; text != "" {
			d.Addf(at.Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
		if c.LabelSelector == nil {
			d.Addf(at.Child("labelSelector"), nullSelector)
		}
	}
	if a := spec.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			selectorWarnings(d, p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("affinity", "podAffinity"))
		}
		if p := a.PodAntiAffinity; p != nil {
			selectorWarnings(d, p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("affinity", "podAntiAffinity"))
		}
	}
}

func selectorWarnings(
	d *warn.List,
	required []corev1.PodAffinityTerm,
	preferred []corev1.WeightedPodAffinityTerm,
	at *field.Path,
) {
	for i, t := range required {
		if t.LabelSelector == nil {
			d.Addf(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"),
				nullSelector)
		}
	}
	for i, t := range preferred {
		if t.PodAffinityTerm.LabelSelector == nil {
			d.Addf(
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").
					Index(i).
					Child("podAffinityTerm", "labelSelector"),
				nullSelector,
			)
		}
	}
}
