package rules

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/nft"
)

// hintedSlice returns endpoints as slice does. Each may be followed by a colon and its hints, zone=a or node=me,
// separated by commas.
func hintedSlice(endpoints ...string) *discoveryv1.EndpointSlice {
	var addresses []string
	for _, e := range endpoints {
		address, _, _ := strings.Cut(e, ":")
		addresses = append(addresses, address)
	}
	s := slice(80, addresses...)
	for i, e := range endpoints {
		_, hints, ok := strings.Cut(e, ":")
		if !ok {
			continue
		}
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{}
		for _, hint := range strings.Split(hints, ",") {
			if zone, ok := strings.CutPrefix(hint, "zone="); ok {
				s.Endpoints[i].Hints.ForZones = append(s.Endpoints[i].Hints.ForZones, discoveryv1.ForZone{Name: zone})
			} else if node, ok := strings.CutPrefix(hint, "node="); ok {
				s.Endpoints[i].Hints.ForNodes = append(s.Endpoints[i].Hints.ForNodes, discoveryv1.ForNode{Name: node})
			}
		}
	}
	return s
}

func formatEndpoints(endpoints []Endpoint) string {
	var all []string
	for _, e := range endpoints {
		all = append(all, strings.TrimPrefix(e.To.Addr().String(), "10.0.0."))
	}
	return strings.Join(all, " ")
}

func TestHintsSelectTheEndpointsOfAMachine(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints []string
		zone      string
		want      string
	}{
		"no hints": {[]string{"10.0.0.1", "10.0.0.2"}, "a", "1 2"},
		"its zone's": {[]string{"10.0.0.1:zone=a", "10.0.0.2:zone=b", "10.0.0.3:zone=b,zone=a"},
			"a", "1 3"},
		"another zone's":                {[]string{"10.0.0.1:zone=b", "10.0.0.2:zone=c"}, "a", "1 2"},
		"a zone that is not known":      {[]string{"10.0.0.1:zone=b", "10.0.0.2:zone=c"}, "", "1 2"},
		"one without a hint":            {[]string{"10.0.0.1:zone=a", "10.0.0.2:zone=b", "10.0.0.3"}, "a", "1 2 3"},
		"one without that is not ready": {[]string{"10.0.0.1:zone=a", "10.0.0.2:zone=b", "10.0.0.3-"}, "a", "1"},
		"its own": {[]string{"10.0.0.1:zone=a,node=me", "10.0.0.2:zone=a,node=other"}, "a",
			"1"},
		"its zone's where it has none":    {[]string{"10.0.0.1:zone=a,node=x", "10.0.0.2:zone=b,node=y"}, "a", "1"},
		"one without a hint for a node":   {[]string{"10.0.0.1:zone=a,node=me", "10.0.0.2:zone=a"}, "a", "1 2"},
		"its own that is here":            {[]string{"10.0.0.1!:node=me", "10.0.0.2"}, "a", "1"},
		"its own here, and another's":     {[]string{"10.0.0.1!:node=me", "10.0.0.2:node=me"}, "a", "1"},
		"its own here is not ready":       {[]string{"10.0.0.1!-:node=me", "10.0.0.2"}, "a", "2"},
		"one here for another":            {[]string{"10.0.0.1!:node=other", "10.0.0.2"}, "a", "1 2"},
		"its zone's is not ready":         {[]string{"10.0.0.1-:zone=a", "10.0.0.2:zone=b"}, "a", "2"},
		"those that are ending, the last": {[]string{"10.0.0.1~:zone=a", "10.0.0.2~:zone=b"}, "a", "1 2"},
	} {
		ports := Ports(service("web", "10.96.0.1", nil), []*discoveryv1.EndpointSlice{hintedSlice(c.endpoints...)},
			nft.IPv4, Location{"me", c.zone})
		if got := formatEndpoints(ports[0].Endpoints); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Hints do not affect external traffic to a service with a Local policy. Flows continue to endpoints that are now
// hinted for other machines.
func TestHintsAffectNeitherLocalTrafficNorFlows(t *testing.T) {
	local := service("web", "10.96.0.1",
		func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	ports := func(endpoints ...string) []Port {
		return Ports(local, []*discoveryv1.EndpointSlice{hintedSlice(endpoints...)}, nft.IPv4, Location{"me", "a"})
	}
	before, after := ports("10.0.0.1!", "10.0.0.2", "10.0.0.3"), ports("10.0.0.1!:zone=b", "10.0.0.2:zone=a",
		"10.0.0.3:zone=b")
	if p := after[0]; formatEndpoints(p.Endpoints) != "2" || formatEndpoints(p.LocalEndpoints) != "1" ||
		p.ReadyLocal != 1 || formatEndpoints(p.usedEndpoints()) != "1 2" {
		t.Errorf("endpoints %s, here %s (%d)", formatEndpoints(p.Endpoints), formatEndpoints(p.LocalEndpoints),
			p.ReadyLocal)
	}
	var forget StaleFlows
	if forget.AddChange(before, after); !forget.IsEmpty() {
		t.Errorf("flows to %v are forgotten", forget)
	}
	// An endpoint of other machines is removed later.
	forget.AddChange(after, ports("10.0.0.1!:zone=b", "10.0.0.2:zone=a"))
	if len(forget.Endpoints) != 1 || forget.Endpoints[0].To.String() != "10.0.0.3:80" {
		t.Errorf("flows to %v are forgotten", forget)
	}
}
