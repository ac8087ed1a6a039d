package apiserver_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// Like upstream, the server drops fields of disabled features from objects that clients send, because nothing
// implements them.
func TestFieldsOfDisabledFeaturesAreDropped(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	admin := c.configFor(certs.Admin())
	const pod = `"containers":[{"name":"c","image":"i"}],"schedulingGroup":{"podGroupName":"g"},"evictionResponders":[{"name":"x.io/y","priority":10000}]`
	const template = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + pod + `}}`
	inTemplate := [][]string{
		{"spec", "template", "spec", "schedulingGroup"},
		{"spec", "template", "spec", "evictionResponders"},
	}
	if code, text := sendRequest(t, admin, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`); code != http.StatusCreated {
		t.Fatal(code, text)
	}
	for _, k := range []struct {
		path, spec string
		removed    [][]string
		kept       []string
	}{
		{"/api/v1/namespaces/default/pods", pod,
			[][]string{{"spec", "schedulingGroup"}, {"spec", "evictionResponders"}}, []string{"spec", "containers"}},
		{"/api/v1/namespaces/default/replicationcontrollers", `"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + pod + `}}`, inTemplate, []string{"spec", "template", "spec", "containers"}},
		{"/apis/apps/v1/namespaces/default/deployments", template, inTemplate,
			[]string{"spec", "template", "spec", "containers"}},
		{"/apis/apps/v1/namespaces/default/replicasets", template, inTemplate,
			[]string{"spec", "template", "spec", "containers"}},
		{"/apis/apps/v1/namespaces/default/statefulsets", template, inTemplate,
			[]string{"spec", "template", "spec", "containers"}},
		{"/apis/apps/v1/namespaces/default/daemonsets", template, inTemplate,
			[]string{"spec", "template", "spec", "containers"}},
		{"/apis/batch/v1/namespaces/default/jobs", `"scheduling":{},"template":{"spec":{"restartPolicy":"Never",` + pod + `}}`,
			append([][]string{{"spec", "scheduling"}}, inTemplate...),
			[]string{"spec", "template", "spec", "containers"}},
		{"/apis/batch/v1/namespaces/default/cronjobs", `"schedule":"@daily","jobTemplate":{"spec":{"scheduling":{},"template":{"spec":{"restartPolicy":"Never",` + pod + `}}}}`,
			[][]string{{"spec", "jobTemplate", "spec", "scheduling"},
				{"spec", "jobTemplate", "spec", "template", "spec", "schedulingGroup"}}, []string{"spec", "schedule"}},
		{"/api/v1/nodes", `"podPreemptionPolicy":{},"unschedulable":true`, [][]string{{"spec", "podPreemptionPolicy"}}, []string{"spec", "unschedulable"}},
		{"/apis/coordination.k8s.io/v1/namespaces/default/leases", `"holderIdentity":"me","strategy":"OldestEmulationVersion","preferredHolder":"you"`,
			[][]string{{"spec", "strategy"}, {"spec", "preferredHolder"}}, []string{"spec", "holderIdentity"}},
		{"/api/v1/namespaces/default/persistentvolumeclaims", `"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a","namespace":"other"}`,
			[][]string{{"spec", "dataSourceRef"}}, []string{"spec", "accessModes"}},
	} {
		check := func(what string, code, want int, text string) {
			t.Helper()
			if code != want {
				t.Errorf("%s %s: %d %s", what, k.path, code, text)
				return
			}
			var obj map[string]any
			if err := json.Unmarshal([]byte(text), &obj); err != nil {
				t.Fatal(err)
			}
			for _, path := range k.removed {
				if got := valueAt(obj, path...); got != nil {
					t.Errorf("%s %s: %v is %v", what, k.path, path, got)
				}
			}
			if valueAt(obj, k.kept...) == nil {
				t.Errorf("%s %s: %v is gone, too", what, k.path, k.kept)
			}
		}
		code, text := sendRequest(t, admin, "POST", k.path, `{"metadata":{"name":"x"},"spec":{`+k.spec+`}}`)
		check("POST", code, http.StatusCreated, text)
		code, text = sendRequest(t, admin, "PATCH", k.path+"/x", `{"spec":{`+k.spec+`}}`, "Content-Type",
			"application/strategic-merge-patch+json")
		check("PATCH", code, http.StatusOK, text)
	}
	code, text := sendRequest(t, admin, "PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/x/status",
		`{"status":{"phase":"Pending","healthStatus":{}}}`, "Content-Type", mergePatch)
	var claim map[string]any
	if err := json.Unmarshal([]byte(text), &claim); err != nil || code != http.StatusOK ||
		valueAt(claim, "status", "healthStatus") != nil {
		t.Errorf("a claim's health is taken: %d %s (%v)", code, text, err)
	}
}

func valueAt(obj map[string]any, path ...string) any {
	var at any = obj
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[name]
	}
	return at
}
