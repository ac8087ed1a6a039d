package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// Users cannot grant rights that they do not have, by any kind of write.
// Proves S12.
func TestUsersCannotGrantRightsTheyLack(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin())).RbacV1()
	writes := []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"}
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"},
			Verbs:     writes,
		},
		{
			APIGroups:     []string{rbacv1.GroupName},
			Resources:     []string{"roles", "clusterroles"},
			Verbs:         []string{"escalate", "bind"},
			ResourceNames: []string{"free"},
		},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
	}
	if _, err := client.ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: rules},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ClusterRoleBindings().Create(ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "writer"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writer"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin, jane := c.configFor(certs.Admin()), c.configFor(certs.Request{CommonName: "jane"})

	const api = "rbac.authorization.k8s.io/v1"
	role := func(kind, meta, resource string) string {
		return fmt.Sprintf(
			`{"apiVersion":%q,"kind":%q,"metadata":{%s},"rules":[{"apiGroups":[""],"resources":[%q],"verbs":["get"]}]}`,
			api,
			kind,
			meta,
			resource,
		)
	}
	binding := func(kind, meta, to string) string {
		return fmt.Sprintf(
			`{"apiVersion":%q,"kind":%q,"metadata":{%s},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"joe"}]}`,
			api,
			kind,
			meta,
			to,
		)
	}
	name := func(n string) string { return fmt.Sprintf(`"name":%q`, n) }
	for _, k := range []struct {
		kind, path string
		text       func(meta string, strong bool) string
		// grow is a JSON patch that adds rights to an object with few; empty if the object cannot be changed.
		grow string
	}{
		{"Role", "/apis/" + api + "/namespaces/default/roles", nil, `[{"op":"add","path":"/rules/0/resources/-","value":"secrets"}]`},
		{"ClusterRole", "/apis/" + api + "/clusterroles", nil, `[{"op":"add","path":"/rules/0/resources/-","value":"secrets"}]`},
		{"RoleBinding", "/apis/" + api + "/namespaces/default/rolebindings", nil, ""},
		{"ClusterRoleBinding", "/apis/" + api + "/clusterrolebindings", nil, ""},
	} {
		k.text = func(meta string, strong bool) string {
			return role(k.kind, meta, map[bool]string{true: "secrets", false: "configmaps"}[strong])
		}
		if strings.HasSuffix(k.kind, "Binding") {
			k.text = func(meta string, strong bool) string {
				return binding(k.kind, meta, map[bool]string{true: "cluster-admin", false: "weak"}[strong])
			}
		}
		// An administrator has created the objects before.
		if k.kind == "Role" {
			if code, text := sendRequest(t, admin, "POST", "/apis/"+api+"/clusterroles",
				role("ClusterRole", name("weak"), "configmaps")); code != 201 {
				t.Fatal(code, text)
			}
		}
		for n, strong := range map[string]bool{"little": false, "much": true} {
			if code, text := sendRequest(t, admin, "POST", k.path, k.text(name(n), strong)); code != 201 {
				t.Fatal(code, text)
			}
		}
		type try struct{ how, method, path, body, content string }
		const apply, merge, jsonPatch, strategic = "application/apply-patch+yaml", "application/merge-patch+json",
			"application/json-patch+json", "application/strategic-merge-patch+json"
		tries := []try{
			{"POST", "POST", k.path, k.text(name("a"), true), ""},
			{"POST with a generated name", "POST", k.path, k.text(`"generateName":"a-"`, true), ""},
			{
				"POST with the generated name of one that is free",
				"POST",
				k.path,
				k.text(`"generateName":"free"`, true),
				"",
			},
			{"dry run", "POST", k.path + "?dryRun=All", k.text(name("a"), true), ""},
			{"PUT that creates", "PUT", k.path + "/a", k.text(name("a"), true), ""},
			{"PUT that creates, dry", "PUT", k.path + "/a?dryRun=All", k.text(name("a"), true), ""},
			{"apply that creates", "PATCH", k.path + "/a?fieldManager=m", k.text(name("a"), true), apply},
			{
				"apply that creates by force, dry",
				"PATCH",
				k.path + "/a?fieldManager=m&force=true&dryRun=All",
				k.text(name("a"), true),
				apply,
			},
			{
				"a subject for what grants much, or a label",
				"PATCH",
				k.path + "/much",
				`{"metadata":{"labels":{"x":"y"}},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"me"}]}`,
				merge,
			},
			{
				"apply to what grants much",
				"PATCH",
				k.path + "/much?fieldManager=m&force=true",
				k.text(name("much")+`,"labels":{"x":"y"}`, true),
				apply,
			},
			{
				"strategic patch of what grants much",
				"PATCH",
				k.path + "/much",
				`{"metadata":{"labels":{"x":"y"}}}`,
				strategic,
			},
			{
				"JSON patch of what grants much",
				"PATCH",
				k.path + "/much",
				`[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`,
				jsonPatch,
			},
		}
		if k.grow != "" {
			tries = append(
				tries,
				try{"PUT that grows", "PUT", k.path + "/little", k.text(name("little"), true), ""},
				try{"JSON patch that grows", "PATCH", k.path + "/little", k.grow, jsonPatch},
				try{"JSON patch that grows, dry", "PATCH", k.path + "/little?dryRun=All", k.grow, jsonPatch},
				try{"merge patch that grows", "PATCH", k.path + "/little", k.text("", true), merge},
				try{"strategic patch that grows", "PATCH", k.path + "/little", k.text("", true), strategic},
				try{
					"apply that grows",
					"PATCH",
					k.path + "/little?fieldManager=m&force=true",
					k.text(name("little"), true),
					apply,
				},
			)
		}
		if k.kind == "ClusterRole" {
			all := `{"apiVersion":"` + api + `","kind":"ClusterRole","metadata":{"name":"%s"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`
			tries = append(
				tries,
				try{"an aggregate", "POST", k.path, fmt.Sprintf(all, "a"), ""},
				try{"an aggregate by apply", "PATCH", k.path + "/a?fieldManager=m", fmt.Sprintf(all, "a"), apply},
				try{
					"what grants little becomes an aggregate",
					"PATCH",
					k.path + "/little",
					`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`,
					merge,
				},
			)
		}
		for _, try := range tries {
			if code, text := sendRequest(t, jane, try.method, try.path, try.body,
				contentTypeHeader(try.content)...); code != 403 {
				t.Errorf("%s of a %s: %d %s", try.how, k.kind, code, text)
			}
		}
		if list, text := sendRequest(t, admin, "GET", k.path+"/a", ""); list != 404 {
			t.Errorf("a %s was made: %s", k.kind, text)
		}
		// Jane may grant the rights that she has, and those of roles that she may escalate or bind by name.
		fine := []try{
			{"POST", "POST", k.path, k.text(name("given"), false), ""},
			{"apply", "PATCH", k.path + "/applied?fieldManager=m", k.text(name("applied"), false), apply},
			{"PUT that creates", "PUT", k.path + "/put", k.text(name("put"), false), ""},
		}
		if k.grow != "" {
			// A POST has no name in its path, so a right that is limited to that name does not cover it.
			if code, text := sendRequest(t, jane, "POST", k.path, k.text(name("free"), true)); code != 403 {
				t.Errorf("a POST of a %s that may be escalated by its name: %d %s", k.kind, code, text)
			}
			fine = append(fine,
				try{"PUT of what may be escalated", "PUT", k.path + "/free", k.text(name("free"), true), ""})
		} else {
			fine = append(fine,
				try{"a binding of what may be bound", "POST", k.path, binding(k.kind, name("bound"), "free"), ""})
		}
		for _, try := range fine {
			if code, text := sendRequest(t, jane, try.method, try.path, try.body,
				contentTypeHeader(try.content)...); code != 201 {
				t.Errorf("%s of a %s that she may: %d %s", try.how, k.kind, code, text)
			}
		}
	}
	var is rbacv1.ClusterRole
	if _, text := sendRequest(t, admin, "GET", "/apis/"+api+"/clusterroles/little", ""); json.Unmarshal([]byte(text),
		&is) != nil ||
		len(is.Rules) != 1 ||
		is.Rules[0].Resources[0] != "configmaps" {
		t.Error(text)
	}
}

// A user who may only read a kubelet through the server cannot run commands in its pods, although a WebSocket starts
// with a GET.
// Proves S08.
func TestKubeletReadersCannotRunCommands(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	admin := c.configFor(certs.Admin())
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for path, body := range map[string]string{
		"/api/v1/nodes":              `{"metadata":{"name":"bare"}}`,
		rbac + "clusterroles":        `{"metadata":{"name":"reads"},"rules":[{"apiGroups":[""],"resources":["nodes/proxy"],"verbs":["get"]}]}`,
		rbac + "clusterrolebindings": `{"metadata":{"name":"reads"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reads"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}]}`,
	} {
		if code, text := sendRequest(t, admin, "POST", path, body); code != 201 {
			t.Fatalf("%s: %d %s", path, code, text)
		}
	}
	jane := c.configFor(certs.Request{CommonName: "jane"})
	// The grant takes effect a moment after it was written, when the cache has it.
	waitUntil(t, func() error {
		code, text := sendRequest(t, jane, "GET", "/api/v1/nodes/bare/proxy/metrics", "")
		if code != 503 { // allowed, but there is no kubelet
			return fmt.Errorf("what she was granted does not hold: %d %s", code, text)
		}
		return nil
	})
	for path, want := range map[string]int{
		"/metrics": 503, "/pods": 503, "/execute": 503, // allowed, but there is no kubelet
		"/exec/shop/web/main": 403, "/attach/shop/web/main": 403, "/portForward/shop/web": 403,
		"/run/shop/web/main":   403,
		"//exec/shop/web/main": 403, "/./exec/shop/web/main": 403, "/pods/../exec/shop/web/main": 403,
		"/%65xec/shop/web/main": 403, "/exec": 403,
	} {
		if code, text := sendRequest(t, jane, "GET", "/api/v1/nodes/bare/proxy"+path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

func contentTypeHeader(content string) []string {
	if content == "" {
		return nil
	}
	return []string{"Content-Type", content}
}
