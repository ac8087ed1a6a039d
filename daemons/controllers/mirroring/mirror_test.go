package mirroring

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// subset returns a subset with a port and addresses. Addresses that end in ! are not ready.
func subset(port int32, addresses ...string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "http", Port: port, Protocol: corev1.ProtocolTCP}}}
	for _, a := range addresses {
		if ip, waiting := strings.CutSuffix(a, "!"); waiting {
			s.NotReadyAddresses = append(s.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
		} else {
			s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
		}
	}
	return s
}

func newEndpoints(subsets ...corev1.EndpointSubset) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "legacy", UID: "e"},
		Subsets:    subsets,
	}
}

func manyAddresses(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1))
	}
	return all
}

// apply applies changes as the server would.
func apply(now []*discoveryv1.EndpointSlice, m Mirrored, names *int) []*discoveryv1.EndpointSlice {
	left := map[string]*discoveryv1.EndpointSlice{}
	var order []string
	for _, list := range [][]*discoveryv1.EndpointSlice{now, m.Update, m.Create} {
		for _, s := range list {
			if s.Name == "" {
				*names++
				s.Name = fmt.Sprint(s.GenerateName, *names)
			}
			if left[s.Name] == nil {
				order = append(order, s.Name)
			}
			left[s.Name] = s
		}
	}
	for _, s := range m.Delete {
		delete(left, s.Name)
	}
	var out []*discoveryv1.EndpointSlice
	for _, name := range order {
		if left[name] != nil {
			out = append(out, left[name])
		}
	}
	return out
}

func slicesText(all []*discoveryv1.EndpointSlice) string {
	var lines []string
	for _, s := range all {
		line := fmt.Sprint(s.AddressType)
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s/%d", *p.Name, *p.Port)
		}
		if len(s.Endpoints) > 5 {
			lines = append(lines, fmt.Sprintf("%s: %d", line, len(s.Endpoints)))
			continue
		}
		line += ":"
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
			if !*e.Conditions.Ready {
				line += "!"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestMirror(t *testing.T) {
	for name, c := range map[string]struct {
		subsets          []corev1.EndpointSubset
		want             string
		invalid, skipped int
	}{
		"no subsets": {nil, "", 0, 0},
		"ready and not": {[]corev1.EndpointSubset{subset(80, "192.0.2.2!", "192.0.2.1")}, "IPv4 http/80: " +
			"192.0.2.1 192.0.2.2!", 0, 0},
		"both families": {[]corev1.EndpointSubset{subset(80, "192.0.2.1", "2001:db8::1")}, "IPv4 http/80: " +
			"192.0.2.1; IPv6 http/80: 2001:db8::1", 0, 0},
		"several ports": {[]corev1.EndpointSubset{subset(80, "192.0.2.1"), subset(81, "192.0.2.1")},
			"IPv4 http/80: 192.0.2.1; IPv4 http/81: 192.0.2.1", 0, 0},
		"the same ports twice": {[]corev1.EndpointSubset{subset(80, "192.0.2.1"), subset(80, "192.0.2.2")},
			"IPv4 http/80: 192.0.2.1 192.0.2.2", 0, 0},
		"old spelling": {[]corev1.EndpointSubset{subset(80, "192.000.002.001")}, "IPv4 http/80: " +
			"192.0.2.1", 0, 0},
		"what is no address": {[]corev1.EndpointSubset{subset(80, "here", "192.0.2.1")}, "IPv4 http/80: " +
			"192.0.2.1", 1, 1},
		"too many": {[]corev1.EndpointSubset{subset(80, append(manyAddresses(1001), "192.0.2.1!")...)},
			"IPv4 http/80: 1000", 0, 2},
		"too many together": {[]corev1.EndpointSubset{subset(80, manyAddresses(1000)...), subset(80, "192.0.2.1")},
			"IPv4 http/80: 1000; IPv4 http/80: 192.0.2.1", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			names := 0
			m := Mirror(newEndpoints(c.subsets...), nil)
			if m.Invalid != c.invalid || m.Skipped != c.skipped {
				t.Errorf("%d invalid, %d skipped", m.Invalid, m.Skipped)
			}
			now := apply(nil, m, &names)
			if got := slicesText(now); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if again := Mirror(newEndpoints(c.subsets...), now); len(again.Create)+len(again.Update)+
				len(again.Delete) > 0 {
				t.Errorf("mirrored again: %d, %d, %d", len(again.Create), len(again.Update), len(again.Delete))
			}
		})
	}
}

func TestMirrorsFollowTheirEndpoints(t *testing.T) {
	now, names := []*discoveryv1.EndpointSlice(nil), 0
	e := newEndpoints(subset(80, "192.0.2.1"))
	for _, step := range []struct {
		name                    string
		change                  func()
		create, update, deleted int
	}{
		{"made", func() {}, 1, 0, 0},
		{"an address more", func() { e.Subsets = append(e.Subsets, subset(80, "192.0.2.2")) }, 0, 1, 0},
		{"a label", func() { e.Labels = map[string]string{"team": "shop"} }, 0, 1, 0},
		{"an annotation", func() { e.Annotations = map[string]string{"note": "old"} }, 0, 1, 0},
		{"what is about the writing of the Endpoints", func() {
			e.Annotations[corev1.LastAppliedConfigAnnotation],
				e.Annotations[corev1.EndpointsLastChangeTriggerTime] = "{}", "2031-01-01T00:00:00Z"
		}, 0, 0, 0},
		{"a host name", func() { e.Subsets[0].Addresses[0].Hostname = "first" }, 0, 1, 0},
		{"made again", func() { e.UID = "again" }, 0, 1, 0},
		{"another port", func() { e.Subsets = []corev1.EndpointSubset{subset(81, "192.0.2.1")} }, 0, 1, 0},
		{"nothing left", func() { e.Subsets = nil }, 0, 0, 1},
	} {
		step.change()
		m := Mirror(e, now)
		if len(m.Create) != step.create || len(m.Update) != step.update || len(m.Delete) != step.deleted {
			t.Errorf("%s: %d created, %d updated, %d deleted", step.name, len(m.Create), len(m.Update), len(m.Delete))
		}
		now = apply(now, m, &names)
	}
}

func TestSlicesCopyLabelsAndAnnotations(t *testing.T) {
	node := "n1"
	e := newEndpoints(subset(80, "192.0.2.1"))
	e.Labels = map[string]string{"team": "shop", discoveryv1.LabelManagedBy: "me"}
	e.Annotations = map[string]string{"note": "old", corev1.LastAppliedConfigAnnotation: "{}"}
	e.Subsets[0].Addresses[0].Hostname, e.Subsets[0].Addresses[0].NodeName = "first", &node
	e.Subsets[0].Addresses[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p"}
	s := Mirror(e, nil).Create[0]
	if got := fmt.Sprint(s.GenerateName, s.Labels, s.Annotations, s.OwnerReferences[0].Kind,
		s.OwnerReferences[0].UID); got !=
		"legacy-map[endpointslice.kubernetes.io/managed-by:endpointslicemirroring-controller.k8s.io "+
			"kubernetes.io/service-name:legacy team:shop] map[note:old]Endpointse" {
		t.Error(got)
	}
	if p := s.Endpoints[0]; *p.Hostname != "first" || *p.NodeName != "n1" || p.TargetRef.Name != "p" ||
		p.Conditions.Serving != nil ||
		p.Conditions.Terminating != nil {
		t.Errorf("endpoint: %+v", p)
	}
}

func TestMirroredEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Endpoints)
		want   bool
	}{
		"any": {func(*corev1.Endpoints) {}, true},
		"told not to": {func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} },
			false},
		"not told": {func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "false"} },
			true},
		"a lock": {func(e *corev1.Endpoints) {
			e.Annotations = map[string]string{leaderAnnotation: ""}
		}, false},
		"another note": {func(e *corev1.Endpoints) { e.Annotations = map[string]string{"note": ""} }, true},
	} {
		e := newEndpoints()
		c.change(e)
		if got := isMirrorable(e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, c := range map[string]struct {
		spec corev1.ServiceSpec
		want bool
	}{
		"no selector":    {corev1.ServiceSpec{}, false},
		"a selector":     {corev1.ServiceSpec{Selector: map[string]string{"app": "x"}}, true},
		"another's name": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, true},
	} {
		if got := hasOwnSlices(&corev1.Service{Spec: c.spec}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
