package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/profile"
)

// node returns a node with 4 cores and 8 GiB for 10 pods.
func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu":    resource.MustParse("4"),
		"memory": resource.MustParse("8Gi"),
		"pods":   resource.MustParse("10"),
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// pod returns a pod without requests.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      name,
			UID:       types.UID(name),
			Labels:    map[string]string{},
		},
	}
	p.Spec.SchedulerName = profile.Name
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func withRequest(name, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
}

func withNodeName(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}
func labelled(k, v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels[k] = v } }
func priority(n int32) func(*corev1.Pod)     { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
func zone(name string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = name }
}
func tainted(effect string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffect(effect)})
	}
}

func withPodAffinity(anti bool, key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		term := corev1.PodAffinityTerm{
			TopologyKey:   key,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		if anti {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
			}
		} else {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
		}
	}
}

func spreadOver(key string, action corev1.UnsatisfiableConstraintAction) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: action,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		}}
	}
}

func hostPort(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: n, HostPort: n}}
	}
}

var shapes = cluster.NewShapes()

func convertPod(p *corev1.Pod) *cluster.Pod { return cluster.NewPod(p, shapes) }

// newCluster returns a cluster with nodes and pods.
func newCluster(nodes []*corev1.Node, pods ...*corev1.Pod) *cluster.Cluster {
	c := cluster.New()
	for _, n := range nodes {
		c.SetNode(cluster.NewNode(n))
	}
	for _, p := range pods {
		c.SetPod(convertPod(p), p.Spec.NodeName)
	}
	return c
}

func newTestSearch(c *cluster.Cluster, p *cluster.Pod) *search {
	return newSearch(profile.Default(), c, p, nil)
}

func selectNodeFor(c *cluster.Cluster, p *cluster.Pod) Placement {
	got, _ := newTestSearch(c, p).selectNode(0)
	return got
}

// Proves S16.
//
//style:long a table of pods and nodes, with the placement of each
func TestPlacement(t *testing.T) {
	one, two := node("n1"), node("n2")
	web := labelled("app", "a")
	for name, c := range map[string]struct {
		nodes  []*corev1.Node
		pods   []*corev1.Pod
		pod    *corev1.Pod
		node   string // the selected node; empty if none fits
		reason string
	}{
		"no nodes": {nil, nil, pod("p"), "", "no nodes available to schedule pods"},
		"anywhere": {[]*corev1.Node{one}, nil, pod("p"), "n1", ""},
		"least loaded": {[]*corev1.Node{one, two},
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "2"), withRequest("memory", "4Gi"))},
			pod("p"), "n2", ""},
		"too little cpu": {[]*corev1.Node{one, two},
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "3"))},
			pod("p", withRequest("cpu", "5")), "", "0/2 nodes are available: 2 Insufficient cpu."},
		"exactly enough": {[]*corev1.Node{one}, []*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "3"))},
			pod("p", withRequest("cpu", "1")), "n1", ""},
		"cpu and memory": {[]*corev1.Node{one}, nil, pod("p", withRequest("cpu", "5"), withRequest("memory", "9Gi")),
			"",
			"0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."},
		"unknown resource": {[]*corev1.Node{one}, nil, pod("p", withRequest("example.com/gpu", "1")), "",
			"0/1 nodes are available: 1 Insufficient example.com/gpu."},
		"too many pods": {[]*corev1.Node{node("n1",
			func(n *corev1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("1") })},
			[]*corev1.Pod{pod("x", withNodeName("n1"))}, pod("p"), "", "0/1 nodes are available: 1 Too many pods."},
		"taint and resources": {[]*corev1.Node{one, two, node("n3", tainted("NoSchedule"))}, nil,
			pod("p", withRequest("cpu", "9")), "", "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 " +
				"Insufficient cpu."},
		"tolerated": {[]*corev1.Node{node("n1", tainted("NoSchedule"))}, nil, pod("p", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		}), "n1", ""},
		"other value": {[]*corev1.Node{node("n1", tainted("NoSchedule"))}, nil, pod("p", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Value: "w"}}
		}), "", "0/1 nodes are available: 1 node(s) had untolerated taint(s)."},
		"rather not": {[]*corev1.Node{node("n1", tainted("PreferNoSchedule")), two},
			[]*corev1.Pod{pod("x", withNodeName("n2"), withRequest("cpu", "1"))}, pod("p"), "n2", ""},
		"cordoned": {[]*corev1.Node{node("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, nil,
			pod("p"), "", "0/1 nodes are available: 1 node(s) were unschedulable."},
		"selector": {[]*corev1.Node{one, node("n2", zone("b"))}, nil,
			pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "b"} }),
			"n2", ""},
		"selector fails": {[]*corev1.Node{one}, nil,
			pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }), "",
			"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."},
		"by name (as daemon sets do)": {[]*corev1.Node{one, two}, nil, pod("p", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
							Values: []string{"n2"}}},
					}}}}}
		}), "n2", ""},
		"preferred": {[]*corev1.Node{one, node("n2", zone("b"))}, nil, pod("p", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 10,
					Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"b"}}}},
				}}}}
		}), "n2", ""},
		"port taken": {[]*corev1.Node{one}, []*corev1.Pod{pod("x", withNodeName("n1"), hostPort(80))},
			pod("p", hostPort(80)), "", "0/1 nodes are available: 1 node(s) didn't have free ports for the requested " +
				"pod ports."},
		"port free elsewhere": {[]*corev1.Node{one, two}, []*corev1.Pod{pod("x", withNodeName("n1"), hostPort(80))},
			pod("p", hostPort(80)), "n2", ""},
		"near a friend": {[]*corev1.Node{one, two},
			[]*corev1.Pod{pod("x", withNodeName("n2"), web, withRequest("cpu", "3"))},
			pod("p", withPodAffinity(false, corev1.LabelHostname, "a")), "n2", ""},
		"no friend": {[]*corev1.Node{one}, nil, pod("p", withPodAffinity(false, corev1.LabelHostname, "a")), "",
			"0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		"first of its kind": {[]*corev1.Node{one}, nil,
			pod("p", web, withPodAffinity(false, corev1.LabelHostname, "a")), "n1",
			""},
		"far from its like": {[]*corev1.Node{one, two}, []*corev1.Pod{pod("x", withNodeName("n1"), web)},
			pod("p", web, withPodAffinity(true, corev1.LabelHostname, "a")), "n2", ""},
		"nowhere far enough": {[]*corev1.Node{one}, []*corev1.Pod{pod("x", withNodeName("n1"), web)},
			pod("p", web, withPodAffinity(true, corev1.LabelHostname, "a")), "", "0/1 nodes are available: 1 node(s) " +
				"didn't " +
				"match pod anti-affinity rules."},
		"not wanted there": {[]*corev1.Node{one},
			[]*corev1.Pod{pod("x", withNodeName("n1"), withPodAffinity(true, corev1.LabelHostname, "a"))},
			pod("p", web), "",
			"0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
		"other namespace": {[]*corev1.Node{one},
			[]*corev1.Pod{pod("x", withNodeName("n1"), withPodAffinity(true, corev1.LabelHostname, "a"))},
			pod("p", web, func(p *corev1.Pod) { p.Namespace = "other" }), "n1", ""},
		"spread": {[]*corev1.Node{node("n1", zone("a")), node("n2", zone("b"))},
			[]*corev1.Pod{pod("x", withNodeName("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule), withRequest("cpu", "1")), "n2",
			""},
		"too skewed": {[]*corev1.Node{node("n1", zone("a")),
			node("n2", zone("b"), func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			[]*corev1.Pod{pod("x", withNodeName("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)), "",
			"0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) were " +
				"unschedulable."},
		"no zone": {[]*corev1.Node{one}, nil,
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)), "", "0/1 nodes are available: " +
				"1 node(s) didn't match pod topology spread constraints (missing required label)."},
		"soft spread": {[]*corev1.Node{one, two},
			[]*corev1.Pod{pod("x", withNodeName("n1"), web), pod("y", withNodeName("n1"), web),
				pod("z", withNodeName("n2"), withRequest("cpu", "500m"))},
			pod("p", web, spreadOver(corev1.LabelHostname, corev1.ScheduleAnyway)), "n2", ""},
		"has the image": {[]*corev1.Node{one, node("n2", func(n *corev1.Node) {
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"big:latest"}, SizeBytes: 900 << 20}}
		})}, nil, pod("p", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "big" }), "n2", ""},
		"init counts": {[]*corev1.Node{one}, nil, pod("p", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("5")}}}}
		}), "", "0/1 nodes are available: 1 Insufficient cpu."},
		"overhead counts": {[]*corev1.Node{one}, nil,
			pod("p", withRequest("cpu", "4"),
				func(p *corev1.Pod) { p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("100m")} }), "",
			"0/1 nodes are available: 1 Insufficient cpu."},
	} {
		got := selectNodeFor(newCluster(c.nodes, c.pods...), convertPod(c.pod))
		where, reason := "", ""
		if got.Node != nil {
			where = got.Node.Name
		} else {
			reason = got.Explain()
		}
		if where != c.node || reason != c.reason {
			t.Errorf("%s: went to %q (%s), want %q (%s)", name, where, reason, c.node, c.reason)
		}
	}
}

// Whatever is added, assumed, reverted or nominated, the requests on a node never exceed its allocatable resources.
// Proves S06.
func TestRequestsNeverExceedAllocatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cluster.New()
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			c.SetNode(cluster.NewNode(node(fmt.Sprintf("n%d", i))))
		}
		placed := map[string]*corev1.Pod{}
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			what := rapid.IntRange(0, 5).Draw(t, "what")
			if what < 2 && len(placed) > 0 {
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(placed))).Draw(t, "pod")
				p := placed[name]
				switch {
				case what == 0: // the pod ends
					c.DeletePod(p.UID)
					delete(placed, name)
				case rapid.Bool().Draw(t, "fails"): // its binding fails, unless it is confirmed
					if c.Pod(p.UID).Assumed {
						delete(placed, name)
					}
					c.RevertAssume(p.UID)
				default:
					c.SetPod(convertPod(p), p.Spec.NodeName)
				}
			} else {
				p := pod(fmt.Sprintf("p%d", step),
					withRequest("cpu", fmt.Sprintf("%dm", rapid.IntRange(0, 3000).Draw(t, "cpu"))),
					withRequest("memory", fmt.Sprintf("%dMi", rapid.IntRange(0, 6000).Draw(t, "memory"))),
					priority(int32(rapid.IntRange(0, 2).Draw(t, "priority"))))
				s := newTestSearch(c, convertPod(p))
				if got, _ := s.selectNode(step); got.Node != nil {
					c.Assume(s.task.Pod, got.Node)
					p.Spec.NodeName = got.Node.Name
					placed[p.Name] = p
				} else if r := s.preempt(got, nil); r.Node != nil {
					c.Nominate(s.task.Pod, r.Node.Name)
				}
			}
			for _, n := range c.Nodes() {
				if r := &n.Requested; r.MilliCPU > n.Allocatable.MilliCPU || r.Memory > n.Allocatable.Memory ||
					int64(len(n.Pods)) > n.Allocatable.Pods {
					t.Fatalf("node %s holds %dm cpu, %d memory, %d pods", n.Name, r.MilliCPU, r.Memory, len(n.Pods))
				}
			}
			if err := c.Verify(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Proves S17.
func TestPreemption(t *testing.T) {
	never := corev1.PreemptNever
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{
				IntVal: 1,
			}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		},
	}
	two := []*corev1.Node{node("n1"), node("n2")}
	for name, c := range map[string]struct {
		nodes   []*corev1.Node
		pods    []*corev1.Pod
		pod     *corev1.Pod
		node    string
		victims string
		reason  string
	}{
		"lower goes": {two[:1], []*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "4"))},
			pod("p", priority(1), withRequest("cpu", "1")), "n1", "x", ""},
		"equal stays": {two[:1], []*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "4"), priority(1))},
			pod("p", priority(1), withRequest("cpu", "1")), "", "", "0/1 nodes are available: 1 No preemption " +
				"victims found " +
				"for incoming pod."},
		"no more than needs": {two[:1],
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "1")),
				pod("y", withNodeName("n1"), withRequest("cpu", "3"))},
			pod("p", priority(1), withRequest("cpu", "1")), "n1", "y", ""},
		"least important": {two,
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "4"), priority(5)),
				pod("y", withNodeName("n2"), withRequest("cpu", "4"), priority(2))},
			pod("p", priority(9), withRequest("cpu", "1")), "n2", "y",
			""},
		"fewest": {two,
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "2")),
				pod("y", withNodeName("n1"), withRequest("cpu", "2")),
				pod("z", withNodeName("n2"), withRequest("cpu", "4"))}, pod("p", priority(9), withRequest("cpu", "4")),
			"n2", "z", ""},
		"budget": {two,
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "4"), labelled("app", "a")),
				pod("y", withNodeName("n2"), withRequest("cpu", "4"), priority(2))},
			pod("p", priority(9), withRequest("cpu", "1")), "n2", "y",
			""},
		"not enough by less important ones": {two[:1],
			[]*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "1")),
				pod("y", withNodeName("n1"), withRequest("cpu", "3"), priority(5))},
			pod("p", priority(5), withRequest("cpu", "2")), "", "", "0/1 nodes are available: 1 Insufficient cpu."},
		"not by taint": {[]*corev1.Node{node("n1", tainted("NoSchedule"))}, []*corev1.Pod{pod("x", withNodeName("n1"))},
			pod("p", priority(1)), "", "", "0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
		"never": {two[:1], []*corev1.Pod{pod("x", withNodeName("n1"), withRequest("cpu", "4"))},
			pod("p", priority(1), withRequest("cpu", "1"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }),
			"", "",
			"not eligible due to preemptionPolicy=Never."},
		"port": {two[:1], []*corev1.Pod{pod("x", withNodeName("n1"), hostPort(80)), pod("y", withNodeName("n1"))},
			pod("p", priority(1), hostPort(80)), "n1", "x", ""},
	} {
		s, existing := newTestSearch(newCluster(c.nodes, c.pods...), convertPod(c.pod)), budgets{}
		existing.set(budget)
		refused, _ := s.selectNode(0)
		got := s.preempt(refused, existing)
		where, victims := "", []string{}
		if got.Node != nil {
			where = got.Node.Name
		}
		for _, v := range got.Victims {
			victims = append(victims, v.Name)
		}
		if where != c.node || strings.Join(victims, ",") != c.victims || got.Reason != c.reason {
			t.Errorf("%s: %q %v %q, want %q %v %q", name, where, victims, got.Reason, c.node, c.victims, c.reason)
		}
	}
}

func TestNominatedPodsReserveTheirResources(t *testing.T) {
	c := newCluster([]*corev1.Node{node("n1")})
	c.Nominate(convertPod(pod("boss", priority(5), withRequest("cpu", "4"))), "n1")
	less, more := convertPod(pod("less", withRequest("cpu", "1"))),
		convertPod(pod("more", priority(9), withRequest("cpu", "1")))
	if got := selectNodeFor(c, less); got.Node != nil {
		t.Error("a less important pod takes the room that was made")
	}
	if got := selectNodeFor(c, more); got.Node == nil {
		t.Error("a more important pod is kept out:", got.Explain())
	}
}

func TestUtilizationScoresAreInterpolated(t *testing.T) {
	s, err := profile.Parse([]byte(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster([]*corev1.Node{node("n1"), node("n2")},
		pod("x", withNodeName("n1"), withRequest("cpu", "2"), withRequest("memory", "4Gi")))
	search := newSearch(s.Profiles[0], c, convertPod(pod("p", withRequest("cpu", "1"), withRequest("memory", "2Gi"))),
		nil)
	if got, _ := search.selectNode(0); got.Node == nil || got.Node.Name != "n1" {
		t.Errorf("it goes to %v, where it is not the fullest", got.Node)
	}
}
