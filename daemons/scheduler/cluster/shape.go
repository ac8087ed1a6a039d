package cluster

import (
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
)

// Shape holds what pods of one template have in common, computed once. If a node fits one of them, it fits all.
type Shape struct {
	Scheduler            string // spec.schedulerName
	namespace            string
	labels               map[string]string
	Priority             int32
	NeverPreempts        bool // preemptionPolicy is Never
	Requests             Resources
	RequestsWithDefaults Resources // Requests with a default for containers without requests
	Limits               Resources // not used to choose a node
	HostPorts            []api.HostPort
	Tolerations          []corev1.Toleration
	Images               []string
	Volumes              []Volume
	// claims that the pod names, as namespace/name; claims of ephemeral volumes are not included
	Claims            []string
	Disks             []Disk
	Devices           []PodClaim         // ResourceClaims
	ContainerRequests []ContainerRequest // containers that request extended resources
	Features          []string           // features that the node's kubelet must declare
	Owner             *metav1.OwnerReference

	Required    nodeaffinity.RequiredNodeAffinity
	HasRequired bool // Required excludes some nodes
	Preferred   *nodeaffinity.PreferredSchedulingTerms
	NodeNames   []string // the only nodes that the required terms admit; nil if they are not limited by name
	OnlyNamed   bool

	Affinity, AntiAffinity                   []Term
	PreferredAffinity, PreferredAntiAffinity []Term
	AffinityIntersection                     *PodSelector // the intersection of the selections of Affinity
	Constraints                              []Constraint

	key            string
	groupKey       string
	nodesKey       string // key of the required node affinity
	tolerationsKey string // key of the tolerations
	onNode         Resources
	inTreeVolumes  []inTreeVolume // in-tree volumes without a claim
	weightedTerms  []weightedTerm
}

// Volume is a volume of a pod that uses a claim.
type Volume struct {
	Claim     string // the claim's name
	Ephemeral bool
}

// Term is a term of inter-pod affinity or anti-affinity.
type Term struct {
	*PodSelector
	Key    string
	Weight int64
}

// Constraint is a topology spread constraint.
type Constraint struct {
	*PodSelector
	Key                    string
	MaxSkew, MinDomains    int
	Required               bool
	HonorNodes, HonorTaint bool
}

// Shapes holds one Shape for all equal pods, as long as one of the pods exists.
type Shapes struct {
	mu     sync.Mutex
	shapes map[string]weak.Pointer[Shape]
}

// NewShapes returns an empty Shapes.
func NewShapes() *Shapes { return &Shapes{shapes: map[string]weak.Pointer[Shape]{}} }

func (s *Shapes) shapeOf(pod *corev1.Pod) *Shape {
	key := shapeKey(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	if shape := s.shapes[key].Value(); shape != nil {
		return shape
	}
	shape := newShape(pod, key)
	s.shapes[key] = weak.Make(shape)
	runtime.AddCleanup(shape, s.deleteUnused, key)
	return shape
}

func (s *Shapes) deleteUnused(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shapes[key].Value() == nil {
		delete(s.shapes, key)
	}
}

// Class returns a key that is equal for equal shapes.
func (s *Shape) Class() string { return s.key }

func newShape(pod *corev1.Pod, key string) *Shape {
	s := &Shape{
		Scheduler: pod.Spec.SchedulerName, namespace: pod.Namespace, labels: maps.Clone(pod.Labels),
		Requests: requestsOf(pod, nil), RequestsWithDefaults: requestsOf(pod, defaultRequests), Limits: limitsOf(pod),
		onNode:    usageOf(pod, defaultRequestsOf(pod)),
		HostPorts: api.HostPorts(pod), Tolerations: slices.Clone(pod.Spec.Tolerations),
		Devices: podClaims(pod), ContainerRequests: containerRequests(pod), Features: requiredFeatures(pod), key: key,
	}
	if pod.Spec.Priority != nil {
		s.Priority = *pod.Spec.Priority
	}
	s.NeverPreempts = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	if owner := metav1.GetControllerOf(pod); owner != nil {
		s.Owner = owner
	}
	s.groupKey = podGroupKey(pod.Namespace, pod.Labels)
	s.readImages(pod)
	s.readVolumes(pod)
	s.readInTreeVolumes(pod)
	s.readNodeConstraints(pod)
	s.readTerms(pod)
	s.readConstraints(pod)
	return s
}

// shapeKey is equal for pods that the scheduler cannot distinguish and that have the same limits. It does not contain
// fields in which pods of one template can differ, such as environment and commands.
//
//style:long a line for each field that plugins read, written in order to one buffer on a hot path
func shapeKey(pod *corev1.Pod) string {
	var b strings.Builder
	b.Grow(512)
	text := func(parts ...string) {
		for _, p := range parts {
			b.WriteString(strconv.Itoa(len(p)))
			b.WriteByte(':')
			b.WriteString(p)
		}
	}
	sorted := func(m map[string]string) {
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(m)) {
			text(k, m[k])
		}
		b.WriteByte('}')
	}
	amounts := func(list corev1.ResourceList) {
		b.WriteByte('[')
		for _, name := range slices.Sorted(maps.Keys(list)) {
			q := list[name]
			text(string(name), strconv.FormatInt(q.MilliValue(), 10))
		}
		b.WriteByte(']')
	}
	document := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte(pod.UID) // give the pod a shape of its own
		}
		text(string(raw))
	}
	spec := &pod.Spec
	text(pod.Namespace, spec.SchedulerName)
	sorted(pod.Labels)
	if spec.Priority != nil {
		text(strconv.Itoa(int(*spec.Priority)))
	}
	b.WriteByte('|')
	if spec.PreemptionPolicy != nil {
		text(string(*spec.PreemptionPolicy))
	}
	b.WriteByte('|')
	if o := metav1.GetControllerOfNoCopy(pod); o != nil {
		text(o.APIVersion, o.Kind, o.Name, string(o.UID))
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		b.WriteByte('|')
		for i := range list {
			c := &list[i]
			text(c.Image)
			amounts(c.Resources.Requests)
			amounts(c.Resources.Limits)
			if c.RestartPolicy != nil {
				text(string(*c.RestartPolicy))
			}
			b.WriteByte('/')
			for _, p := range c.Ports {
				if p.HostPort > 0 {
					text(string(p.Protocol), p.HostIP, strconv.Itoa(int(p.HostPort)))
				}
			}
		}
	}
	for _, a := range containerRequests(pod) {
		text(strconv.Itoa(a.Index), a.Name) // the pod's status lists what each container gets
	}
	if needs := requiredFeatures(pod); len(needs) > 0 {
		text("F")
		text(needs...)
	}
	amounts(spec.Overhead)
	if spec.Resources != nil {
		b.WriteByte('R')
		amounts(spec.Resources.Requests)
		amounts(spec.Resources.Limits)
	}
	sorted(spec.NodeSelector)
	b.WriteByte('|')
	if spec.Affinity != nil {
		document(spec.Affinity)
	}
	b.WriteByte('|')
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	b.WriteByte('|')
	if len(spec.TopologySpreadConstraints) > 0 {
		document(spec.TopologySpreadConstraints)
	}
	b.WriteByte('|')
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			text("C", v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			text("E", pod.Name+"-"+v.Name, string(pod.UID)) // the claim belongs to the pod alone
		case v.Image != nil:
			text("I", v.Image.Reference)
		case v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil ||
			v.AzureDisk != nil || v.Cinder != nil ||
			v.PortworxVolume != nil:
			document(v.VolumeSource)
		}
	}
	if len(spec.ResourceClaims) > 0 {
		text("D")
		for _, c := range podClaims(pod) {
			if text(c.Claim); c.IsGenerated {
				text(c.Name, string(pod.UID), strconv.FormatBool(c.NotNeeded)) // the claim belongs to the pod alone
			}
		}
	}
	return b.String()
}

func (s *Shape) readImages(pod *corev1.Pod) {
	for i := range pod.Spec.InitContainers {
		s.Images = append(s.Images, fullName(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		s.Images = append(s.Images, fullName(pod.Spec.Containers[i].Image))
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			s.Images = append(s.Images, fullName(image.Reference))
		}
	}
}

// fullName adds the default tag to an image without a tag.
func fullName(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return image + ":latest"
	}
	return image
}

func (s *Shape) readVolumes(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			s.Volumes = append(s.Volumes, Volume{Claim: v.PersistentVolumeClaim.ClaimName})
			s.Claims = append(s.Claims, pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			s.Volumes = append(s.Volumes, Volume{Claim: pod.Name + "-" + v.Name, Ephemeral: true})
		}
	}
}

// readNodeConstraints reads a pod's constraints on its node.
func (s *Shape) readNodeConstraints(pod *corev1.Pod) {
	var b strings.Builder
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		b.WriteString(t.Key + "\x00" + string(t.Operator) + "\x00" + t.Value + "\x00" + string(t.Effect) + "\x01")
	}
	s.tolerationsKey = b.String()
	s.Required = nodeaffinity.GetRequiredNodeAffinity(pod)
	var affinity *corev1.NodeAffinity
	if pod.Spec.Affinity != nil {
		affinity = pod.Spec.Affinity.NodeAffinity
	}
	if len(pod.Spec.NodeSelector) > 0 {
		s.HasRequired, s.nodesKey = true, labels.Set(pod.Spec.NodeSelector).String()
	}
	if affinity == nil {
		return
	}
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		s.HasRequired = true
		if raw, err := json.Marshal(required); err == nil {
			s.nodesKey += "\x00" + string(raw)
		} else {
			s.nodesKey += "\x00" + string(pod.UID)
		}
		s.NodeNames, s.OnlyNamed = nodeNamesOf(required)
	}
	if len(affinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		if p, err := nodeaffinity.NewPreferredSchedulingTerms(
			affinity.PreferredDuringSchedulingIgnoredDuringExecution); err == nil {
			s.Preferred = p // an invalid one prefers nothing
		}
	}
}

// nodeNamesOf returns the node names that required terms admit through metadata.name. only reports whether every term
// names nodes.
func nodeNamesOf(required *corev1.NodeSelector) (names []string, only bool) {
	for _, term := range required.NodeSelectorTerms {
		var of []string
		named := false
		for _, r := range term.MatchFields {
			if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if !named {
				of, named = slices.Clone(r.Values), true
			} else {
				of = slices.DeleteFunc(of, func(n string) bool { return !slices.Contains(r.Values, n) })
			}
		}
		if !named {
			return nil, false
		}
		names = append(names, of...)
	}
	return names, len(required.NodeSelectorTerms) > 0
}
