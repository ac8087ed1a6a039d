package networkpolicy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/api/peers"
)

func newPod(namespace, text, ip string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p" + ip, UID: "u", Labels: parseLabels(text)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, one := range strings.Fields(ip) {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: one})
	}
	return p
}

// parseLabels parses labels such as "a=1 b=2".
func parseLabels(text string) labels.Set {
	out := labels.Set{}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		out[key] = value
	}
	return out
}

func parseSelector(text string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: parseLabels(text)}
}

// newPolicy returns a policy that allows ingress from peers.
func newPolicy(namespace string, from ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from}}}}
}

// testPeers maps names to the groups of this test.
var testPeers = map[string]networkingv1.NetworkPolicyPeer{
	"web in shop":       {PodSelector: parseSelector("app=web")},
	"all in shop":       {PodSelector: &metav1.LabelSelector{}},
	"web anywhere":      {PodSelector: parseSelector("app=web"), NamespaceSelector: &metav1.LabelSelector{}},
	"all in production": {NamespaceSelector: parseSelector("stage=production")},
	"web in production": {PodSelector: parseSelector("app=web"), NamespaceSelector: parseSelector("stage=production")},
	"all where it is not": {
		NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "stage", Operator: "DoesNotExist"}},
		},
	},
}

// testNames returns the names that this test uses for groups.
func testNames(t *testing.T, names []string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		at := ""
		for text, p := range testPeers {
			if g, _ := peers.OfPeer("shop", p, nil); g.Name() == name {
				at = text
			}
		}
		if at == "" {
			t.Errorf("group %s is unknown", name)
		}
		all = append(all, at)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func allGroups() *groups {
	g := newGroups()
	for _, p := range testPeers {
		g.policyChanged(nil, newPolicy("shop", p))
	}
	return g
}

func namespaceLabels(name string) (labels.Set, bool) {
	namespaces := map[string]labels.Set{"shop": parseLabels("stage=production"), "lab": {}}
	found, ok := namespaces[name]
	return found, ok
}

func TestPodChangesEnqueueAffectedGroups(t *testing.T) {
	const ip, all = "10.0.0.1", "all in production, all in shop, web anywhere, web in production, web in shop"
	with := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		before, after *corev1.Pod
		want          string
	}{
		"it gets its address":     {newPod("shop", "app=web", ""), newPod("shop", "app=web", ip), all},
		"it gets another address": {newPod("shop", "app=web", ip), newPod("shop", "app=web", "10.0.0.2"), all},
		"it gets an address more": {newPod("shop", "app=web", ip), newPod("shop", "app=web", ip+" fd00::1"), all},
		"it comes without one":    {nil, newPod("shop", "app=web", ""), ""},
		"it comes with one":       {nil, newPod("shop", "app=web", ip), all},
		"it goes":                 {newPod("shop", "app=web", ip), nil, all},
		"it goes without one":     {newPod("shop", "app=web", ""), nil, ""},
		"it ends": {newPod("shop", "app=web", ip),
			with(newPod("shop", "app=web", ip), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), all},
		"it is being deleted": {newPod("shop", "app=web", ip),
			with(newPod("shop", "app=web", ip), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), ""},
		"it becomes ready": {newPod("shop", "app=web", ip),
			with(newPod("shop", "app=web", ip),
				func(p *corev1.Pod) { p.Status.Conditions = make([]corev1.PodCondition, 1) }), ""},
		"another takes its name": {newPod("shop", "app=web", ip),
			with(newPod("shop", "app=web", ip), func(p *corev1.Pod) { p.UID = "other" }), all},
		"a label that nobody asks for": {newPod("shop", "app=web", ip), newPod("shop", "app=web x=1", ip), ""},
		"a label that was asked for": {newPod("shop", "app=web", ip), newPod("shop", "app=old", ip),
			"web anywhere, web " +
				"in production, web in shop"},
		"a label that is asked for":    {newPod("lab", "", ip), newPod("lab", "app=web", ip), "web anywhere"},
		"in a namespace of no stage":   {nil, newPod("lab", "", ip), "all where it is not"},
		"in a namespace not yet known": {nil, newPod("new", "app=web", ip), "web anywhere"},
		"on its machine's network": {nil,
			with(newPod("shop", "app=web", ip), func(p *corev1.Pod) { p.Spec.HostNetwork = true }), ""},
	} {
		if got := testNames(t, allGroups().ofPod(c.before, c.after, namespaceLabels)); got != c.want {
			t.Errorf("%s: %q are woken, want %q", name, got, c.want)
		}
	}
}

func TestNamespaceChangesEnqueueAffectedGroups(t *testing.T) {
	ns := func(text string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: parseLabels(text)}}
	}
	for name, c := range map[string]struct {
		before, after *corev1.Namespace
		want          string
	}{
		"a label that nobody asks for": {ns("stage=production"), ns("stage=production x=1"), ""},
		"it joins": {ns(""), ns("stage=production"), "all in production, all where it is not, " +
			"web in production"},
		"it leaves":        {ns("stage=production"), ns("stage=test"), "all in production, web in production"},
		"it comes":         {nil, ns("stage=production"), "all in production, web in production"},
		"it goes":          {ns(""), nil, "all where it is not"},
		"its status alone": {ns("stage=production"), ns("stage=production"), ""},
	} {
		if got := testNames(t, allGroups().ofNamespace(c.before, c.after)); got != c.want {
			t.Errorf("%s: %q are woken, want %q", name, got, c.want)
		}
	}
}

func TestGroupsExistWhileAPolicyNamesThem(t *testing.T) {
	web, all := testPeers["web in shop"], testPeers["all in production"]
	one, two := newPolicy("shop", web, web), newPolicy("shop", web, all)
	g := newGroups()
	for _, step := range []struct {
		name          string
		before, after *networkingv1.NetworkPolicy
		changed       string
	}{
		{"the first", nil, one, "web in shop"},
		{"the second names it as well", nil, two, "all in production"},
		{"the same again", two, two.DeepCopy(), ""},
		{"the second lets go of one", two, newPolicy("shop", web), "all in production"},
		{"the first goes", one, nil, ""},
		{"the second goes", newPolicy("shop", web), nil, "web in shop"},
	} {
		if got := testNames(t, g.policyChanged(step.before, step.after)); got != step.changed {
			t.Errorf("%s: %q changed, want %q", step.name, got, step.changed)
		}
	}
	if len(g.byName)+len(g.byScope)+len(g.bySelector) > 0 {
		t.Errorf("left are %v, %v, %v", g.byName, g.byScope, g.bySelector)
	}
}
