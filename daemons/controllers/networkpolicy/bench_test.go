package networkpolicy

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// newMembers returns n pods of web in the namespace shop, each with an address.
func newMembers(n int) (all []*corev1.Pod) {
	for i := range n {
		all = append(all, newPod("shop", "app=web", fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, i%250+1)))
	}
	return all
}

const (
	benchNamespaces = 100
	benchPods       = 100 // in each namespace
	benchPolicies   = 10  // in each namespace
)

func benchApp(i int) string { return fmt.Sprintf("app=a%d", i) }

// BenchmarkPodEvent measures the event of one new pod with 10,000 pods in 100 namespaces and 1,000 policies: finding
// its groups, and planning their slices. It sends nothing.
func BenchmarkPodEvent(b *testing.B) {
	for _, c := range []struct {
		name string
		peer func(namespace, i int) networkingv1.NetworkPolicyPeer
	}{
		{"groups-of-namespaces", func(_, i int) networkingv1.NetworkPolicyPeer {
			return networkingv1.NetworkPolicyPeer{PodSelector: parseSelector(benchApp(i))}
		}},
		{"groups-of-chosen-namespaces", func(ns, i int) networkingv1.NetworkPolicyPeer {
			return networkingv1.NetworkPolicyPeer{PodSelector: parseSelector(benchApp(i)),
				NamespaceSelector: parseSelector(fmt.Sprintf("team=t%d", ns))}
		}},
		{"and-one-of-all-pods", func(ns, i int) networkingv1.NetworkPolicyPeer {
			if ns == 0 && i == 0 {
				return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
			}
			return networkingv1.NetworkPolicyPeer{PodSelector: parseSelector(benchApp(i))}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			client := fake.NewClientset()
			factory := informers.New(client)
			n := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler)}).(*controller)
			pods, names := informers.Pods(factory).
				Informer().
				GetIndexer(),
				informers.Namespaces(factory).
					Informer().
					GetIndexer()
			add := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			addBenchPods(b, n, names, pods, c.peer)
			named := 0
			writes := func(name string) int {
				g := n.groups.get(name)
				found, err := n.members(g)
				add(err)
				existing, err := n.slicesOf(name)
				add(err)
				changes := planChanges(name, groupAddresses(found, g.Ports), existing)
				if len(existing) == 0 {
					for _, s := range applyChanges(nil, changes, &named) {
						add(n.slices.Add(s))
					}
				}
				return len(changes.Create) + len(changes.Update) + len(changes.Delete)
			}
			for name := range n.groups.byName {
				writes(name)
			}
			comes := newPod("n0", benchApp(1), "10.2.0.1")
			add(pods.Add(comes))
			b.ReportAllocs()
			woken, written := 0, 0
			for b.Loop() {
				woken, written = 0, 0
				for _, name := range n.groups.ofPod(nil, comes, n.namespaceLabels) {
					woken++
					written += writes(name)
				}
			}
			b.ReportMetric(float64(woken), "groups")
			b.ReportMetric(float64(written), "writes")
		})
	}
}

// addBenchPods adds all namespaces, pods and policies.
func addBenchPods(b *testing.B, n *controller, names, pods cache.Indexer,
	peer func(namespace, i int) networkingv1.NetworkPolicyPeer) {
	add := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for ns := range benchNamespaces {
		name := fmt.Sprintf("n%d", ns)
		add(
			names.Add(
				&corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: parseLabels(fmt.Sprintf("team=t%d", ns))},
				},
			),
		)
		for i := range benchPods {
			add(pods.Add(newPod(name, benchApp(i%benchPolicies), fmt.Sprintf("10.1.%d.%d", ns, i+1))))
		}
		for i := range benchPolicies {
			n.groups.policyChanged(nil, newPolicy(name, peer(ns, i)))
		}
	}
}

// BenchmarkUnrelatedPodEvent measures a change of a pod that no group depends on.
func BenchmarkUnrelatedPodEvent(b *testing.B) {
	g := newGroups()
	for ns := range benchNamespaces {
		for i := range benchPolicies {
			g.policyChanged(nil, newPolicy(fmt.Sprintf("n%d", ns),
				networkingv1.NetworkPolicyPeer{PodSelector: parseSelector(benchApp(i))}))
		}
	}
	before, after := newPod("n0", benchApp(1), "10.2.0.1"), newPod("n0", benchApp(1), "10.2.0.1")
	after.Status.Conditions = make([]corev1.PodCondition, 1)
	b.ReportAllocs()
	for b.Loop() {
		g.ofPod(before, after, namespaceLabels)
	}
}
