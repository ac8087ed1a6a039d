package plugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Pod is a pod with what the plugins need of it, worked out once.
type Pod struct {
	*corev1.Pod
	Requests Resources
	// Usual is Requests with a usual amount for pods that ask for nothing, so that
	// they spread too.
	Usual    Resources
	HostPort []HostPort
	Priority int32

	owner                                    string // uid of the controller that made it
	affinity, antiAffinity                   []term
	preferredAffinity, preferredAntiAffinity []weighted
}

// HostPort is a port of the machine that a pod takes.
type HostPort struct {
	Protocol corev1.Protocol
	IP       string
	Port     int32
}

// What a container without requests is taken to use, for scores only.
const (
	usualMilliCPU = 100
	usualMemory   = 200 << 20
)

// term is one demand of inter-pod (anti-)affinity.
type term struct {
	selector   labels.Selector
	namespaces map[string]bool // nil: see inNamespaces
	namespaced labels.Selector // of namespaces' labels; nil: none
	key        string
}

type weighted struct {
	term
	weight int64
}

// NewPod works out what a pod asks for.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod}
	// While a pod is resized it takes the larger of what it wants, what its node gave it and what it runs with.
	p.Requests = resourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
	p.Usual = resourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources:          true,
		NonMissingContainerRequests: usualRequests,
	}))
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	p.HostPort, p.owner = hostPorts(pod), ownerOf(pod)
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			p.affinity = terms(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.preferredAffinity = weightedTerms(pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			p.antiAffinity = terms(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.preferredAntiAffinity = weightedTerms(pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p
}

// hasAffinity says whether other pods' places matter to this one, or its to theirs.
func (p *Pod) hasAffinity() bool {
	return len(p.affinity)+len(p.antiAffinity)+len(p.preferredAffinity)+len(p.preferredAntiAffinity) > 0
}

func hostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ip := p.HostIP
				if ip == "" {
					ip = "0.0.0.0"
				}
				protocol := p.Protocol
				if protocol == "" {
					protocol = corev1.ProtocolTCP
				}
				out = append(out, HostPort{protocol, ip, p.HostPort})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

func terms(pod *corev1.Pod, list []corev1.PodAffinityTerm) []term {
	out := make([]term, 0, len(list))
	for i := range list {
		out = append(out, newTerm(pod, &list[i]))
	}
	return out
}

func weightedTerms(pod *corev1.Pod, list []corev1.WeightedPodAffinityTerm) []weighted {
	out := make([]weighted, 0, len(list))
	for i := range list {
		out = append(out, weighted{newTerm(pod, &list[i].PodAffinityTerm), int64(list[i].Weight)})
	}
	return out
}

func newTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm) term {
	out := term{selector: selectorOf(t.LabelSelector), key: t.TopologyKey}
	for _, key := range t.MatchLabelKeys {
		out.selector = also(out.selector, pod, key, "In")
	}
	for _, key := range t.MismatchLabelKeys {
		out.selector = also(out.selector, pod, key, "NotIn")
	}
	if t.NamespaceSelector != nil {
		out.namespaced = selectorOf(t.NamespaceSelector)
	}
	if len(t.Namespaces) > 0 || t.NamespaceSelector == nil {
		out.namespaces = map[string]bool{}
		for _, ns := range t.Namespaces {
			out.namespaces[ns] = true
		}
		if len(t.Namespaces) == 0 {
			out.namespaces[pod.Namespace] = true
		}
	}
	return out
}

// also narrows a selector by the pod's own value of a label.
func also(s labels.Selector, pod *corev1.Pod, key string, operator metav1.LabelSelectorOperator) labels.Selector {
	v, ok := pod.Labels[key]
	if !ok {
		return s
	}
	more, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: []string{v}}},
	})
	if err != nil {
		return s
	}
	requirements, _ := more.Requirements()
	return s.Add(requirements...)
}

// selectorOf reads a selector; one that cannot be read chooses nothing.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// chooses says whether the term is about a pod.
func (t *term) chooses(pod *corev1.Pod, s *Snapshot) bool {
	if !t.namespaces[pod.Namespace] && (t.namespaced == nil || !t.namespaced.Matches(labels.Set(s.namespaceLabels(pod.Namespace)))) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// Resized reports whether the size of a pod that runs has changed, in what it wants or in what its node says that it has.
func Resized(old, pod *corev1.Pod) bool {
	if old.Generation != pod.Generation {
		return true
	}
	for _, list := range [][2][]corev1.ContainerStatus{
		{old.Status.ContainerStatuses, pod.Status.ContainerStatuses}, {old.Status.InitContainerStatuses, pod.Status.InitContainerStatuses},
	} {
		if !slices.EqualFunc(list[0], list[1], func(a, b corev1.ContainerStatus) bool {
			return equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.AllocatedResources, b.AllocatedResources)
		}) {
			return len(list[0]) > 0 // a pod that begins says so for the first time
		}
	}
	return false
}
