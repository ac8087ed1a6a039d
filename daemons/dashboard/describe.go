package dashboard

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/version"
	"clusterctl/kube/discovery"
)

// sessionDescription is the answer of /api/session.
type sessionDescription struct {
	User    string   `json:"user"`
	Groups  []string `json:"groups"`
	CSRF    string   `json:"csrf"`    // for the header X-Dashboard-Token
	Version string   `json:"version"` // of the dashboard
	Server  string   `json:"server"`  // URL of the API server
	Cluster string   `json:"cluster"`
	SignIn  SignIn   `json:"signIn"`
}

func (d *Dashboard) describeSession(w http.ResponseWriter, r *http.Request) {
	s := sessionOf(r)
	groups := s.visitor.groups
	if groups == nil {
		groups = []string{}
	}
	writeJSON(w, http.StatusOK, sessionDescription{User: s.visitor.user, Groups: groups, CSRF: s.csrf,
		Version: version.Version, Server: s.visitor.server.String(), Cluster: d.config.Cluster,
		SignIn: d.config.SignIn})
}

// kindDescription describes a kind that the API server serves, in the preferred version of its group.
type kindDescription struct {
	Group      string   `json:"group"`
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	Resource   string   `json:"resource"`
	Namespaced bool     `json:"namespaced"`
	Verbs      []string `json:"verbs"`
	ShortNames []string `json:"shortNames"`
}

// listKinds returns all kinds. Kinds of an aggregated API server that does not answer are missing.
func listKinds(_ context.Context, s *session) ([]kindDescription, error) {
	lists, err := s.visitor.typed.Discovery().ServerPreferredResources()
	var incomplete *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &incomplete) {
		return nil, err
	}
	kinds := []kindDescription{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // of an aggregated API server that names it wrongly
		}
		for _, r := range list.APIResources {
			kinds = append(kinds, kindDescription{Group: gv.Group, Version: gv.Version, Kind: r.Kind, Resource: r.Name,
				Namespaced: r.Namespaced, Verbs: append([]string{}, r.Verbs...),
				ShortNames: append([]string{}, r.ShortNames...)})
		}
	}
	return kinds, nil
}
