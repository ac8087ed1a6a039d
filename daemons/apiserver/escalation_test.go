package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

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
	allowWrites(ctx, t, client)
	admin, jane := c.configFor(certs.Admin()), c.configFor(certs.Request{CommonName: "jane"})

	for _, k := range []grantKind{
		{"Role", "/apis/" + rbacAPI + "/namespaces/default/roles", `[{"op":"add","path":"/rules/0/resources/-","value":"secrets"}]`},
		{"ClusterRole", "/apis/" + rbacAPI + "/clusterroles", `[{"op":"add","path":"/rules/0/resources/-","value":"secrets"}]`},
		{"RoleBinding", "/apis/" + rbacAPI + "/namespaces/default/rolebindings", ""},
		{"ClusterRoleBinding", "/apis/" + rbacAPI + "/clusterrolebindings", ""},
	} {
		k.create(t, admin)
		for _, try := range slices.Concat(k.excessive(), k.growing(), k.aggregating()) {
			if code, text := sendRequest(t, jane, try.method, try.path, try.body,
				contentTypeHeader(try.content)...); code != 403 {
				t.Errorf("%s of a %s: %d %s", try.how, k.kind, code, text)
			}
		}
		if list, text := sendRequest(t, admin, "GET", k.path+"/a", ""); list != 404 {
			t.Errorf("a %s was created: %s", k.kind, text)
		}
		if k.grow != "" {
			// A POST has no name in its path, so a right that is limited to that name does not cover it.
			if code, text := sendRequest(t, jane, "POST", k.path, k.text(metaName("free"), true)); code != 403 {
				t.Errorf("a POST of a %s that may be escalated by its name: %d %s", k.kind, code, text)
			}
		}
		for _, try := range k.permitted() {
			if code, text := sendRequest(t, jane, try.method, try.path, try.body,
				contentTypeHeader(try.content)...); code != 201 {
				t.Errorf("%s of a %s that she may: %d %s", try.how, k.kind, code, text)
			}
		}
	}
	var role rbacv1.ClusterRole
	if _, text := sendRequest(t, admin, "GET", "/apis/"+rbacAPI+"/clusterroles/little",
		""); json.Unmarshal([]byte(text),
		&role) != nil ||
		len(role.Rules) != 1 ||
		role.Rules[0].Resources[0] != "configmaps" {
		t.Error(text)
	}
}

const rbacAPI = "rbac.authorization.k8s.io/v1"

// These are the content types of further patches.
const (
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
)

// grantKind is a kind of object that grants rights.
type grantKind struct {
	kind, path string
	grow       string // a JSON patch that adds rights to an object with few; empty if the object cannot be changed
}

// grantAttempt is a request that would grant rights.
type grantAttempt struct{ how, method, path, body, content string }

// text returns an object that grants many rights, or few.
func (k grantKind) text(meta string, strong bool) string {
	if strings.HasSuffix(k.kind, "Binding") {
		return bindingText(k.kind, meta, map[bool]string{true: "cluster-admin", false: "weak"}[strong])
	}
	return roleText(k.kind, meta, map[bool]string{true: "secrets", false: "configmaps"}[strong])
}

// create creates the objects that an administrator has created before.
func (k grantKind) create(t *testing.T, admin *rest.Config) {
	t.Helper()
	if k.kind == "Role" {
		if code, text := sendRequest(t, admin, "POST", "/apis/"+rbacAPI+"/clusterroles",
			roleText("ClusterRole", metaName("weak"), "configmaps")); code != 201 {
			t.Fatal(code, text)
		}
	}
	for n, strong := range map[string]bool{"little": false, "much": true} {
		if code, text := sendRequest(t, admin, "POST", k.path, k.text(metaName(n), strong)); code != 201 {
			t.Fatal(code, text)
		}
	}
}

// excessive returns requests that create an object with many rights, or change one.
func (k grantKind) excessive() []grantAttempt {
	return []grantAttempt{
		{"POST", "POST", k.path, k.text(metaName("a"), true), ""},
		{"POST with a generated name", "POST", k.path, k.text(`"generateName":"a-"`, true), ""},
		{
			"POST with the generated name of one that is free",
			"POST",
			k.path,
			k.text(`"generateName":"free"`, true),
			"",
		},
		{"dry run", "POST", k.path + "?dryRun=All", k.text(metaName("a"), true), ""},
		{"PUT that creates", "PUT", k.path + "/a", k.text(metaName("a"), true), ""},
		{"PUT that creates, dry", "PUT", k.path + "/a?dryRun=All", k.text(metaName("a"), true), ""},
		{"apply that creates", "PATCH", k.path + "/a?fieldManager=m", k.text(metaName("a"), true), applyType},
		{
			"apply that creates by force, dry",
			"PATCH",
			k.path + "/a?fieldManager=m&force=true&dryRun=All",
			k.text(metaName("a"), true),
			applyType,
		},
		{
			"a subject for what grants much, or a label",
			"PATCH",
			k.path + "/much",
			`{"metadata":{"labels":{"x":"y"}},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"me"}]}`,
			mergePatch,
		},
		{
			"apply to what grants much",
			"PATCH",
			k.path + "/much?fieldManager=m&force=true",
			k.text(metaName("much")+`,"labels":{"x":"y"}`, true),
			applyType,
		},
		{
			"strategic patch of what grants much",
			"PATCH",
			k.path + "/much",
			`{"metadata":{"labels":{"x":"y"}}}`,
			strategicType,
		},
		{
			"JSON patch of what grants much",
			"PATCH",
			k.path + "/much",
			`[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`,
			jsonPatchType,
		},
	}
}

// growing returns requests that add rights to an object with few.
func (k grantKind) growing() []grantAttempt {
	if k.grow == "" {
		return nil
	}
	return []grantAttempt{
		{"PUT that grows", "PUT", k.path + "/little", k.text(metaName("little"), true), ""},
		{"JSON patch that grows", "PATCH", k.path + "/little", k.grow, jsonPatchType},
		{"JSON patch that grows, dry", "PATCH", k.path + "/little?dryRun=All", k.grow, jsonPatchType},
		{"merge patch that grows", "PATCH", k.path + "/little", k.text("", true), mergePatch},
		{"strategic patch that grows", "PATCH", k.path + "/little", k.text("", true), strategicType},
		{
			"apply that grows",
			"PATCH",
			k.path + "/little?fieldManager=m&force=true",
			k.text(metaName("little"), true),
			applyType,
		},
	}
}

// aggregating returns requests for cluster roles that aggregate others.
func (k grantKind) aggregating() []grantAttempt {
	if k.kind != "ClusterRole" {
		return nil
	}
	all := `{"apiVersion":"` + rbacAPI + `","kind":"ClusterRole","metadata":{"name":"%s"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`
	return []grantAttempt{
		{"an aggregate", "POST", k.path, fmt.Sprintf(all, "a"), ""},
		{"an aggregate by apply", "PATCH", k.path + "/a?fieldManager=m", fmt.Sprintf(all, "a"), applyType},
		{
			"what grants little becomes an aggregate",
			"PATCH",
			k.path + "/little",
			`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`,
			mergePatch,
		},
	}
}

// permitted returns requests that grant the rights that jane has, and those of the role that she may escalate or bind
// by its name.
func (k grantKind) permitted() []grantAttempt {
	list := []grantAttempt{
		{"POST", "POST", k.path, k.text(metaName("given"), false), ""},
		{"apply", "PATCH", k.path + "/applied?fieldManager=m", k.text(metaName("applied"), false), applyType},
		{"PUT that creates", "PUT", k.path + "/put", k.text(metaName("put"), false), ""},
	}
	if k.grow != "" {
		return append(list, grantAttempt{"PUT of what may be escalated", "PUT", k.path + "/free",
			k.text(metaName("free"), true), ""})
	}
	return append(list, grantAttempt{"a binding of what may be bound", "POST", k.path,
		bindingText(k.kind, metaName("bound"), "free"), ""})
}

func roleText(kind, meta, resource string) string {
	return fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"metadata":{%s},"rules":[{"apiGroups":[""],"resources":[%q],"verbs":["get"]}]}`,
		rbacAPI,
		kind,
		meta,
		resource,
	)
}

func bindingText(kind, meta, to string) string {
	return fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"metadata":{%s},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"joe"}]}`,
		rbacAPI,
		kind,
		meta,
		to,
	)
}

func metaName(n string) string { return fmt.Sprintf(`"name":%q`, n) }

// allowWrites lets jane write roles and bindings, escalate and bind the role free, and read config maps.
func allowWrites(ctx context.Context, t *testing.T, client rbacclient.RbacV1Interface) {
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
