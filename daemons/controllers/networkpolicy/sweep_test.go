package networkpolicy

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Slices are deleted only when the API server confirms that no policy names their group.
func TestSlicesAreDeletedOnlyIfTheServerConfirmsNoPolicyNeedsThem(t *testing.T) {
	web := testPeers["web in shop"]
	g, _ := peers.OfPeer("shop", web, nil)
	made := planChanges(g.Name(), groupAddresses(newMembers(1), nil), nil).Create[0]
	made.Name, made.UID, made.ResourceVersion = "made", "u", "1"
	other, foreign := made.DeepCopy(), made.DeepCopy()
	other.Namespace = "shop"
	foreign.Name, foreign.Labels[discoveryv1.LabelManagedBy] = "foreign", "somebody"
	for name, c := range map[string]struct {
		code     int
		policies []networkingv1.NetworkPolicy
		deleted  int
		fails    bool
	}{
		"no policy":               {http.StatusOK, nil, 1, false},
		"one that names another":  {http.StatusOK, []networkingv1.NetworkPolicy{*newPolicy("lab", web)}, 1, false},
		"one that names it":       {http.StatusOK, []networkingv1.NetworkPolicy{*newPolicy("shop", web)}, 0, false},
		"they cannot be read":     {http.StatusInternalServerError, nil, 0, true},
		"they are not there now":  {http.StatusNotFound, nil, 0, true},
		"who asks may not see it": {http.StatusForbidden, nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			deleted := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodDelete {
					if deleted++; r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/made" {
						t.Errorf("%s is deleted", r.URL.Path)
					}
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
					return
				}
				w.WriteHeader(c.code)
				if c.code != http.StatusOK {
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
					return
				}
				_ = json.NewEncoder(w).Encode(networkingv1.NetworkPolicyList{
					TypeMeta: metav1.TypeMeta{
						Kind:       "NetworkPolicyList",
						APIVersion: "networking.k8s.io/v1",
					}, Items: c.policies})
			}))
			defer server.Close()
			client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
			n := New(loop.Context{Client: client, Informers: informers.New(client),
				Log: slog.New(slog.DiscardHandler)}).(*controller)
			for _, s := range []*discoveryv1.EndpointSlice{made, other, foreign} {
				if err := n.slices.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.sync(t.Context(), peers.Namespace+"/"+g.Name()); err != nil || deleted > 0 {
				t.Fatalf("before the server is asked: %d deleted, %v", deleted, err)
			}
			if err := n.sync(t.Context(), sweepKey); (err != nil) != c.fails || deleted != c.deleted {
				t.Errorf("%d deleted, %v", deleted, err)
			}
		})
	}
}

// A group that a policy names again keeps its slices, and no request is made.
func TestSweepsKeepNamedGroups(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:0"})
	n := New(loop.Context{Client: client, Informers: informers.New(client),
		Log: slog.New(slog.DiscardHandler)}).(*controller)
	web := testPeers["web in shop"]
	g, _ := peers.OfPeer("shop", web, nil)
	made := planChanges(g.Name(), groupAddresses(newMembers(1), nil), nil).Create[0]
	made.Name = "made"
	if err := n.slices.Add(made); err != nil {
		t.Fatal(err)
	}
	n.groups.policyChanged(nil, newPolicy("shop", web))
	if err := n.sync(t.Context(), sweepKey); err != nil {
		t.Error(err)
	}
}
