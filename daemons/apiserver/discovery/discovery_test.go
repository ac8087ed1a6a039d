package discovery

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

func testKind(group, version, kind string) *kinds.Kind {
	return &kinds.Kind{
		GVK:        schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
		Resource:   kind + "s",
		Singular:   kind,
		Namespaced: true,
		Untyped:    &kinds.Untyped{},
	}
}

// Documents that are composed of parts equal the encoding of the types. Documents that reuse former parts equal those
// that are made from scratch.
func TestReusedDocumentsEqualNewOnes(t *testing.T) {
	others := []ExternalVersion{
		{
			GroupVersion: schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"},
			Resources: []metav1.APIResource{
				{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get"}},
			},
		},
	}
	list := kinds.All()
	var before *Handler
	for i := range 5 {
		list = append(list, testKind(fmt.Sprintf("g%d.example.com", i/2), "v1beta1", fmt.Sprint("thing", i)),
			testKind(fmt.Sprintf("g%d.example.com", i/2), "v1", fmt.Sprint("thing", i)))
		grown, fresh := New(before, list, others...), New(nil, list, others...)
		for path, d := range fresh.documents {
			if string(grown.documents[path].data) != string(d.data) || grown.documents[path].tag != d.tag {
				t.Errorf("%s\n%s\nand from nothing\n%s", path, grown.documents[path].data, d.data)
			}
		}
		if len(grown.documents) != len(fresh.documents) {
			t.Errorf("%d documents, and from nothing %d", len(grown.documents), len(fresh.documents))
		}
		for path, d := range fresh.aggregated {
			if string(grown.aggregated[path].data) != string(d.data) {
				t.Errorf("aggregated %s", path)
			}
		}
		before = grown
	}
	for path, into := range map[string]any{"/apis": &metav1.APIGroupList{}, "/api": &metav1.APIVersions{}} {
		if err := json.Unmarshal(before.documents[path].data, into); err != nil ||
			string(encode(into)) != string(before.documents[path].data) {
			t.Errorf("%s: %v\n%s\nis not\n%s", path, err, before.documents[path].data, encode(into))
		}
	}
	for path, d := range before.aggregated {
		all := &apidiscovery.APIGroupDiscoveryList{}
		if err := json.Unmarshal(d.data, all); err != nil || string(encode(all)) != string(d.data) {
			t.Errorf("aggregated %s: %v\n%s\nis not\n%s", path, err, d.data, encode(all))
		}
	}
	if string(before.documents["/apis/g0.example.com"].data) == "" || before.groups["apps"].aggregated == nil {
		t.Error("discovery lacks groups")
	}
}

// One more kind changes only the documents of its group. The documents of other groups are reused.
func TestUnchangedGroupsAreReused(t *testing.T) {
	list := append(kinds.All(), testKind("a.example.com", "v1", "a"), testKind("b.example.com", "v1", "b"))
	before := New(nil, list)
	now := New(before, append(list, testKind("a.example.com", "v1", "c")))
	for name, g := range now.groups {
		if shared := &g.aggregated[0] == &before.groups[name].aggregated[0]; shared != (name != "a.example.com") {
			t.Errorf("%q: shared %v", name, shared)
		}
	}
	if without := New(now, list); string(without.aggregated["/apis"].data) != string(before.aggregated["/apis"].data) {
		t.Error("discovery has a removed kind")
	}
}

// TestAPIDocumentHasTheServerAddresses requests /api from inside and outside the service network.
func TestAPIDocumentHasTheServerAddresses(t *testing.T) {
	h := New(nil, kinds.All())
	h.Addresses = Addresses{Default: "10.0.0.1:6443",
		Ranges: []AddressRange{{netip.MustParsePrefix("10.96.0.0/16"), "10.96.0.1:443"}}}
	tags := map[string]bool{}
	for client, want := range map[string]string{
		"192.0.2.7:1234": `[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]`,
		"10.96.0.9:1234": `[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"},` +
			`{"clientCIDR":"10.96.0.0/16","serverAddress":"10.96.0.1:443"}]`,
		"[2001:db8::1]:12": `[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]`,
	} {
		r, w := httptest.NewRequest("GET", "/api", nil), httptest.NewRecorder()
		r.RemoteAddr = client
		h.ServeHTTP(w, r)
		if got := `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":` + want +
			"}\n"; w.Body.String() != got {
			t.Errorf("%s: %s, want %s", client, w.Body, got)
		}
		tags[w.Header().Get("ETag")] = true
	}
	if len(tags) != 2 {
		t.Errorf("got %d ETags for two documents", len(tags))
	}
}
