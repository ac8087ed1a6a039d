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

const documentPath = "../../../docs/credentials.md"

// writeRequest is a write to an object of a machine. The test sends it as a dry run.
type writeRequest struct {
	name         string
	method, path string
	body         string // empty for a deletion
}

// TestCredentialsHaveTheDocumentedRights compares the rights of all credentials on all kinds of machines with
// docs/credentials.md. It also fails if a worker's credential can change objects of another machine.
// Proves S12.
func TestCredentialsHaveTheDocumentedRights(t *testing.T) {
	s := startServer(t)
	createFixtures(t, s.clientFor(certs.SuperAdmin()))
	own, foreign := machineChanges("worker"), machineChanges("other")
	var rows []string
	for _, c := range listCredentials(t) {
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
		rows = append(rows, r.tableRows(c, identity)...)
	}
	text := documentHeader + strings.Join(rows, "\n") + "\n"
	if *update {
		if err := os.WriteFile(documentPath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the credentials differ from docs/credentials.md; go test ./tests/suites/credentials -update "+
			"rewrites it. They are:\n%s", text)
	}
}

// rights are the rights of a credential: the names of kinds and changes, by verb.
type rights []struct {
	verb  string
	names []string
}

// rightsOf returns the rights of a client certificate. It reports an error if a worker's certificate has rights on
// objects of other machines.
func rightsOf(t *testing.T, s *server, c machineCredential, own, foreign []writeRequest) rights {
	t.Helper()
	all, single := readableKinds(t, c.request)
	mine, others := allowedChanges(t, s, c.request, own), allowedChanges(t, s, c.request, foreign)
	if c.machine == "worker" {
		for _, name := range others {
			if !slices.Contains(harmlessChanges, name) {
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

// maxCellBytes is the maximum number of bytes in a row's last cell.
const maxCellBytes = 80

// tableRows returns the table rows of a credential. Only the first row names the credential.
func (r rights) tableRows(c machineCredential, identity string) (rows []string) {
	head := fmt.Sprintf("| %s | `%s` | %s |", c.machine, strings.TrimPrefix(c.path, "/etc/kubernetes/"), identity)
	for _, one := range r {
		for verb, rest := one.verb, one.names; len(rest) > 0; verb = "" {
			n, width := 1, len(rest[0])
			for n < len(rest) && width+2+len(rest[n]) <= maxCellBytes {
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

// harmlessChanges are the changes that a worker may make although they are not limited to its own objects.
var harmlessChanges = []string{"tokenreviews", "subjectaccessreviews", "record an event"}

const documentHeader = `# Credentials

This document lists every credential that ` + "`clusterctl apply`" + ` writes below /etc/kubernetes on a machine, and
what the API server permits its holder. ` + "`go test ./tests/suites/credentials`" + ` compares the list with the
decisions of an API server, and ` + "`go test ./tests/suites/credentials -update`" + ` writes it.

| right | meaning |
|---|---|
| reads | kinds whose objects the holder can list and watch in the whole cluster, besides discovery |
| reads single | kinds of which the holder can get only single objects that belong to the machine |
| changes its own | writes to objects that belong to the machine |
| changes | writes to objects of any machine |

Pods on a machine, and the objects to which these pods refer, belong to the machine. The ingress proxy can also get the
certificates to which Ingresses and Gateways refer. The pod network can also get the inventory of machines and the pools
of load balancers. The credentials of a worker cannot change objects of other machines.

A control-plane machine has the private keys of the CAs. Access to its files is access to the whole cluster.

While a configuration declares GitSources, control-plane machines also have ` + "`gitops.conf`" + `. Its user reads and
writes GitSources, and impersonates service accounts. It cannot read Secrets or write other objects itself. With
` + "`receiver_port`" + `, they have the serving certificate ` + "`gitops-receiver.crt`" + ` too, and that user writes the
endpoints of the service ` + "`gitops-receiver`" + `.

With a ` + "`dashboard`" + ` block, control-plane machines also have ` + "`pki/dashboard.crt`" + ` and its key. It is a serving certificate
only: the dashboard has no identity of its own.

| machine | file | identity | right | objects |
|---|---|---|---|---|
`

// allowedChanges returns the names of the changes that a client may make.
func allowedChanges(t *testing.T, s *server, r certs.Request, list []writeRequest) (names []string) {
	t.Helper()
	c := s.clientFor(r)
	for _, change := range list {
		contentType := "application/json"
		if change.method == "PATCH" {
			contentType = "application/merge-patch+json"
		}
		path, query, _ := strings.Cut(change.path, "?")
		body := []byte(change.body)
		if change.method == "PUT" {
			body = s.withCurrentVersion(t, strings.TrimSuffix(path, "/status"), change.body)
		}
		switch code, text := c.do(change.method, path+"?dryRun=All&"+query, contentType, body); {
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

// withCurrentVersion returns the JSON of an object with the resourceVersion of the stored object, which a PUT requires.
func (s *server) withCurrentVersion(t *testing.T, path, text string) []byte {
	t.Helper()
	code, stored := s.clientFor(certs.SuperAdmin()).do("GET", path, "application/json", nil)
	if code != 200 {
		t.Fatalf("%s: %d %s", path, code, stored)
	}
	o := decodeObject(t, text)
	metadata := decodeObject(t, stored)["metadata"].(map[string]any)
	o["metadata"].(map[string]any)["resourceVersion"] = metadata["resourceVersion"]
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// readableKinds returns the kinds whose objects a client may list in the whole cluster, and the kinds of which it may
// only get single objects.
func readableKinds(t *testing.T, r certs.Request) (list, single []string) {
	t.Helper()
	o := apifake.New(authz.Defaults()...)
	for _, obj := range fixtureObjects(t) {
		o.Put(obj)
	}
	authorizer, err := authz.New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	user := api.User{Name: r.CommonName, Groups: append(slices.Clone(r.Organizations), api.GroupAuthenticated)}
	asks := func(verb string, k *kinds.Kind, sub, namespace, name string) bool {
		d, _, err := authorizer.Authorize(t.Context(), user,
			api.Request{Verb: verb, Resource: true, Namespace: namespace,
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

func decodeObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}
