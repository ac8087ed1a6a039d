package credentials

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/apiserver/authz"
	"clusterctl/daemons/kinds"
)

var update = flag.Bool("update", false, "rewrite docs/credentials.md")

const document = "../../docs/credentials.md"

// change is a write that concerns a worker, or another machine. Each is tried as a dry run.
type change struct {
	name         string
	method, path string
	body         string // none: a merge patch or a deletion with nothing in it
}

// TestWhatEachCredentialMayDo compares the rights of all credentials on all kinds of machines with docs/credentials.md, and fails
// when a worker's may do something to another machine. Proves S12.
func TestWhatEachCredentialMayDo(t *testing.T) {
	s := serve(t)
	fixtures(t, s.as(certs.SuperAdmin()))
	own, foreign := changes("worker"), changes("other")
	var rows []string
	for _, c := range credentials(t) {
		identity := "`" + c.request.CommonName + "`"
		if len(c.request.Organizations) > 0 {
			identity += " of `" + strings.Join(c.request.Organizations, "`, `") + "`"
		}
		if c.ca != "" && c.ca != certs.ClusterCA {
			identity += ", by the authority " + c.ca
		}
		r := rights{}
		switch {
		case c.ca == "":
			identity = "a secret"
		case c.ca == certs.FrontProxyCA:
			r = rights{{"reads", []string{"everything, as any user"}}, {"changes", []string{"everything, as any user"}}}
		case c.ca == certs.ClusterCA && slices.Contains(c.request.Usages, clientAuth):
			r = rightsOf(t, s, c, own, foreign)
		}
		rows = append(rows, r.rows(c, identity)...)
	}
	text := header + strings.Join(rows, "\n") + "\n"
	if *update {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the credentials differ from docs/credentials.md; go test ./tests/credentials -update rewrites it. "+
			"They are:\n%s", text)
	}
}

// rights are what a credential may do, by verb.
type rights []struct {
	verb  string
	names []string
}

// rightsOf asks what a client certificate may do, and fails when a worker's may do too much.
func rightsOf(t *testing.T, s *server, c credential, own, foreign []change) rights {
	t.Helper()
	all, single := readable(t, c.request)
	mine, others := allowed(t, s, c.request, own), allowed(t, s, c.request, foreign)
	if c.machine == "worker" {
		for _, name := range others {
			if !slices.Contains(harmless, name) {
				t.Errorf("%s on a worker may change another machine's: %s", c.path, name)
			}
		}
		for _, kind := range append(all, "everything") {
			if slices.Contains([]string{"secrets", "configmaps", "pods", "serviceaccounts", "persistentvolumeclaims",
				"everything"}, kind) && slices.Contains(all, kind) {
				t.Errorf("%s on a worker reads all %s", c.path, kind)
			}
		}
	}
	mine = slices.DeleteFunc(mine, func(name string) bool { return slices.Contains(others, name) })
	every := map[string]bool{}
	for _, one := range foreign {
		every[one.name] = true
	}
	if len(others) == len(every) {
		others = []string{"everything"}
	}
	return rights{{"reads", all}, {"reads single", single}, {"changes its own", mine}, {"changes", others}}
}

// widest is the length of a row's last cell.
const widest = 80

// rows are those of a table: the first one says whose they are.
func (r rights) rows(c credential, identity string) (rows []string) {
	head := fmt.Sprintf("| %s | `%s` | %s |", c.machine, strings.TrimPrefix(c.path, "/etc/kubernetes/"), identity)
	for _, one := range r {
		for verb, rest := one.verb, one.names; len(rest) > 0; verb = "" {
			n, width := 1, len(rest[0])
			for n < len(rest) && width+2+len(rest[n]) <= widest {
				width += 2 + len(rest[n])
				n++
			}
			rows = append(rows, fmt.Sprintf("%s %s | %s |", head, verb, strings.Join(rest[:n], ", ")))
			rest, head = rest[n:], "| | | |"
		}
	}
	if len(rows) == 0 {
		return []string{head + " | |"}
	}
	return rows
}

// harmless are the changes that a worker may make although they do not concern it alone.
var harmless = []string{"ask who a token is", "ask who may what", "record an event"}

const header = `# Credentials

Every credential that ` + "`clusterctl apply`" + ` puts on a machine, below /etc/kubernetes, and what the API server lets it do. This
table is written and checked by ` + "`go test ./tests/credentials`" + `, which asks an API server.

"Reads" names what a credential may list and watch in the whole cluster, besides discovery. "Reads single" names kinds of which it
may read single objects that concern the machine: pods on it and what these refer to; for the ingress proxy, the certificates that
Ingresses and Gateways refer to; for the pod network, the inventory of machines and the pools of load balancers. "Changes its own"
and "changes" name what it may write: of its own machine, or of any. A worker's credentials change nothing of another machine.

A machine of the control plane has the keys of the authorities: whoever has its files has the cluster.

| machine | file | identity | may | |
|---|---|---|---|---|
`

// allowed are the names of the changes that a client may make.
func allowed(t *testing.T, s *server, r certs.Request, list []change) (names []string) {
	t.Helper()
	c := s.as(r)
	for _, change := range list {
		contentType := "application/json"
		if change.method == "PATCH" {
			contentType = "application/merge-patch+json"
		}
		path, query, _ := strings.Cut(change.path, "?")
		body := []byte(change.body)
		if change.method == "PUT" {
			body = s.current(t, strings.TrimSuffix(path, "/status"), change.body)
		}
		switch code, text := c.ask(change.method, path+"?dryRun=All&"+query, contentType, body); {
		case code == 403:
		case code < 300, code == 409:
			if !slices.Contains(names, change.name) {
				names = append(names, change.name)
			}
		default:
			t.Errorf("%s: %s %s: %d %.300s", r.CommonName, change.method, change.path, code, text)
		}
	}
	return names
}

// current returns the text of an object with the version that is stored, which a PUT has to name.
func (s *server) current(t *testing.T, path, text string) []byte {
	t.Helper()
	code, stored := s.as(certs.SuperAdmin()).ask("GET", path, "application/json", nil)
	if code != 200 {
		t.Fatalf("%s: %d %s", path, code, stored)
	}
	o := object(t, text)
	o["metadata"].(map[string]any)["resourceVersion"] = object(t,
		stored)["metadata"].(map[string]any)["resourceVersion"]
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// readable returns the kinds of which a client may list all objects of the cluster, and those of which it may read single ones.
func readable(t *testing.T, r certs.Request) (list, single []string) {
	t.Helper()
	o := apifake.New(authz.Defaults()...)
	for _, obj := range fixtureObjects(t) {
		o.Put(obj)
	}
	may, err := authz.New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	user := api.User{Name: r.CommonName, Groups: append(slices.Clone(r.Organizations), api.GroupAuthenticated)}
	asks := func(verb string, k *kinds.Kind, sub, namespace, name string) bool {
		d, _, err := may.Authorize(t.Context(), user, api.Request{Verb: verb, Resource: true, Namespace: namespace,
			Name: name, Subresource: sub,
			GroupVersionResource: k.GVK.GroupVersion().WithResource(k.Resource)})
		return err == nil && d == api.Allow
	}
	all, own := map[string]bool{}, map[string]bool{}
	kindsAll := kinds.All()
	everything := true
	for _, k := range kindsAll {
		if !asks("list", k, "", "", "") {
			everything = false
			continue
		}
		all[k.Resource] = true
	}
	if everything {
		return []string{"everything"}, nil
	}
	for _, k := range kindsAll {
		if all[k.Resource] {
			continue
		}
		for _, at := range []struct{ namespace, name string }{{"", "worker"}, {"shop", "web"},
			{"kube-system", "machine-inventory"}, {"kube-system", "load-balancer-pools"}} {
			if k.Namespaced == (at.namespace != "") && asks("get", k, "", at.namespace, at.name) {
				own[k.Resource] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(own))
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}
