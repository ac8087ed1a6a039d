package plugin

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestScoresAreBroughtIntoRange(t *testing.T) {
	for name, c := range map[string]struct {
		normalize   func([]int64)
		given, want []int64
	}{
		"highest":           {highest, []int64{0, 5, 10}, []int64{0, 50, 100}},
		"nothing":           {highest, []int64{0, 0}, []int64{0, 0}},
		"reversed":          {reversed, []int64{0, 5, 10}, []int64{100, 50, 0}},
		"all as good":       {reversed, []int64{0, 0}, []int64{100, 100}},
		"negative":          {ranged, []int64{-10, 0, 10}, []int64{0, 50, 100}},
		"all the same":      {ranged, []int64{3, 3}, []int64{0, 0}},
		"none":              {ranged, nil, nil},
		"one, the greatest": {highest, []int64{7}, []int64{100}},
	} {
		got := slices.Clone(c.given)
		if c.normalize(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// storage has one claim bound to a volume in zone a, one that waits, one that is lost.
type storage struct{}

func (storage) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	waits, at := "waits", "at-once"
	switch name {
	case "bound":
		claim.Spec.VolumeName = "v"
	case "lost":
		claim.Spec.VolumeName = "gone"
	case "waiting":
		claim.Spec.StorageClassName = &waits
	case "unbound":
		claim.Spec.StorageClassName = &at
	default:
		return nil, false
	}
	return claim, true
}

func (storage) Volume(name string) (*corev1.PersistentVolume, bool) {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a"}}}}},
	}}}}, name == "v"
}

func (storage) Class(name string) (*storagev1.StorageClass, bool) {
	mode := storagev1.VolumeBindingImmediate
	if name == "waits" {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	return &storagev1.StorageClass{VolumeBindingMode: &mode}, true
}

func TestVolumesSayWhereAPodCanGo(t *testing.T) {
	node := func(zone string) *Node {
		return NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-" + zone, Labels: map[string]string{"zone": zone}}})
	}
	s := &Snapshot{Volumes: storage{}}
	for name, c := range map[string]struct{ claim, zone, why string }{
		"its zone":     {"bound", "a", ""},
		"another":      {"bound", "b", "node(s) didn't match PersistentVolume's node affinity"},
		"no such":      {"none", "a", `persistentvolumeclaim "none" not found`},
		"lost volume":  {"lost", "a", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"},
		"first user":   {"waiting", "b", ""},
		"not yet made": {"unbound", "a", "pod has unbound immediate PersistentVolumeClaims"},
	} {
		pod := NewPod(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.claim},
		}}}}})
		got := ""
		if check := volumes(pod, s); check != nil {
			if reasons := check(node(c.zone)); len(reasons) > 0 {
				got = reasons[0]
			}
		}
		if got != c.why {
			t.Errorf("%s: %q, want %q", name, got, c.why)
		}
	}
}

func TestANodeIsNeverChanged(t *testing.T) {
	n := NewNode(&corev1.Node{})
	pod := func(uid types.UID, port int32) *Pod {
		return NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{HostPort: port}},
		}}}})
	}
	a, b, c := pod("a", 80), pod("b", 81), pod("c", 82)
	one := n.With(a)
	two, other := one.With(b), one.With(c)
	if len(n.Pods) != 0 || len(one.Pods) != 1 || two.Pods[1] != b || other.Pods[1] != c {
		t.Error("what was derived from one node shows in another")
	}
	if len(one.ports) != 1 || len(two.ports) != 2 {
		t.Errorf("ports: %v, %v", one.ports, two.ports)
	}
	if back := two.Without(b); len(back.Pods) != 1 || len(back.ports) != 1 || len(two.Pods) != 2 {
		t.Error("taking a pod away does not undo adding it, or shows in the node before")
	}
	if one.Without(b) != one {
		t.Error("taking away a pod that is not there makes another node")
	}
}

func TestInterPodTermsKnowNamespaces(t *testing.T) {
	s := &Snapshot{Namespaces: func(name string) map[string]string { return map[string]string{"team": name} }}
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "home"}}
	at := func(ns string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns}} }
	for name, c := range map[string]struct {
		term corev1.PodAffinityTerm
		in   []string
	}{
		"own by default": {corev1.PodAffinityTerm{}, []string{"home"}},
		"named":          {corev1.PodAffinityTerm{Namespaces: []string{"a"}}, []string{"a"}},
		"selected":       {corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}}, []string{"b"}},
		"all":            {corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}, []string{"home", "a", "b"}},
		"both":           {corev1.PodAffinityTerm{Namespaces: []string{"a"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}}, []string{"a", "b"}},
	} {
		c.term.LabelSelector = &metav1.LabelSelector{}
		term := newTerm(owner, &c.term)
		for _, ns := range []string{"home", "a", "b"} {
			if got := term.chooses(at(ns), s); got != slices.Contains(c.in, ns) {
				t.Errorf("%s: chooses in %s: %v", name, ns, got)
			}
		}
	}
}

// An image that one node of many has is no reason to put every pod there.
func TestAnImageCountsByHowManyNodesHaveItS15(t *testing.T) {
	const image = "example.com/big:1"
	node := func(name string, images ...string) *Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, i := range images {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{i}, SizeBytes: 1000 << 20})
		}
		return NewNode(n)
	}
	pod := &Pod{Pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}}
	score := func(nodes ...*Node) []int64 {
		rate := imageLocality(pod, &Snapshot{Nodes: nodes})
		var out []int64
		for _, n := range nodes {
			if rate == nil {
				return nil
			}
			out = append(out, rate(n))
		}
		return out
	}
	for name, c := range map[string]struct {
		nodes []*Node
		want  []int64
	}{
		"all have it":    {[]*Node{node("a", image), node("b", image)}, []int64{100, 100}},
		"half have it":   {[]*Node{node("a", image), node("b")}, []int64{48, 0}},
		"one of ten has": {[]*Node{node("a", image), node("b"), node("c"), node("d"), node("e"), node("f"), node("g"), node("h"), node("i"), node("j")}, []int64{7, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"nobody has it":  {[]*Node{node("a", "example.com/other:1"), node("b")}, nil},
	} {
		if got := score(c.nodes...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
