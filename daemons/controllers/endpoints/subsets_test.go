package endpoints

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEndpointsAreTruncatedAtTheirCapacity(t *testing.T) {
	subset := func(ready, waiting int) corev1.EndpointSubset {
		return corev1.EndpointSubset{
			Addresses:         make([]corev1.EndpointAddress, ready),
			NotReadyAddresses: make([]corev1.EndpointAddress, waiting),
		}
	}
	for name, c := range map[string]struct {
		subsets []corev1.EndpointSubset
		want    string
		cut     bool
	}{
		"there is room":             {[]corev1.EndpointSubset{subset(6, 2), subset(1, 1)}, "6+2 1+1 ", false},
		"those that are ready stay": {[]corev1.EndpointSubset{subset(2, 20), subset(4, 20)}, "2+2 4+2 ", true},
		"every subset has a share":  {[]corev1.EndpointSubset{subset(12, 5), subset(8, 5)}, "6+0 4+0 ", true},
		"rounded up, the last less": {[]corev1.EndpointSubset{subset(5, 0), subset(5, 0), subset(5, 0)}, "4+0 4+0 2+0 ",
			true},
		"none is left empty": {[]corev1.EndpointSubset{subset(11, 0), subset(0, 3)}, "10+0 ", true},
	} {
		got, cut := truncate(c.subsets, 10)
		text := ""
		for _, s := range got {
			text += fmt.Sprintf("%d+%d ", len(s.Addresses), len(s.NotReadyAddresses))
		}
		if text != c.want || cut != c.cut {
			t.Errorf("%s: got %q (%v), want %q", name, text, cut, c.want)
		}
	}
}

func TestTruncatedEndpointsAreAnnotated(t *testing.T) {
	var pods []*corev1.Pod
	for i := range maxAddresses + 1 {
		pods = append(pods, pod(i, true))
	}
	full := newEndpoints(service(), pods)
	if n := len(full.Subsets[0].Addresses); n != maxAddresses ||
		full.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Errorf("%d addresses, %v", n, full.Annotations)
	}
	fits := newEndpoints(service(), pods[1:])
	if n := len(fits.Subsets[0].Addresses); n != maxAddresses || len(fits.Annotations) > 0 {
		t.Errorf("%d addresses, %v", n, fits.Annotations)
	}
	if equalEndpoints(full, fits) {
		t.Error("an annotation that has to go is no change")
	}
}

func TestEndpointsHaveTheLabelsOfTheService(t *testing.T) {
	s := service()
	s.Labels = map[string]string{"team": "shop", corev1.IsHeadlessService: "", managedLabel: "me"}
	if got := fmt.Sprint(newEndpoints(s,
		nil).Labels); got != "map[endpoints.kubernetes.io/managed-by:endpoint-controller "+
		"team:shop]" {
		t.Error(got)
	}
	s.Spec.ClusterIP, s.Labels = corev1.ClusterIPNone, nil
	if got := fmt.Sprint(newEndpoints(s,
		nil).Labels); got != "map[endpoints.kubernetes.io/managed-by:endpoint-controller "+
		"service.kubernetes.io/headless:]" {
		t.Error(got)
	}
	if _, ok := sliceLabels(s)[corev1.IsHeadlessService]; !ok {
		t.Error("the slices of a headless service are not marked")
	}
}

func TestServicePortsOfAPod(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	none, sidecar, initial := pod(1, true), pod(2, true), pod(3, true)
	none.Spec.Containers[0].Ports = nil
	for _, p := range []*corev1.Pod{sidecar, initial} {
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
	}
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	subsets := Subsets(service(), []*corev1.Pod{none, sidecar, initial})
	if len(subsets) != 1 || len(subsets[0].Addresses) != 1 || subsets[0].Addresses[0].TargetRef.Name != "web-2" {
		t.Errorf("subsets: %+v", subsets)
	}
	headless := service()
	headless.Spec.ClusterIP, headless.Spec.Ports = corev1.ClusterIPNone, nil
	if subsets = Subsets(headless, []*corev1.Pod{none, sidecar}); len(subsets) != 1 || len(subsets[0].Addresses) != 2 ||
		len(subsets[0].Ports) != 0 {
		t.Errorf("without ports: %+v", subsets)
	}
}

func TestPublishNotReadyAddresses(t *testing.T) {
	s, waiting, leaving := service(), pod(1, false), pod(2, false)
	leaving.DeletionTimestamp = &metav1.Time{}
	waiting.Spec.Hostname, waiting.Spec.Subdomain = "first", "web"
	leaving.Spec.Hostname, leaving.Spec.Subdomain = "second", "other"
	for _, publish := range []bool{false, true} {
		s.Spec.PublishNotReadyAddresses = publish
		got := ""
		for _, e := range Plan(s, []*corev1.Pod{waiting, leaving}, nil, emptyTopology).Create[0].Endpoints {
			got += fmt.Sprintf("%v %v %v;", *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
			if (e.Hostname != nil) != (e.TargetRef.Name == "web-1") {
				t.Errorf("%s has the host name %v", e.TargetRef.Name, e.Hostname)
			}
		}
		if want := fmt.Sprintf("%v false false;%v false true;", publish, publish); got != want {
			t.Errorf("slices: got %s, want %s", got, want)
		}
		subset, want := Subsets(s, []*corev1.Pod{waiting, leaving})[0], "0 1"
		if publish {
			want = "2 0"
		}
		if got := fmt.Sprint(len(subset.Addresses), len(subset.NotReadyAddresses)); got != want {
			t.Errorf("subsets: got %s, want %s", got, want)
		}
	}
}

// Each family has its own slices, and an empty one if no pod has an address of that family.
func TestEachFamilyHasItsOwnSlices(t *testing.T) {
	s, names := service(), 0
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	one, two := pod(1, true), pod(2, true)
	see := func(pods []*corev1.Pod, now []*discoveryv1.EndpointSlice, want string) []*discoveryv1.EndpointSlice {
		t.Helper()
		now = apply(now, Plan(s, pods, now, emptyTopology), &names)
		got := ""
		for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			for _, slice := range now {
				if slice.AddressType == kind {
					got += fmt.Sprintf("%s %d;", kind, len(slice.Endpoints))
				}
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		return now
	}
	now := see([]*corev1.Pod{one, two}, nil, "IPv4 2;IPv6 0;")
	both := two.DeepCopy()
	both.Status.PodIPs = []corev1.PodIP{{IP: both.Status.PodIP}, {IP: "fd00::2"}}
	now = see([]*corev1.Pod{one, both}, now, "IPv4 2;IPv6 1;")
	s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
	see([]*corev1.Pod{one, both}, now, "IPv4 2;")
}

// Slices of a deleted service of the same name are not reused, since the garbage collector deletes them.
func TestSlicesOfADeletedServiceAreNotReused(t *testing.T) {
	s, names := service(), 0
	now := apply(nil, Plan(s, []*corev1.Pod{pod(1, true)}, nil, emptyTopology), &names)
	s.UID = "again"
	if p := Plan(s, []*corev1.Pod{pod(1, true)}, now, emptyTopology); len(p.Create) != 1 || len(p.Update) != 0 ||
		len(p.Delete) != 1 {
		t.Errorf("%d created, %d updated, %d deleted", len(p.Create), len(p.Update), len(p.Delete))
	}
}

func TestTriggerTimeIsTheEarliestChange(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2031, 1, 1, 0, 0, second, 0, time.UTC) }
	s := service()
	s.CreationTimestamp = metav1.Time{Time: at(1)}
	since := func(i, second int) *corev1.Pod {
		p := pod(i, true)
		p.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: at(second)}
		return p
	}
	unready := func(p *corev1.Pod) *corev1.Pod {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		return p
	}
	var l lastChanges
	for _, step := range []struct {
		pods []*corev1.Pod
		want time.Time
	}{
		{[]*corev1.Pod{since(1, 5)}, at(1)}, // a new service
		{[]*corev1.Pod{since(1, 5), since(2, 9), since(3, 7)}, at(7)},
		{[]*corev1.Pod{since(1, 5), since(2, 9), since(3, 7)}, time.Time{}},
		{[]*corev1.Pod{since(1, 5)}, time.Time{}}, // deleted pods have no time
		{[]*corev1.Pod{since(1, 11)}, at(11)},
		{[]*corev1.Pod{unready(since(1, 11))}, at(11)}, // within the same second
	} {
		for range 2 { // changes that were not recorded count again
			if got, _ := l.since("shop/web", s, step.pods); !got.Equal(step.want) {
				t.Fatalf("got %v, want %v", got, step.want)
			}
		}
		_, seen := l.since("shop/web", s, step.pods)
		l.record("shop/web", seen)
	}
	o := &metav1.ObjectMeta{}
	setTriggerTime(o, at(7))
	if got := o.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != "2031-01-01T00:00:07Z" {
		t.Error(got)
	}
	if setTriggerTime(o, time.Time{}); len(o.Annotations) != 0 {
		t.Error(o.Annotations)
	}
}
