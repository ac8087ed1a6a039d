package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/store"
)

// storeUndecodable stores a value at a key that cannot be decoded.
func storeUndecodable(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	kv, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	guard := store.Guard{Key: key}
	if kv != nil {
		guard.Revision = kv.Revision
	}
	if r, err := s.Commit(t.Context(),
		store.Txn{Guards: []store.Guard{guard}, Puts: []store.Put{{Key: key, Value: []byte(value)}}}); err != nil ||
		!r.Done {
		t.Fatal(r, err)
	}
}

// Reading an unreadable object by name is an error, and never "not found". It may have been unreadable at the start or
// have become so.
// Proves S12.
func TestUnreadableObjectsAreNotNotFound(t *testing.T) {
	for name, before := range map[string]bool{"found at the start": true, "while the server runs": false} {
		t.Run(name, func(t *testing.T) {
			s := stores["memory"](t)
			const key = "/registry/configmaps/default/bad"
			if before {
				storeUndecodable(t, s, key, "\xff\x00garbage")
			}
			cfg := startConfig(t, s, nil)
			const path = "/api/v1/namespaces/default/configmaps"
			if code, text := sendRequest(t, cfg, "POST", path, `{"metadata":{"name":"good"}}`); code != 201 {
				t.Fatalf("%d %s", code, text)
			}
			if !before {
				if code, text := sendRequest(t, cfg, "POST", path, `{"metadata":{"name":"bad"}}`); code != 201 {
					t.Fatalf("%d %s", code, text)
				}
				storeUndecodable(t, s, key, "\xff\x00garbage")
			}
			const corrupt, list = "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /registry/configmaps/default/bad, ", `"reason":"StorageReadError"`
			for _, c := range []struct {
				method, path, body string
				code               int
				want               string
			}{
				{"GET", path + "/bad", "", 500, corrupt},
				{"GET", path + "/good", "", 200, "good"},
				{"GET", path, "", 500, list},
				{"GET", path, "", 500, `"field":"/registry/configmaps/default/bad"`},
				{"GET", path, "", 500, "failed to read one or more configmaps from the storage"},
				{"GET", "/api/v1/configmaps?limit=1", "", 500, list},
				{"GET", path + "?resourceVersion=0", "", 500, list},
				{"GET", path + "?watch=1&timeoutSeconds=1", "", 500, list},
				{"GET", path + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dgood", "", 200, "good"},
				{"GET", path + "?fieldSelector=metadata.name%3Dgood", "", 200, "good"},
				{"GET", path + "?labelSelector=a%3Db", "", 500, list},
				{"GET", "/api/v1/namespaces/kube-system/configmaps", "", 200, `"items":[`},
				{"POST", path, `{"metadata":{"name":"bad"}}`, 409, "AlreadyExists"},
				{"PUT", path + "/bad", `{"metadata":{"name":"bad"}}`, 500, corrupt},
				{"DELETE", path + "/bad", "", 500, corrupt},
				{"DELETE", path, "", 500, list},
				{"DELETE", path + "?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", 422,
					"is not allowed with DELETECOLLECTION"},
				{"DELETE", path + "/good?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", 422,
					"is exclusively used to delete corrupt object(s), try again by removing this option"},
				{"DELETE", path + "/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true&gracePeriodSeconds=1", "",
					422, "cannot be set together with .gracePeriodSeconds"},
				{"GET", "/readyz", "", 200, "ok"},
				{"GET", "/readyz/stored-objects", "", 500, ""},
				{"GET", "/metrics", "", 200, `apiserver_storage_unreadable_objects{group="",passing="false",resource="configmaps"} 1`},
				{"DELETE", path + "/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", 200, `"status":"Success"`},
			} {
				waitUntil(t, func() error { // the spoiled value takes a moment to reach the cache
					if code, text := sendRequest(t, cfg, c.method, c.path, c.body); code != c.code ||
						!strings.Contains(text, c.want) {
						return fmt.Errorf("%s %s: %d, want %d with %s: %.600s", c.method, c.path, code, c.code, c.want,
							text)
					}
					return nil
				})
			}
			waitUntil(t, func() error {
				if code, text := sendRequest(t, cfg, "GET", path, ""); code != 200 || !strings.Contains(text, "good") {
					return fmt.Errorf("%d %s", code, text)
				}
				return nil
			})
			for path, want := range map[string]int{path + "/bad": 404, path + "/good": 200,
				"/readyz/stored-objects": 200} {
				if code, text := sendRequest(t, cfg, "GET", path, ""); code != want {
					t.Errorf("%s: %d %s", path, code, text)
				}
			}
		})
	}
}

// An object in the usual form with a field of a wrong type is detected when it is first needed. It is never decoded to
// an object without fields, and all later reads of it fail.
// Proves S12.
func TestObjectsWithWrongFieldTypesAreErrors(t *testing.T) {
	const spoiled = `{"kind":"%s","apiVersion":"%s","metadata":{"name":"bad","namespace":"default","uid":"1","creationTimestamp":"2026-01-01T00:00:00Z"},%s}`
	for _, c := range []struct {
		key, text string
		method    string // the request that detects it
		path      string
		body      string
		accept    string
	}{
		{"configmaps", fmt.Sprintf(spoiled, "ConfigMap", "v1", `"data":{"a":1}`), "DELETE", "/api/v1/namespaces/default/configmaps/bad", "", ""},
		{"configmaps", fmt.Sprintf(spoiled, "ConfigMap", "v1", `"data":{"a":1}`), "PATCH", "/api/v1/namespaces/default/configmaps/bad", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"configmaps", fmt.Sprintf(spoiled, "ConfigMap", "v1", `"data":{"a":1}`), "DELETE", "/api/v1/namespaces/default/configmaps", "", ""},
		{"pods", fmt.Sprintf(spoiled, "Pod", "v1", `"spec":{"containers":[{"name":7}]}`), "GET", "/api/v1/namespaces/default/pods", "", "application/vnd.kubernetes.protobuf"},
		{"pods", fmt.Sprintf(spoiled, "Pod", "v1", `"spec":{"containers":[{"name":7}]}`), "GET", "/api/v1/namespaces/default/pods/bad", "", "application/vnd.kubernetes.protobuf"},
		{"pods", fmt.Sprintf(spoiled, "Pod", "v1", `"spec":{"containers":[{"name":7}]}`), "GET", "/api/v1/pods", "", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"pods", fmt.Sprintf(spoiled, "Pod", "v1", `"spec":{"containers":[{"name":7}]}`), "GET", "/api/v1/namespaces/default/pods/bad:80/proxy/", "", ""},
		{"pods", fmt.Sprintf(spoiled, "Pod", "v1", `"spec":{"containers":[{"name":7}]}`), "POST", "/api/v1/namespaces/default/pods/bad/eviction", `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"bad"}}`, ""},
		{"services", fmt.Sprintf(spoiled, "Service", "v1", `"spec":{"ports":[{"port":"a"}]}`), "GET", "/api/v1/namespaces/default/services/bad:80/proxy/", "", ""},
		{"deployments", fmt.Sprintf(spoiled, "Deployment", "apps/v1", `"spec":{"replicas":"3"}`), "GET", "/apis/apps/v1/namespaces/default/deployments/bad/scale", "", ""},
		{"deployments", fmt.Sprintf(spoiled, "Deployment", "apps/v1", `"spec":{"replicas":"3"}`), "GET", "/apis/apps/v1/deployments", "", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
	} {
		t.Run(c.method+" "+c.path+" "+c.accept, func(t *testing.T) {
			s := stores["memory"](t)
			key := "/registry/" + strings.Replace(c.key, "services", "services/specs", 1) + "/default/bad"
			storeUndecodable(t, s, key, c.text)
			cfg := startConfig(t, s, nil)
			client := kubernetes.NewForConfigOrDie(cfg).RESTClient()
			ask := func(method, path, body, accept string) (int, string) {
				r := client.Verb(method).RequestURI(path)
				if accept != "" {
					r = r.SetHeader("Accept", accept)
				}
				if body != "" {
					r = r.Body([]byte(body)).
						SetHeader("Content-Type",
							map[string]string{"PATCH": "application/merge-patch+json",
								"POST": "application/json"}[method])
				}
				var code int
				text, err := r.Do(t.Context()).StatusCode(&code).Raw()
				return code, fmt.Sprint(string(text), err)
			}
			if code, text := ask(c.method, c.path, c.body, c.accept); code != 500 {
				t.Errorf("what needs it: %d %s", code, text)
			}
			group := "/api/v1"
			if c.key == "deployments" {
				group = "/apis/apps/v1"
			}
			for path, want := range map[string]string{
				group + "/namespaces/default/" + c.key + "/bad": key,
				group + "/" + c.key:                             "failed to read one or more",
				"/readyz/stored-objects":                        "",
			} {
				if code, text := ask("GET", path, "", ""); code != 500 || !strings.Contains(text, want) {
					t.Errorf("then %s: %d %s", path, code, text)
				}
			}
			if kv, err := s.Get(t.Context(), key); err != nil || kv == nil || string(kv.Value) != c.text {
				t.Errorf("stored is %v %v", kv, err)
			}
			if code, text := ask("DELETE", group+"/namespaces/default/"+c.key+
				"/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", ""); code != 200 {
				t.Errorf("to delete it: %d %s", code, text)
			}
		})
	}
}

// A server whose default objects include unreadable ones creates the others and becomes ready. Unreadable roles and
// flow schemas are counted and named.
// Proves S12.
func TestBootstrapSkipsUnreadableObjects(t *testing.T) {
	for key, of := range map[string]string{
		"namespaces/default":     `group="",passing="false",resource="namespaces"`,
		"namespaces/kube-system": `group="",passing="false",resource="namespaces"`,
		"clusterroles/edit":      `group="rbac.authorization.k8s.io",passing="false",resource="clusterroles"`,
		"roles/kube-system/x":    `group="rbac.authorization.k8s.io",passing="false",resource="roles"`,
		"flowschemas/exempt":     `group="flowcontrol.apiserver.k8s.io",passing="false",resource="flowschemas"`,
	} {
		t.Run(key, func(t *testing.T) {
			s := stores["memory"](t)
			storeUndecodable(t, s, "/registry/"+key, "nonsense")
			cfg := serveCluster(t, s).configFor(certs.Admin()) // returns when it is ready
			for path, want := range map[string]string{
				"/readyz":                            "ok",
				"/api/v1/namespaces/kube-node-lease": "kube-node-lease",
				"/apis/rbac.authorization.k8s.io/v1/clusterroles/view": "view",
			} {
				if code, text := sendRequest(t, cfg, "GET", path, ""); code != 200 || !strings.Contains(text, want) {
					t.Errorf("%s: %d %s", path, code, text)
				}
			}
			if _, text := sendRequest(t, cfg, "GET", "/metrics", ""); !strings.Contains(text,
				"apiserver_storage_unreadable_objects{"+of+"} 1") {
				t.Errorf("not counted with %s", of)
			}
			if code, _ := sendRequest(t, cfg, "GET", "/readyz/stored-objects", ""); code != 500 {
				t.Errorf("the health check: %d", code)
			}
		})
	}
}

// A watch whose object becomes unreadable ends with an error, and never reports a deletion.
// Proves S12.
func TestWatchFailsWhenAnObjectBecomesUnreadable(t *testing.T) {
	s := stores["memory"](t)
	client := kubernetes.NewForConfigOrDie(startConfig(t, s, nil)).CoreV1()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pod := boundPod("p", "node-1")
	if _, err := client.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watches := map[string]watch.Interface{}
	for name, o := range map[string]metav1.ListOptions{
		"all": {}, "the node's": {FieldSelector: "spec.nodeName=node-1"},
		"another node's": {FieldSelector: "spec.nodeName=node-2"},
		"its own":        {FieldSelector: "metadata.name=p"}, "labelled": {LabelSelector: "a=b"},
		"another's": {FieldSelector: "metadata.name=q"},
	} {
		w, err := client.Pods("default").Watch(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[name] = w
	}
	storeUndecodable(t, s, "/registry/pods/default/p", `{"kind":"Pod"`)
	for name, w := range watches {
		if name == "another's" {
			continue
		}
		if st := endError(ctx, t, name, w); st == nil || st.Code != 500 ||
			!strings.Contains(st.Message, "corrupt object") {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if _, err := client.Pods("default").Create(ctx, boundPod("q", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watches["another's"].ResultChan(); event.Type != watch.Added {
		t.Errorf("of another object: %+v", event)
	}
}

// endError returns the error with which a watch ends. Before it, only initial events may arrive. It is nil if the watch
// ends without an error, or continues.
func endError(ctx context.Context, t *testing.T, name string, w watch.Interface) *metav1.Status {
	t.Helper()
	for {
		select {
		case event, open := <-w.ResultChan():
			if st, ok := event.Object.(*metav1.Status); ok || !open {
				return st
			}
			if event.Type != watch.Added {
				t.Errorf("%s: %+v", name, event)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// A write that an unreadable policy, webhook, quota or namespace might refuse is not admitted.
// Proves S12.
func TestAdmissionFailsClosedOnUnreadableObjects(t *testing.T) {
	const configmaps, kube = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/kube-system/configmaps"
	for _, c := range []struct {
		key, path, body string
		elsewhere       string // path where the same write is admitted; empty if there is none
	}{
		{"validatingwebhookconfigurations/w", configmaps, `{"metadata":{"name":"a"}}`, ""},
		{"validatingadmissionpolicies/p", configmaps, `{"metadata":{"name":"a"}}`, ""},
		{"validatingadmissionpolicybindings/p", configmaps, `{"metadata":{"name":"a"}}`, ""},
		{"resourcequotas/default/q", configmaps, `{"metadata":{"name":"a"}}`, kube},
		{"namespaces/other", "/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"a"}}`, kube},
		{"priorityclasses/high", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a"}]}}`, ""},
		{"limitranges/default/l", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a"}]}}`, ""},
	} {
		t.Run(c.key, func(t *testing.T) {
			s := stores["memory"](t)
			storeUndecodable(t, s, "/registry/"+c.key, "nonsense")
			cfg := serveCluster(t, s).configFor(certs.Admin())
			waitUntil(t, func() error {
				if code, text := sendRequest(t, cfg, "POST", c.path, c.body); code != 500 ||
					!strings.Contains(text, "/registry/"+c.key) {
					return fmt.Errorf("%d %s", code, text)
				}
				return nil
			})
			if c.elsewhere != "" {
				waitUntil(t, func() error {
					if code, text := sendRequest(t, cfg, "POST", c.elsewhere, c.body); code != 201 {
						return fmt.Errorf("elsewhere: %d %s", code, text)
					}
					return nil
				})
			}
		})
	}
}

// Deleting an unreadable object needs a right of its own.
// Proves S12.
func TestDeletingUnreadableObjectsNeedsASpecialRight(t *testing.T) {
	s := stores["memory"](t)
	storeUndecodable(t, s, "/registry/configmaps/default/bad", "nonsense")
	c := serveCluster(t, s)
	admin := c.configFor(certs.Admin())
	for path, body := range map[string]string{
		"roles":        `{"metadata":{"name":"d"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","delete"]}]}`,
		"rolebindings": `{"metadata":{"name":"d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"d"},"subjects":[{"kind":"User","name":"ann"}]}`,
	} {
		if code, text := sendRequest(t, admin, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"+path,
			body); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	const path = "/api/v1/namespaces/default/configmaps/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	ann := c.configFor(certs.Request{CommonName: "ann"})
	waitUntil(t, func() error {
		code, text := sendRequest(t, ann, "DELETE", path, "")
		if code != 403 || !strings.Contains(text, `not permitted to do \"unsafe-delete-ignore-read-errors\"`) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	if code, text := sendRequest(t, admin, "DELETE", path, ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

// boundPod returns a pod that is bound to a node.
func boundPod(name, node string) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	return p
}

// A value of another kind, or of no kind, is not decoded to an object without fields and without a UID.
// Proves S12.
func TestStoredValuesOfAnotherKindAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                `{}`,
		"null":                   `null`,
		"no kind":                `{"metadata":{"name":"bad","namespace":"default","uid":"1"}}`,
		"another kind":           `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"bad","namespace":"default","uid":"1"}}`,
		"a version that is gone": `{"kind":"ConfigMap","apiVersion":"v1beta9","metadata":{"name":"bad","namespace":"default","uid":"1"}}`,
		"another group":          `{"kind":"ConfigMap","apiVersion":"apps/v1","metadata":{"name":"bad","namespace":"default","uid":"1"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := stores["memory"](t)
			const key, path = "/registry/configmaps/default/bad", "/api/v1/namespaces/default/configmaps"
			storeUndecodable(t, s, key, text)
			cfg := startConfig(t, s, nil)
			for path, want := range map[string]string{path + "/bad": key, path: "failed to read one or " +
				"more", "/readyz/stored-objects": ""} {
				if code, answer := sendRequest(t, cfg, "GET", path, ""); code != 500 ||
					!strings.Contains(answer, want) {
					t.Errorf("%s: %d %s", path, code, answer)
				}
			}
			if code, answer := sendRequest(t, cfg, "DELETE", path+"/bad", ""); code != 500 {
				t.Errorf("to delete it as any other: %d %s", code, answer)
			}
			if code, answer := sendRequest(t, cfg, "DELETE", path+
				"/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true",
				""); code != 200 {
				t.Errorf("to delete it: %d %s", code, answer)
			}
		})
	}
}
