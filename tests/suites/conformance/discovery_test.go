package conformance

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// unservedKinds are stable kinds that are not served yet. A kind that is served must be removed from this list.
var unservedKinds = map[string]bool{}

// partialKinds are types of stable groups that are not separate kinds: bodies of subresources, parts of lists, options,
// and requests to webhooks.
var partialKinds = []string{
	"Scale", "Eviction", "TokenRequest", "Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList",
	"WatchEvent", "List",
	"SerializedReference", "RangeAllocation", "AdmissionReview", "ImageReview", "ConversionReview",
	"APIGroupDiscovery", "APIGroupDiscoveryList",
}

// Every kind that is stable according to Kubernetes' types has a sample, and so is tested.
// Proves S12.
func TestTheListOfStableKindsIsComplete(t *testing.T) {
	registered := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(registered); err != nil {
			t.Fatal(err)
		}
	}
	listed := map[string]bool{}
	for _, s := range readSamples(t) {
		listed[s.String()] = true
	}
	for gvk := range registered.AllKnownTypes() {
		id := gvk.GroupVersion().String() + "/" + gvk.Kind
		stable := gvk.Version == "v1" || gvk.Version == "v2"
		if !stable || strings.HasSuffix(gvk.Kind, "Options") || slices.Contains(partialKinds, gvk.Kind) ||
			gvk.Group == "imagepolicy.k8s.io" {
			continue
		}
		if item, ok := strings.CutSuffix(id, "List"); ok &&
			registered.Recognizes(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List"))) &&
			(listed[item] || unservedKinds[item]) {
			continue
		}
		if !listed[id] && !unservedKinds[id] {
			t.Errorf("%s is stable and has no sample", id)
		}
	}
}

// Discovery lists every stable kind.
// Proves S12.
func TestDiscoveryListsEveryStableKind(t *testing.T) {
	c := sharedClient(t)
	resources := map[string]object{} // by group version and name
	for _, gv := range groupVersions(t, c) {
		path := "/apis/" + gv
		if gv == "v1" {
			path = "/api/v1"
		}
		list := c.mustAnswer(t, 200, get("%s", path))
		if list.textAt("kind") != "APIResourceList" || list.textAt("groupVersion") != gv {
			t.Errorf("%s: %.200s", path, list.raw)
		}
		all, _ := list.valueAt("resources").([]any)
		for _, r := range all {
			resource, _ := r.(object)
			id, _ := resource["name"].(string)
			resources[gv+" "+id] = resource
		}
	}
	tested := map[string]bool{}
	for _, s := range readSamples(t) {
		r := resources[s.Version+" "+s.Resource]
		if unservedKinds[s.String()] && r != nil {
			t.Errorf("%s is served: it leaves the list of those that are not", s)
		}
		if unservedKinds[s.String()] {
			continue
		}
		if r == nil {
			t.Errorf("%s is not served", s)
			continue
		}
		tested[s.Version+" "+s.Resource] = true
		want := object{
			"name":         s.Resource,
			"singularName": strings.ToLower(s.Kind),
			"namespaced":   s.Namespaced,
			"kind":         s.Kind,
		}
		for field, v := range want {
			if r[field] != v {
				t.Errorf("%s: %s is %v, want %v", s, field, r[field], v)
			}
		}
		verbs := allVerbs
		if len(s.Verbs) > 0 {
			verbs = s.Verbs
		}
		checkSameSet(t, s.String()+" verbs", sortedTexts(r["verbs"]), verbs)
		checkSameSet(t, s.String()+" short names", sortedTexts(r["shortNames"]), s.Short)
		checkSameSet(t, s.String()+" categories", sortedTexts(r["categories"]), s.Categories)
		subs := slices.Clone(s.Subresources)
		if s.Status != nil {
			subs = append(subs, "status")
		}
		if s.Kind == "Pod" {
			subs = append(subs, "attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward",
				"proxy", "resize")
		}
		if s.Kind == "Service" || s.Kind == "Node" {
			subs = append(subs, "proxy")
		}
		var have []string
		for id := range resources {
			if sub, ok := strings.CutPrefix(id, s.Version+" "+s.Resource+"/"); ok {
				have = append(have, sub)
				tested[id] = true
			}
		}
		checkSameSet(t, s.String()+" subresources", have, subs)
	}
	for id := range resources {
		if !tested[id] {
			t.Errorf("%s is served and has no sample", id)
		}
	}
}

func groupVersions(t testing.TB, c *client) []string {
	t.Helper()
	core := c.mustAnswer(t, 200, get("/api"))
	if core.textAt("kind") != "APIVersions" || !slices.Equal(sortedTexts(core.valueAt("versions")), []string{"v1"}) {
		t.Errorf("/api: %s", core.raw)
	}
	out := []string{"v1"}
	groups := c.mustAnswer(t, 200, get("/apis"))
	if groups.textAt("kind") != "APIGroupList" {
		t.Errorf("/apis: %.200s", groups.raw)
	}
	list, _ := groups.valueAt("groups").([]any)
	for _, g := range list {
		id, _ := valueAt(g, "name").(string)
		one := c.mustAnswer(t, 200, get("/apis/%s", id))
		if one.textAt("kind") != "APIGroup" ||
			one.textAt("preferredVersion.groupVersion") != valueAt(g, "preferredVersion.groupVersion") {
			t.Errorf("/apis/%s: %s", id, one.raw)
		}
		versions, _ := valueAt(g, "versions").([]any)
		for _, v := range versions {
			gv, _ := valueAt(v, "groupVersion").(string)
			out = append(out, gv)
		}
	}
	return out
}

func sortedTexts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		text, _ := item.(string)
		out = append(out, text)
	}
	return out
}

func checkSameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
