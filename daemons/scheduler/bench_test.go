package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/run"
	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// crowdedCluster returns a cluster of nodes in three zones, with pods of ReplicaSets of 100 each.
func crowdedCluster(nodes, pods int, change ...func(*corev1.Pod)) *cluster.Cluster {
	c := cluster.New()
	for i := range nodes {
		c.SetNode(cluster.NewNode(node(fmt.Sprintf("n%d", i), zone(fmt.Sprintf("z%d", i%3)), func(n *corev1.Node) {
			n.Status.Allocatable["pods"] = resource.MustParse("500")
			n.Status.Allocatable["cpu"] = resource.MustParse("64")
		})))
	}
	for i := range pods / 100 {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("set%d", i)}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": set.Name}}
		c.SetOwner(set)
	}
	for i := range pods {
		p := pod(
			fmt.Sprintf("old%d", i),
			append(
				[]func(*corev1.Pod){ownedBy(i % max(pods/100, 1)), withRequest("cpu", "10m"),
					withNodeName(fmt.Sprintf("n%d", i%nodes))},
				change...)...)
		c.SetPod(convertPod(p), p.Spec.NodeName)
	}
	return c
}

func ownedBy(set int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		name := fmt.Sprintf("set%d", set)
		p.Labels["app"] = name
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: &yes},
		}
	}
}

// withSetAntiAffinity adds an anti-affinity to other pods of the set on the same node.
func withSetAntiAffinity(p *corev1.Pod) {
	withPodAffinity(true, corev1.LabelHostname, p.Labels["app"])(p)
}

func withSetAffinity(p *corev1.Pod) {
	withPodAffinity(false, corev1.LabelTopologyZone, p.Labels["app"])(p)
}

func withSpreadConstraints(p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}},
	}, {
		MaxSkew: 5, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}},
	}}
}

// reportCPUTime reports the CPU time per iteration, because elapsed time means little on a shared machine. Garbage is
// collected as in the daemon.
func reportCPUTime(b *testing.B) (report func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var collector sync.WaitGroup
	collector.Go(func() { run.ManageMemory(ctx, &run.IdleTasks{}) })
	b.Cleanup(func() {
		cancel()
		collector.Wait()
	})
	runtime.GC() // do not count garbage from the setup
	before := cpuTime(b)
	return func() { b.ReportMetric(1000*(cpuTime(b)-before).Seconds()/float64(b.N), "cpu-ms/op") }
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPlace measures the algorithm alone: from a pod object to a node, and counting the pod there.
func BenchmarkPlace(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{5000, 5000}, {5000, 50000}, {5000, 150000}} {
		for name, change := range map[string]func(*corev1.Pod){
			"owned": func(*corev1.Pod) {}, "affinity": withSetAffinity, "anti-affinity": withSetAntiAffinity,
			"spread": withSpreadConstraints,
		} {
			b.Run(fmt.Sprintf("%s/%d nodes/%d pods", name, size.nodes, size.pods), func(b *testing.B) {
				c := crowdedCluster(size.nodes, size.pods, change)
				by := profile.Default()
				b.ReportAllocs()
				cached := map[string]*verdicts{}
				var placed []types.UID
				start, i := 0, 0
				report := reportCPUTime(b)
				for b.Loop() {
					p := convertPod(pod(fmt.Sprintf("p%d", i), ownedBy(i/100%50), withRequest("cpu", "10m"), change))
					if cached[p.Class()] == nil {
						cached[p.Class()] = &verdicts{}
					}
					got, next := newSearch(by, c, p, cached[p.Class()]).selectNode(start)
					if got.Node == nil {
						b.Fatal(got.Explain())
					}
					start = next
					c.Assume(p, got.Node)
					if placed = append(placed, p.UID); len(placed) > 2000 { // pods end as others arrive
						c.DeletePod(placed[0])
						placed = placed[1:]
					}
					i++
				}
				report()
			})
		}
	}
}

// BenchmarkPreempt measures preemption on full nodes, with and without anti-affinity.
func BenchmarkPreempt(b *testing.B) {
	for name, change := range map[string]func(*corev1.Pod){"plain": func(*corev1.Pod) {},
		"anti-affinity": withSetAntiAffinity} {
		b.Run(name, func(b *testing.B) {
			c := crowdedCluster(5000, 50000, func(p *corev1.Pod) { withRequest("cpu", "6400m")(p); change(p) })
			b.ReportAllocs()
			report := reportCPUTime(b)
			for b.Loop() {
				s := newTestSearch(c, convertPod(pod("boss", priority(9), ownedBy(1), withRequest("cpu", "1"), change)))
				refused, _ := s.selectNode(0)
				if got := s.preempt(refused, nil); got.Node == nil {
					b.Fatal(got.Reason)
				}
			}
			report()
		})
	}
}

// BenchmarkEvent measures one event with 50,000 waiting pods of 500 templates, none of which it helps.
func BenchmarkEvent(b *testing.B) {
	s := &scheduler{
		cluster:  crowdedCluster(100, 100),
		settings: profile.DefaultSettings(),
		queue:    newQueue(newClock().now, profile.DefaultSettings()),
	}
	for i := range 50000 {
		s.queue.addOrUpdate(convertPod(pod(fmt.Sprintf("w%d", i), ownedBy(i/100), withRequest("cpu", "100"))))
	}
	for {
		it, ok := s.queue.pop()
		if !ok {
			break
		}
		s.queue.refuse(it, helpfulEvents(insufficientResources.plugins), insufficientResources)
	}
	n := s.cluster.Node("n1")
	b.ReportAllocs()
	report := reportCPUTime(b)
	for b.Loop() {
		s.activateHelped(plugin.ClusterEvent{EventKind: plugin.PodGone, Node: n})
	}
	report()
	if _, _, parked, _ := s.queue.lengths(); parked != 50000 {
		b.Fatalf("%d wait", parked)
	}
}
