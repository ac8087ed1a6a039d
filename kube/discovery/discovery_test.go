package discovery_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"clusterctl/kube/discovery"
)

const coreDocument = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
	{"metadata":{},"versions":[{"version":"v1","freshness":"Current","resources":[
		{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced",
			"singularResource":"pod","verbs":["list","get"],"shortNames":["po"],"categories":["all"],
			"subresources":[{"subresource":"status","responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":["get"]}]},
		{"resource":"nodes","responseKind":{"group":"","version":"v1","kind":"Node"},"scope":"Cluster",
			"singularResource":"node","verbs":["list"]}]}]}]}`

const groupsDocument = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
	{"metadata":{"name":"example.com"},"versions":[
		{"version":"v2","freshness":"Current","resources":[
			{"resource":"shops","responseKind":{"group":"example.com","version":"v2","kind":"Shop"},"scope":"Namespaced",
				"singularResource":"shop","verbs":["list","delete"]}]},
		{"version":"v1","freshness":"Current","resources":[
			{"resource":"shops","responseKind":{"group":"example.com","version":"v1","kind":"Shop"},"scope":"Namespaced",
				"singularResource":"shop","verbs":["list"]},
			{"resource":"books","responseKind":{"group":"example.com","version":"v1","kind":"Book"},"scope":"Cluster",
				"singularResource":"book","verbs":["get"]}]}]},
	{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]}`

// newServerConfig answers requests for the paths of documents.
func newServerConfig(t *testing.T, documents map[string]string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := documents[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if _, err := w.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func newClient(t *testing.T, config *rest.Config) *discovery.Client {
	t.Helper()
	client, err := discovery.New(config, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestResourcesMatchUpstreamsClient(t *testing.T) {
	config := newServerConfig(t, map[string]string{"/api": coreDocument, "/apis": groupsDocument})
	ours := newClient(t, config)
	theirs := upstream.NewDiscoveryClientForConfigOrDie(config)

	groups, lists, err := ours.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if !errors.As(err, &failed) || len(failed.Groups) != 1 {
		t.Errorf("the stale group is not reported: %v", err)
	}
	wantGroups, wantLists, wantErr := theirs.ServerGroupsAndResources()
	if err == nil || wantErr == nil || err.Error() != wantErr.Error() {
		t.Errorf("the error is %v, want %v", err, wantErr)
	}
	if len(groups) != len(wantGroups) || len(groups) != 3 {
		t.Errorf("%d groups, want %d", len(groups), len(wantGroups))
	}
	if got, want := describe(lists), describe(wantLists); !reflect.DeepEqual(got, want) {
		t.Errorf("all resources are\n%v, want\n%v", got, want)
	}

	preferred, _ := ours.ServerPreferredResources()
	wantPreferred, _ := theirs.ServerPreferredResources()
	if got, want := describe(preferred), describe(wantPreferred); !reflect.DeepEqual(got, want) {
		t.Errorf("the preferred resources are\n%v, want\n%v", got, want)
	}
	inNamespaces, _ := ours.ServerPreferredNamespacedResources()
	wantInNamespaces, _ := theirs.ServerPreferredNamespacedResources()
	if got, want := describe(inNamespaces), describe(wantInNamespaces); !reflect.DeepEqual(got, want) {
		t.Errorf("the preferred namespaced resources are\n%v, want\n%v", got, want)
	}
}

// describe returns the resources of lists by group version and name, without empty lists.
func describe(lists []*metav1.APIResourceList) map[string]metav1.APIResource {
	all := map[string]metav1.APIResource{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			r.Group, r.Version = "", "" // upstream fills them only in some lists
			if len(r.Categories) == 0 {
				r.Categories = nil
			}
			all[list.GroupVersion+" "+r.Name] = r
		}
	}
	return all
}

func TestDocumentInAnotherFormatIsNotAServerWithoutGroups(t *testing.T) {
	client := newClient(t, newServerConfig(t, map[string]string{"/api": coreDocument, "/apis": `{"kind":"APIGroupList","groups":[]}`}))
	if _, _, err := client.ServerGroupsAndResources(); err == nil || !strings.Contains(err.Error(), "APIGroupList") {
		t.Errorf("the error is %v", err)
	}
	if _, err := client.ServerPreferredResources(); err == nil {
		t.Error("no error")
	}
}

func TestMissingCoreDocumentIsAnError(t *testing.T) {
	client := newClient(t, newServerConfig(t, map[string]string{"/apis": groupsDocument}))
	if lists, err := client.ServerPreferredResources(); err == nil || len(lists) > 0 {
		t.Errorf("%d lists, %v", len(lists), err)
	}
}

func TestMapperFindsKindsAndPrefersTheFirstVersion(t *testing.T) {
	documents := map[string]string{"/api": coreDocument, "/apis": groupsDocument}
	mapper := discovery.NewMapper(newClient(t, newServerConfig(t, documents)))
	for kind, want := range map[schema.GroupKind]string{
		{Kind: "Pod"}:                        "/v1, Resource=pods",
		{Group: "example.com", Kind: "Shop"}: "example.com/v2, Resource=shops",
		{Group: "example.com", Kind: "Book"}: "example.com/v1, Resource=books",
	} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil || mapping.Resource.String() != want {
			t.Errorf("%s is %+v, want %s: %v", kind, mapping, want, err)
		}
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Pen"}); err == nil {
		t.Error("a kind that is not served is found")
	}
	documents["/apis"] = strings.ReplaceAll(groupsDocument, "Book", "Pen")
	mapper.Reset()
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Pen"}); err != nil {
		t.Errorf("a kind that is served by now is not found after Reset: %v", err)
	}
}
