package endpoints

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "s"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.5",
			Selector:  map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")}},
		},
	}
}

func pod(i int, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      fmt.Sprintf("web-%d", i),
			UID:       types.UID(fmt.Sprint(i)),
			Labels:    map[string]string{"app": "web"},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1",
			Containers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.244.%d.%d", i/250, i%250+2),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

var emptyTopology = Topology{Zone: func(string) string { return "" }}

// Proves S20.
func TestSlicesFollowTheirPods(t *testing.T) {
	ready, waiting, leaving, finished := pod(1, true), pod(2, false), pod(3, true), pod(4, true)
	leaving.DeletionTimestamp = &metav1.Time{}
	finished.Status.Phase = corev1.PodSucceeded
	c := Plan(service(), []*corev1.Pod{ready, waiting, leaving, finished}, nil, emptyTopology)
	if len(c.Create) != 1 || len(c.Update)+len(c.Delete) != 0 {
		t.Fatalf("changes: %+v", c)
	}
	slice := c.Create[0]
	if *slice.Ports[0].Port != 8080 || slice.Labels[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("slice: %+v", slice)
	}
	var got []string
	for _, e := range slice.Endpoints {
		got = append(got, fmt.Sprintf("%s ready=%v serving=%v terminating=%v", e.TargetRef.Name, *e.Conditions.Ready,
			*e.Conditions.Serving, *e.Conditions.Terminating))
	}
	want := "[web-1 ready=true serving=true terminating=false web-2 ready=false serving=false terminating=false " +
		"web-3 ready=false serving=true terminating=true]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Watchers see a service's slices at every moment, so a slice with other ports replaces the existing one.
func TestSlicesAreReplacedWhenPortsChange(t *testing.T) {
	ready, other := pod(1, true), pod(2, true)
	other.Spec.Containers[0].Ports[0].ContainerPort = 9090
	names := 0
	of := func(pods ...*corev1.Pod) []*discoveryv1.EndpointSlice {
		list := apply(nil, Plan(service(), pods, nil, emptyTopology), &names)
		for _, s := range list {
			s.UID, s.ResourceVersion = types.UID("of-"+s.Name), "7"
		}
		return list
	}
	former := of(ready)
	former[0].OwnerReferences[0].UID = "former"
	deleted := of(ready)
	deleted[0].DeletionTimestamp = &metav1.Time{}
	named := of(ready)
	named[0].AddressType = discoveryv1.AddressTypeIPv6
	for name, c := range map[string]struct {
		existing []*discoveryv1.EndpointSlice
		pods     []*corev1.Pod
		want     string // "created, updated, deleted"
	}{
		"the placeholder":                   {of(), []*corev1.Pod{ready}, "0 1 0"},
		"the placeholder of pods of two":    {of(), []*corev1.Pod{ready, other}, "1 1 0"},
		"the last pod goes":                 {of(ready), nil, "0 1 0"},
		"all pods have another port":        {of(ready), []*corev1.Pod{other}, "0 1 0"},
		"two become one":                    {of(ready, other), []*corev1.Pod{other}, "0 0 1"},
		"two become none":                   {of(ready, other), nil, "0 1 1"},
		"of a former service":               {former, []*corev1.Pod{other}, "1 0 1"},
		"of another family":                 {named, []*corev1.Pod{other}, "1 0 1"},
		"one that is being deleted already": {deleted, []*corev1.Pod{other}, "1 0 0"},
	} {
		p := Plan(service(), c.pods, c.existing, emptyTopology)
		if got := fmt.Sprint(len(p.Create), len(p.Update), len(p.Delete)); got != c.want {
			t.Errorf("%s: created, updated, deleted are %s, want %s", name, got, c.want)
		}
		for _, s := range p.Update {
			if s.UID == "" || s.ResourceVersion != "7" ||
				len(c.pods) > 0 && (len(s.Ports) != 1 || len(s.Endpoints) != 1) ||
				len(c.pods) == 0 && len(s.Ports)+len(s.Endpoints) > 0 {
				t.Errorf("%s: the updated slice is %+v", name, s)
			}
		}
	}
}

// After a plan is applied, planning again changes nothing. Every pod with an address is in exactly one slice, and no
// slice exceeds its size.
// Proves S20.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var slices []*discoveryv1.EndpointSlice
		names := 0
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			var pods []*corev1.Pod
			for i := range 300 {
				if rapid.IntRange(0, 2).Draw(t, "there") > 0 {
					pods = append(pods, pod(i, rapid.Bool().Draw(t, "ready")))
				}
			}
			slices = apply(slices, Plan(service(), pods, slices, emptyTopology), &names)
			seen := map[string]int{}
			for _, s := range slices {
				if len(s.Endpoints) > sliceSize {
					t.Fatalf("a slice of %d", len(s.Endpoints))
				}
				for _, e := range s.Endpoints {
					seen[targetUID(e)]++
				}
			}
			for _, p := range pods {
				if seen[string(p.UID)] != 1 {
					t.Fatalf("pod %s is in %d slices", p.Name, seen[string(p.UID)])
				}
			}
			if len(seen) != len(pods) {
				t.Fatalf("%d endpoints of %d pods", len(seen), len(pods))
			}
			if again := Plan(service(), pods, slices, emptyTopology); len(again.Create)+len(again.Update)+len(
				again.Delete,
			) > 0 {
				t.Fatalf("a second plan changes: %d, %d, %v", len(again.Create), len(again.Update), again.Delete)
			}
		}
	})
}

func apply(slices []*discoveryv1.EndpointSlice, c Planned, names *int) []*discoveryv1.EndpointSlice {
	removed := map[string]bool{}
	for _, s := range c.Delete {
		removed[s.Name] = true
	}
	for _, s := range c.Update {
		removed[s.Name] = true
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range slices {
		if !removed[s.Name] {
			out = append(out, s)
		}
	}
	for _, s := range c.Create {
		*names++
		s.Name = fmt.Sprintf("%s%d", s.GenerateName, *names)
		out = append(out, s)
	}
	return append(out, c.Update...)
}

// Proves S20.
func TestEndpointsGroupByPort(t *testing.T) {
	other := pod(2, true)
	other.Spec.Containers[0].Ports[0].ContainerPort = 9090
	subsets := Subsets(service(), []*corev1.Pod{pod(1, true), other, pod(3, false)})
	if len(subsets) != 2 || subsets[0].Ports[0].Port != 8080 || len(subsets[0].NotReadyAddresses) != 1 ||
		subsets[1].Ports[0].Port != 9090 {
		t.Errorf("subsets: %+v", subsets)
	}
}
