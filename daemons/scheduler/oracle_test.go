package scheduler

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/profile"
	"clusterctl/tests/reference/oracle"
)

// worldCount returns how many random clusters are compared: few in normal test runs, more with `make oracle`.
func worldCount(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("WORLDS"))
	if err != nil || n <= 0 {
		n = 400
	}
	t.Logf("%d random clusters", n)
	return n
}

// scene is a random cluster with the scheduler's model of it.
type scene struct {
	*oracle.World
	cluster *cluster.Cluster
	shapes  *cluster.Shapes
	budgets budgets
	profile *profile.Profile
}

func newScene(w *oracle.World) (*scene, error) {
	file, err := w.Arguments.MarshalConfig()
	if err != nil {
		return nil, err
	}
	settings, err := profile.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, file)
	}
	s := &scene{
		World:   w,
		cluster: cluster.New(),
		shapes:  cluster.NewShapes(),
		budgets: budgets{},
		profile: settings.Profiles[0],
	}
	for _, ns := range w.Namespaces {
		s.cluster.SetNamespace(ns.Name, ns.Labels)
	}
	for _, n := range w.Nodes {
		s.cluster.SetNode(cluster.NewNode(n))
	}
	for _, o := range w.Services {
		s.cluster.SetOwner(o)
	}
	for _, o := range w.ReplicationControllers {
		s.cluster.SetOwner(o)
	}
	for _, o := range w.ReplicaSets {
		s.cluster.SetOwner(o)
	}
	for _, o := range w.StatefulSets {
		s.cluster.SetOwner(o)
	}
	for _, o := range w.Claims {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.Volumes {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.Classes {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.CSINodes {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.CSIDrivers {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.Capacities {
		s.cluster.Storage.Set(o)
	}
	for _, o := range w.Attachments {
		s.cluster.Storage.Set(o)
	}
	for _, b := range w.Budgets {
		s.budgets.set(b)
	}
	for _, o := range w.DeviceClasses {
		s.cluster.Devices.Set(o)
	}
	for _, o := range w.Slices {
		s.cluster.Devices.Set(o)
	}
	for _, o := range w.DeviceClaims {
		s.cluster.Devices.Set(o)
	}
	for _, p := range w.Pods {
		s.setPod(p)
	}
	return s, nil
}

// setPod adds or updates a pod as the watches do.
func (s *scene) setPod(pod *corev1.Pod) {
	p := cluster.NewPod(pod, s.shapes)
	switch {
	case p.Finished:
		s.cluster.DeletePod(p.UID)
	case p.NodeName != "":
		if old := s.cluster.Pod(p.UID); old == nil || !s.cluster.Replace(old, p) {
			s.cluster.SetPod(p, p.NodeName)
		}
	default:
		s.cluster.Nominate(p, p.Nominated)
	}
}

// compareNodes compares the scheduler's result for every node with the oracle's.
func (s *scene) compareNodes(pod *corev1.Pod) error {
	search := newSearch(s.profile, s.cluster, cluster.NewPod(pod, s.shapes), nil)
	verdicts := s.Evaluate(pod)
	var fit []*cluster.Node
	best := int64(-1)
	for _, v := range verdicts {
		n := s.cluster.Node(v.Node)
		r := search.refusalForAll
		if r == nil && search.task.Pod.OnlyNamed && !slices.Contains(search.task.Pod.NodeNames, n.Name) {
			if v.Plugin != "NodeAffinity" {
				return fmt.Errorf("%s: not named, the oracle says %s %v", v.Node, v.Plugin, v.Reasons)
			}
			continue
		}
		if r == nil {
			r = search.checkNode(n)
		}
		switch {
		case r == nil && v.Plugin != "":
			return fmt.Errorf("%s: fits, the oracle says %s %v", v.Node, v.Plugin, v.Reasons)
		case r != nil && (r.Plugin != v.Plugin || !slices.Equal(r.Reasons, v.Reasons) || r.IsFinal != v.IsUnresolvable):
			return fmt.Errorf("%s: %s %v (final: %v), the oracle says %s %v (%v)", v.Node, r.Plugin, r.Reasons,
				r.IsFinal, v.Plugin, v.Reasons, v.IsUnresolvable)
		case r == nil:
			fit = append(fit, n)
			best = max(best, v.Score)
		}
	}
	if len(fit) > 0 {
		if err := s.compareScores(search, fit, verdicts); err != nil {
			return err
		}
	}
	placement, _ := search.selectNode(0)
	if (placement.Node != nil) != (len(fit) > 0) {
		return fmt.Errorf("placed on %v, %d nodes fit", placement.Node, len(fit))
	}
	if placement.Node == nil {
		return s.comparePreemption(pod, search, placement)
	}
	for _, v := range verdicts {
		if v.Node == placement.Node.Name && v.Score != best && v.Node != pod.Status.NominatedNodeName {
			return fmt.Errorf("placed on %s with a score of %d, the best is %d", v.Node, v.Score, best)
		}
	}
	return nil
}

func (s *scene) compareScores(search *search, fit []*cluster.Node, verdicts []oracle.Verdict) error {
	by := map[string]map[string]int64{}
	total := search.totalScores(fit, make([]int64, 2*len(fit)), func(name string, scores []int64) {
		for i, n := range fit {
			if by[n.Name] == nil {
				by[n.Name] = map[string]int64{}
			}
			by[n.Name][name] = scores[i]
		}
	})
	for i, n := range fit {
		for _, v := range verdicts {
			if v.Node == n.Name && v.Score != total[i] {
				return fmt.Errorf("%s: score %d of %v, the oracle says %d of %v", n.Name, total[i], by[n.Name], v.Score,
					v.Scores)
			}
		}
	}
	return nil
}

func (s *scene) comparePreemption(pod *corev1.Pod, search *search, placement Placement) error {
	ordered := *s.World // of equal nodes, the first one in search order is used
	ordered.Nodes = nil
	for _, n := range s.cluster.Nodes() {
		for _, o := range s.World.Nodes {
			if o.Name == n.Name {
				ordered.Nodes = append(ordered.Nodes, o)
			}
		}
	}
	node, victims, ok := ordered.Preempt(pod)
	got := search.preempt(placement, s.budgets)
	if (got.Node != nil) != ok {
		return fmt.Errorf("preempts on %v (%s), the oracle on %q", got.Node, got.Reason, node)
	}
	if !ok {
		return nil
	}
	var names []string
	for _, v := range got.Victims {
		names = append(names, v.Key())
	}
	slices.Sort(names)
	if got.Node.Name != node || !slices.Equal(names, victims) {
		return fmt.Errorf("preempts %v on %s, the oracle %v on %s", names, got.Node.Name, victims, node)
	}
	return nil
}

type drawnWorld struct {
	world *oracle.World
	pods  []*corev1.Pod
}

var anyWorld = rapid.Custom(func(t *rapid.T) drawnWorld {
	w, pods := oracle.Draw(t)
	return drawnWorld{w, pods}
})

// Proves S16.
func TestPlacementsMatchTheOracle(t *testing.T) {
	for seed := range worldCount(t) {
		d := anyWorld.Example(seed)
		s, err := newScene(d.world)
		if err != nil {
			t.Fatalf("cluster %d: %v", seed, err)
		}
		for _, pod := range d.pods {
			if err := s.compareNodes(pod); err != nil {
				t.Fatalf("cluster %d, pod %s: %v", seed, pod.Name, err)
			}
		}
		if err := s.cluster.Verify(); err != nil {
			t.Fatalf("cluster %d: %v", seed, err)
		}
	}
}

// applyRandomEvent applies an event to the world and to the scheduler's model.
func (s *scene) applyRandomEvent(t *rapid.T, i int) {
	choose := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	switch choose("what", 10) {
	case 0: // a node gets the labels and taints of another
		a, b := s.Nodes[choose("node", len(s.Nodes))], s.Nodes[choose("other node", len(s.Nodes))]
		n := a.DeepCopy()
		n.Labels, n.Spec.Taints, n.Spec.Unschedulable = maps.Clone(b.Labels), b.Spec.Taints, b.Spec.Unschedulable
		s.Nodes[slices.Index(s.Nodes, a)] = n
		s.cluster.SetNode(cluster.NewNode(n))
	case 1:
		if len(s.Nodes) > 1 {
			j := choose("node", len(s.Nodes))
			s.cluster.DeleteNode(s.Nodes[j].Name)
			s.Nodes = slices.Delete(slices.Clone(s.Nodes), j, j+1)
		}
	case 2:
		if len(s.Pods) > 0 {
			j := choose("pod", len(s.Pods))
			s.cluster.DeletePod(s.Pods[j].UID)
			s.Pods = slices.Delete(slices.Clone(s.Pods), j, j+1)
		}
	case 3:
		p := oracle.DrawPod(t, s.World, fmt.Sprintf("later%d", i))
		p.Status.NominatedNodeName = ""
		p.Spec.NodeName = s.Nodes[choose("node", len(s.Nodes))].Name
		p.Status.Phase = corev1.PodRunning
		s.Pods = append(s.Pods, p)
		s.setPod(p)
	case 4:
		if len(s.Pods) > 0 {
			j := choose("pod", len(s.Pods))
			p := s.Pods[j].DeepCopy()
			p.Labels["version"], p.Generation = []string{"1", "2"}[choose("version", 2)], p.Generation+1
			s.Pods = slices.Clone(s.Pods)
			s.Pods[j] = p
			s.setPod(p)
		}
	case 5:
		ns := s.Namespaces[choose("namespace", len(s.Namespaces))].DeepCopy()
		ns.Labels["team"] = []string{"x", "y"}[choose("team", 2)]
		for j := range s.Namespaces {
			if s.Namespaces[j].Name == ns.Name {
				s.Namespaces[j] = ns
			}
		}
		s.cluster.SetNamespace(ns.Name, ns.Labels)
	case 6: // a driver's capacity changes, or is not reported any more
		if len(s.Capacities) > 0 {
			j := choose("capacity", len(s.Capacities))
			s.cluster.Storage.Delete(s.Capacities[j])
			c := s.Capacities[j].DeepCopy()
			s.Capacities = slices.Delete(slices.Clone(s.Capacities), j, j+1)
			if size := resource.MustParse([]string{"0", "1Gi", "20Gi"}[choose("left", 3)]); !size.IsZero() {
				c.Capacity = &size
				s.Capacities = append(s.Capacities, c)
				s.cluster.Storage.Set(c)
			}
		}
	case 7: // a volume is detached
		if len(s.Attachments) > 0 {
			j := choose("attachment", len(s.Attachments))
			s.cluster.Storage.Delete(s.Attachments[j])
			s.Attachments = slices.Delete(slices.Clone(s.Attachments), j, j+1)
		}
	case 8: // a device class is deleted
		if len(s.DeviceClasses) > 0 {
			j := choose("class", len(s.DeviceClasses))
			s.cluster.Devices.Delete(s.DeviceClasses[j])
			s.DeviceClasses = slices.Delete(slices.Clone(s.DeviceClasses), j, j+1)
		}
	case 9: // a ResourceClaim is deleted
		if len(s.DeviceClaims) > 0 {
			j := choose("claim", len(s.DeviceClaims))
			s.cluster.Devices.Delete(s.DeviceClaims[j])
			s.DeviceClaims = slices.Delete(slices.Clone(s.DeviceClaims), j, j+1)
		}
	}
}

// The test draws a cluster, events, and pods that are scheduled between them.
// Proves S16.
func TestCountersNeverDriftByEvents(t *testing.T) {
	failed := ""
	story := rapid.Custom(func(t *rapid.T) string {
		w, pods := oracle.Draw(t)
		s, err := newScene(w)
		if err != nil {
			return err.Error()
		}
		for i := range 6 {
			if err := s.compareNodes(pods[i%len(pods)]); err != nil {
				return fmt.Sprintf("after %d events, pod %s: %v", i, pods[i%len(pods)].Name, err)
			}
			s.applyRandomEvent(t, i)
			if err := s.cluster.Verify(); err != nil {
				return fmt.Sprintf("after %d events: %v", i+1, err)
			}
		}
		return ""
	})
	for seed := range worldCount(t) {
		if failed = story.Example(seed); failed != "" {
			t.Fatalf("story %d: %s", seed, failed)
		}
	}
}
