package apiserver_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// An object stays writable if an older server stored host aliases with addresses that are invalid now.
// Proves S12.
func TestInvalidStoredHostAliasesStayWritable(t *testing.T) {
	const template = `{"metadata":{"labels":{"app":"web"}},"spec":{"restartPolicy":%q,"hostAliases":[{"ip":"10.0.0.8","hostnames":["a.b"]}],"containers":[{"name":"c","image":"i"}]}}`
	const selector = `"selector":{"matchLabels":{"app":"web"}},`
	for name, c := range map[string]struct{ resources, version, kind, spec, at string }{
		"deployment":  {"deployments", "apps/v1", "Deployment", selector + `"template":` + fmt.Sprintf(template, "Always"), "spec.template.spec"},
		"replicaset":  {"replicasets", "apps/v1", "ReplicaSet", selector + `"template":` + fmt.Sprintf(template, "Always"), "spec.template.spec"},
		"daemonset":   {"daemonsets", "apps/v1", "DaemonSet", selector + `"template":` + fmt.Sprintf(template, "Always"), "spec.template.spec"},
		"statefulset": {"statefulsets", "apps/v1", "StatefulSet", selector + `"serviceName":"s","template":` + fmt.Sprintf(template, "Always"), "spec.template.spec"},
		"job":         {"jobs", "batch/v1", "Job", `"template":` + fmt.Sprintf(template, "Never"), ""},
		"cronjob":     {"cronjobs", "batch/v1", "CronJob", `"schedule":"0 0 * * *","jobTemplate":{"spec":{"template":` + fmt.Sprintf(template, "Never") + `}}`, "spec.jobTemplate.spec.template.spec"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			t.Cleanup(s.Close)
			cfg := startConfig(t, s, nil)
			path := "/apis/" + c.version + "/namespaces/default/" + c.resources
			if code, text := sendRequest(t, cfg, "POST", path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"web"},"spec":{%s}}`, c.version, c.kind, c.spec)); code != http.StatusCreated {
				t.Fatal(code, text)
			}
			key := "/registry/" + c.resources + "/default/web"
			kv, err := s.Get(t.Context(), key)
			if err != nil || kv == nil {
				t.Fatal(kv, err)
			}
			older := bytes.ReplaceAll(kv.Value, []byte("10.0.0.8"), []byte("010.00.0.8"))
			if r, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key, Value: older}}}); err != nil ||
				!r.Done {
				t.Fatal(r, err)
			}
			if code, text := sendRequest(t, cfg, "PATCH", path+"/web", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch); code != http.StatusOK ||
				!strings.Contains(text, "010.00.0.8") {
				t.Errorf("a label: %d %s", code, text)
			}
			if c.at == "" {
				return // a job's template is immutable
			}
			other := `[{"op":"replace","path":"/` + strings.ReplaceAll(c.at, ".",
				"/") + `/hostAliases/0/ip","value":"010.00.0.9"}]`
			if code, text := sendRequest(t, cfg, "PATCH", path+"/web", other, "Content-Type",
				"application/json-patch+json"); code != http.StatusUnprocessableEntity ||
				!strings.Contains(text, "must not have leading 0s") {
				t.Errorf("another such address: %d %s", code, text)
			}
		})
	}
}
