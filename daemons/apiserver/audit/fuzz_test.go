package audit

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// FuzzPolicy parses policies, and evaluates the valid ones.
func FuzzPolicy(f *testing.F) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	f.Add([]byte(head+"omitStages: [RequestReceived]\nrules:\n- {level: RequestResponse, users: [ann], verbs: [get], "+
		"resources: [{group: '', resources: ['pods/*', '*/status'], resourceNames: [a]}], namespaces: "+
		"[shop]}\n- {level: None, nonResourceURLs: ['/healthz*', '*']}\n- {level: Metadata, userGroups: "+
		"[devs], omitManagedFields: true}\n"), "ann", "get", "pods", "log", "/healthz")
	f.Add([]byte(head+"rules: [{level: Request, omitStages: [Panic]}]"), "", "list", "secrets", "", "/")
	f.Fuzz(func(t *testing.T, text []byte, user, verb, resource, subresource, path string) {
		p, err := ParsePolicy(text)
		if err != nil {
			return
		}
		u := api.User{Name: user, Groups: []string{verb, user}}
		r := api.Request{
			Verb:                 verb,
			Resource:             true,
			Namespace:            user,
			Name:                 path,
			Subresource:          subresource,
			GroupVersionResource: schema.GroupVersionResource{Group: path, Version: "v1", Resource: resource},
		}
		for _, q := range []api.Request{r, {Verb: verb, Path: path}} {
			d := p.Decide(u, q)
			d.RecordsBodies()
			d.Records("ResponseComplete")
		}
	})
}
