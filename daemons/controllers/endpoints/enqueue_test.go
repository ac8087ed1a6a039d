package endpoints

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestNodeChangesEnqueueAffectedServices(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		if change != nil {
			change(n)
		}
		return n
	}
	first := node(nil)
	for name, c := range map[string]struct {
		before, after *corev1.Node
		woken         int
	}{
		"a heartbeat": {first,
			node(func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }), 0},
		"another zone": {first, node(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "b" }), 2},
		"no longer ready": {first,
			node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), 1},
		"less CPU": {first, node(func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		}), 1},
		"it joins":  {nil, first, 1},
		"it leaves": {first, nil, 1},
	} {
		plain, auto, byHand := service(), service(), service()
		auto.Name, auto.Annotations = "auto", map[string]string{corev1.AnnotationTopologyMode: "Auto"}
		byHand.Name, byHand.Spec.Selector = "by-hand", nil
		services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		for _, s := range []*corev1.Service{plain, auto, byHand} {
			if err := services.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		s := &sliceController{services: corelisters.NewServiceLister(services)}
		var before, after any // untyped nil if missing, as the informer passes it
		if c.before != nil {
			before = c.before
		}
		if c.after != nil {
			after = c.after
		}
		s.nodeChanged(before, after)
		if got := s.Queue().Len(); got != c.woken {
			t.Errorf("%s: %d services are woken, want %d", name, got, c.woken)
		}
	}
}

func TestPodChangesEnqueueSelectingServices(t *testing.T) {
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{selectorIndex: byFirstPair})
	for name, selector := range map[string]map[string]string{
		"by-app": {"app": "web"}, "by-both": {"app": "web", "tier": "front"},
		"another-tier": {"app": "web", "tier": "back"}, "empty-value": {"app": ""},
		"by-hand": nil, "elsewhere/by-app": {"app": "web"},
	} {
		s := service()
		s.Name, s.Spec.Selector = name, selector
		if namespace, rest, other := strings.Cut(name, "/"); other {
			s.Namespace, s.Name = namespace, rest
		}
		if err := services.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"one label": {map[string]string{"app": "web"}, []string{"by-app"}},
		"two": {map[string]string{"app": "web", "tier": "front", "x": "y"},
			[]string{"by-app", "by-both"}},
		"a value that differs": {map[string]string{"app": "shop", "tier": "front"}, nil},
		"an empty value":       {map[string]string{"app": ""}, []string{"empty-value"}},
		"none":                 {nil, nil},
	} {
		var got []string
		forEachSelecting(services, service().Namespace, c.labels, func(s *corev1.Service) { got = append(got, s.Name) })
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q are woken, want %q", name, got, c.want)
		}
	}
}
