package workload

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

var testWorkload = config.Workload{
	Address: "workload.web",
	Name:    "web", Namespace: "shop", Replicas: 3, Config: map[string]string{"index.html": "hi"},
	Containers: []config.Container{{
		Name: "web", Image: "clusterctl.local/web:1", Ports: map[string]int{"http": 8080},
		Requests: map[string]string{"cpu": "100m"},
		Env: map[string]string{
			"B": "2",
			"A": "1",
		}, Mounts: map[string]string{"/www": "config"}, Readiness: &config.Probe{HTTP: "/", Port: "http"},
	}},
	Service: &config.Service{
		Type:      "NodePort",
		Ports:     map[string]int{"http": 80},
		NodePorts: map[string]int{"http": 30080},
	},
}

const wantDeployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app.kubernetes.io/managed-by: clusterctl
    app.kubernetes.io/name: web
  name: web
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: web
  template:
    metadata:
      annotations:
        clusterctl/config-digest: DIGEST
      labels:
        app.kubernetes.io/name: web
    spec:
      containers:
      - env:
        - name: A
          value: "1"
        - name: B
          value: "2"
        image: clusterctl.local/web:1
        name: web
        ports:
        - containerPort: 8080
          name: http
          protocol: TCP
        readinessProbe:
          httpGet:
            path: /
            port: http
        resources:
          requests:
            cpu: 100m
        volumeMounts:
        - mountPath: /www
          name: config
      volumes:
      - configMap:
          name: web
        name: config
`

func findDesired(t *testing.T, list []Desired, kind, name string) Desired {
	t.Helper()
	for _, d := range list {
		if d.Object.GetKind() == kind && d.Object.GetName() == name {
			return d
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return Desired{}
}

// The short form becomes a Deployment with the declared values and nothing else.
// Proves P06.
func TestWorkloadsAreDeployments(t *testing.T) {
	list, err := Objects(&config.Cluster{Name: "home", Workloads: []config.Workload{testWorkload}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(findDesired(t, list, "Deployment", "web").Object.Object)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(wantDeployment, "DIGEST", mapDigest(testWorkload.Config), 1)
	if string(text) != want {
		t.Errorf("got:\n%s", text)
	}
	if ns := findDesired(t, list, "Namespace", "shop"); !ns.IsNeverPruned {
		t.Error("a namespace that was only needed would be pruned with all that others put into it")
	}
}

func TestPodsRollWhenTheirConfigurationChanges(t *testing.T) {
	changed := testWorkload
	changed.Config = map[string]string{"index.html": "ho"}
	if mapDigest(changed.Config) == mapDigest(testWorkload.Config) {
		t.Error("the digest stays the same")
	}
}

// Objects that were applied and are no longer declared are pruned, and no others.
// Proves P06.
func TestObjectsNoLongerDeclaredAreObsolete(t *testing.T) {
	desired, err := Objects(&config.Cluster{Name: "home", Workloads: []config.Workload{testWorkload}})
	if err != nil {
		t.Fatal(err)
	}
	old := state.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"}
	moved := state.Object{APIVersion: "apps/v1beta1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	if got := obsoleteObjects(desired, []state.Object{old, moved}); !slices.Equal(got, []state.Object{old}) {
		t.Errorf("obsolete %v, want only %v", got, old)
	}
}

func newObject(kind string, fields map[string]any) *unstructured.Unstructured {
	fields["kind"] = kind
	return &unstructured.Unstructured{Object: fields}
}

func TestDiffNamesFieldsAndHidesSecrets(t *testing.T) {
	before := newObject(
		"Deployment",
		map[string]any{
			"metadata": map[string]any{"resourceVersion": "1"},
			"spec": map[string]any{
				"replicas": int64(2),
				"list":     []any{map[string]any{"name": "web", "image": "a"}},
			},
		},
	)
	after := newObject(
		"Deployment",
		map[string]any{
			"metadata": map[string]any{"resourceVersion": "2"},
			"spec": map[string]any{
				"replicas": int64(3),
				"list":     []any{map[string]any{"name": "web", "image": "b"}},
			},
		},
	)
	want := []string{`spec.list[web].image: "a" → "b"`, "spec.replicas: 2 → 3"}
	if got := Diff(before, after); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got := Diff(newObject("Secret", map[string]any{"data": map[string]any{"password": "b2xk"}}), newObject("Secret",
		map[string]any{"data": map[string]any{"password": "bmV3"}}))
	if !slices.Equal(got, []string{"data.password: (sensitive)"}) {
		t.Errorf("a secret is shown: %q", got)
	}
}

func TestUnhealthyObjectsReportWhatIsMissing(t *testing.T) {
	deployment := func(generation, observed, updated, available int64) *unstructured.Unstructured {
		return newObject("Deployment", map[string]any{
			"metadata": map[string]any{"generation": generation}, "spec": map[string]any{"replicas": int64(2)},
			"status": map[string]any{
				"observedGeneration": observed,
				"replicas":           updated,
				"updatedReplicas":    updated,
				"availableReplicas":  available,
			},
		})
	}
	for want, d := range map[string]*unstructured.Unstructured{
		"":                                   deployment(1, 1, 2, 2),
		"not yet seen by its controller":     deployment(2, 1, 2, 2),
		"1 of 2 pods are of the new version": deployment(1, 1, 1, 1),
		"0 of 2 pods are available":          deployment(1, 1, 2, 0),
	} {
		if got := DescribeUnhealthy(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
