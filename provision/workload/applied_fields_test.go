package workload

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// liveService is a service that the manager m has applied, with a default of the API server.
const liveService = `
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  uid: u
  resourceVersion: "7"
  labels: {app: web, added: by-another}
  managedFields:
  - {manager: other, operation: Update, apiVersion: v1, fieldsV1: {"f:metadata": {"f:labels": {"f:added": {}}}}}
  - manager: m
    operation: Apply
    apiVersion: v1
    fieldsV1:
      "f:metadata": {"f:labels": {"f:app": {}}}
      "f:spec":
        "f:ports":
          'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}
          'k:{"port":443,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}
        "f:selector": {}
spec:
  clusterIP: 10.96.0.9
  selector: {app: web}
  ports: [{port: 80, protocol: TCP, targetPort: 80}, {port: 443, protocol: TCP, targetPort: 443}]
`

const declaredService = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop",
	"labels": {"app": "web"}}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP"},
	{"port": 443, "protocol": "TCP"}]}}`

// A dry run is left out only if the manager owns exactly what is declared, and all values are the same.
func TestOnlyObjectsThatCertainlyStayTheSameNeedNoDryRun(t *testing.T) {
	type content = map[string]any
	spec := func(o content) content { return o["spec"].(content) }
	ports := func(o content) []any { return spec(o)["ports"].([]any) }
	metadata := func(o content) content { return o["metadata"].(content) }
	for name, row := range map[string]struct {
		change func(declared, live content)
		want   bool
	}{
		"nothing":             {func(_, _ content) {}, true},
		"a label of another":  {func(_, l content) { metadata(l)["labels"].(content)["added"] = "x" }, true},
		"a field of another":  {func(_, l content) { spec(l)["clusterIP"] = "10.96.0.10" }, true},
		"a live label":        {func(_, l content) { metadata(l)["labels"].(content)["app"] = "x" }, false},
		"a live label gone":   {func(_, l content) { delete(metadata(l), "labels") }, false},
		"a declared label":    {func(d, _ content) { metadata(d)["labels"].(content)["app"] = "x" }, false},
		"one more label":      {func(d, _ content) { metadata(d)["labels"].(content)["y"] = "x" }, false},
		"one label less":      {func(d, _ content) { delete(metadata(d), "labels") }, false},
		"one more annotation": {func(d, _ content) { metadata(d)["annotations"] = content{"a": "b"} }, false},
		"an atomic map":       {func(_, l content) { spec(l)["selector"] = content{"app": "web", "x": "y"} }, false},
		"null":                {func(d, _ content) { spec(d)["selector"] = nil }, false},
		"one port less":       {func(d, _ content) { spec(d)["ports"] = ports(d)[:1] }, false},
		"one more port": {func(d, _ content) {
			spec(d)["ports"] = append(ports(d), content{"port": int64(81), "protocol": "TCP"})
		}, false},
		"a live port gone": {func(_, l content) { spec(l)["ports"] = ports(l)[:1] }, false},
		"a live port added": {func(_, l content) {
			spec(l)["ports"] = append(ports(l), content{"port": int64(81), "protocol": "TCP"})
		}, true},
		"the order of ports":     {func(d, _ content) { p := ports(d); p[0], p[1] = p[1], p[0] }, false},
		"a port twice":           {func(d, _ content) { p := ports(d); p[1] = p[0] }, false},
		"a field of a port":      {func(d, _ content) { ports(d)[0].(content)["targetPort"] = int64(80) }, false},
		"a port without its key": {func(d, _ content) { delete(ports(d)[0].(content), "protocol") }, false},
		"another version":        {func(d, _ content) { d["apiVersion"] = "v2" }, false},
		"another manager": {func(_, l content) {
			metadata(l)["managedFields"].([]any)[1].(content)["manager"] = "x"
		}, false},
		"an update by the manager": {func(_, l content) {
			metadata(l)["managedFields"].([]any)[1].(content)["operation"] = "Update"
		}, false},
		"no managed fields": {func(_, l content) { delete(metadata(l), "managedFields") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var declared, live content
			if err := json.Unmarshal([]byte(declaredService), &declared); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(liveService), &live); err != nil {
				t.Fatal(err)
			}
			jsonNumbers(declared)
			jsonNumbers(live)
			row.change(declared, live)
			got := isApplied(&unstructured.Unstructured{Object: declared}, &unstructured.Unstructured{Object: live},
				"m")
			if got != row.want {
				t.Errorf("isApplied returns %v", got)
			}
		})
	}
}
