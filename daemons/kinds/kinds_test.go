package kinds

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

func TestEveryKindIsComplete(t *testing.T) {
	registered := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme,
		apiregistrationv1.AddToScheme} {
		if err := add(registered); err != nil {
			t.Fatal(err)
		}
	}
	names, keys := map[string]bool{}, map[string]bool{}
	for _, k := range All() {
		id := k.GR().String()
		if names[id] {
			t.Errorf("%s twice", id)
		}
		names[id] = true
		for _, short := range k.ShortNames {
			if names[short] {
				t.Errorf("short name %s twice", short)
			}
			names[short] = true
		}
		obj := k.New()
		if got, _, err := registered.ObjectKinds(obj); err != nil || got[0] != k.GVK {
			t.Errorf("%s: New makes %v (%v)", id, got, err)
		}
		if k.Singular != strings.ToLower(k.GVK.Kind) {
			t.Errorf("%s: singular is %q", id, k.Singular)
		}
		if k.Virtual {
			continue
		}
		key := k.StorageKey
		if key == "" {
			key = k.Resource
		}
		if keys[k.GVK.Group+key] {
			t.Errorf("storage key %s twice", key)
		}
		keys[k.GVK.Group+key] = true
		if _, err := meta.ListAccessor(k.NewList()); err != nil {
			t.Errorf("%s: NewList: %v", id, err)
		}
		for _, a := range k.Aliases {
			if got, _, err := registered.ObjectKinds(a.New()); err != nil || got[0] != a.GVK {
				t.Errorf("%s: alias makes %v (%v)", id, got, err)
			}
		}
		if k.Row == nil {
			t.Errorf("%s has no row", id)
			continue
		}
		checkFunctions(t, id, k, obj)
	}
}

// checkFunctions checks that all functions of a kind accept an empty object, since any client may send one.
func checkFunctions(t *testing.T, id string, k *Kind, obj runtime.Object) {
	if k.Default != nil {
		k.Default(obj)
	}
	if k.PrepareCreate != nil {
		k.PrepareCreate(obj)
	}
	if k.Validate != nil {
		k.Validate(obj)
	}
	if k.PrepareUpdate != nil {
		k.PrepareUpdate(obj, k.New())
	}
	if k.ValidateUpdate != nil {
		k.ValidateUpdate(obj, k.New())
	}
	if k.Fields != nil {
		set := k.Fields(obj)
		for _, f := range k.IndexedFields {
			if _, ok := set[f]; !ok {
				t.Errorf("%s: indexed field %s is not among the fields", id, f)
			}
		}
	}
	for _, c := range k.Columns {
		if c.Description == "" {
			t.Errorf("%s: column %s is not described", id, c.Name)
		}
	}
	if cells := k.Row(obj); len(cells) != len(k.Columns) {
		t.Errorf("%s: %d cells in %d columns", id, len(cells), len(k.Columns))
	} else {
		for i, cell := range cells {
			want := map[string]reflect.Kind{"integer": reflect.Int64, "boolean": reflect.Bool}[k.Columns[i].Type]
			if want == 0 {
				want = reflect.String
			}
			if got := reflect.ValueOf(cell).Kind(); got != want {
				t.Errorf("%s: column %s is a %s and holds a %s", id, k.Columns[i].Name, want, got)
			}
		}
	}
	if k.Scale != nil {
		k.Scale.Set(obj, 7)
		if n, _, _ := k.Scale.Get(obj); n != 7 {
			t.Errorf("%s: scale is %d after it was set to 7", id, n)
		}
	}
	if k.GracePeriod != nil {
		k.GracePeriod(obj, nil)
	}
}

// Defaulting is idempotent: the API server does it before and after admission.
func TestDefaultsAreStable(t *testing.T) {
	for _, k := range All() {
		if k.Default == nil {
			continue
		}
		obj := k.New()
		k.Default(obj)
		once := obj.DeepCopyObject()
		k.Default(obj)
		if !reflect.DeepEqual(once, obj) {
			t.Errorf("%s: defaults change what they made", k.GR())
		}
	}
}

func kindOf(t *testing.T, name string) *Kind {
	t.Helper()
	for _, k := range All() {
		if k.GVK.Kind == name && !k.Virtual {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

// read creates an object from YAML, with defaults.
func read(t *testing.T, k *Kind, text string) runtime.Object {
	t.Helper()
	obj := k.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if k.Default != nil {
		k.Default(obj)
	}
	return obj
}

func TestDefaultsMatchUpstream(t *testing.T) {
	for name, c := range map[string]struct{ kind, given, want string }{
		"pod": {"Pod", `
spec:
  hostNetwork: true
  containers:
  - {name: a, image: nginx, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}, livenessProbe: {httpGet: {port: 80}}}
  - {name: b, image: "reg:5000/x:1.2"}
  - {name: c, image: "reg:5000/x"}
  - {name: d, image: "x@sha256:0000"}
  volumes: [{name: v}, {name: s, secret: {secretName: x}}]`, `
spec:
  hostNetwork: true
  containers:
  - {name: a, image: nginx, imagePullPolicy: Always, ports: [{containerPort: 80, hostPort: 80, protocol: TCP}], resources: {limits: {cpu: 1}, requests: {cpu: 1}},
     terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File,
     livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}}
  - {name: b, image: "reg:5000/x:1.2", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}}
  - {name: c, image: "reg:5000/x", imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}}
  - {name: d, image: "x@sha256:0000", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}}
  volumes: [{name: v, emptyDir: {}}, {name: s, secret: {secretName: x, defaultMode: 420}}]
  dnsPolicy: ClusterFirst
  restartPolicy: Always
  schedulerName: default-scheduler
  terminationGracePeriodSeconds: 30
  enableServiceLinks: true
  securityContext: {}
status: {phase: Pending}`},
		"service": {"Service", `spec: {ports: [{port: 80}]}`, `
spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster, ports: [{port: 80, targetPort: 80, protocol: TCP}]}`},
		"load balancer": {"Service", `spec: {type: LoadBalancer, sessionAffinity: ClientIP, ports: [{port: 80, targetPort: web}]}`, `
spec: {type: LoadBalancer, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}, internalTrafficPolicy: Cluster,
  externalTrafficPolicy: Cluster, allocateLoadBalancerNodePorts: true, ports: [{port: 80, targetPort: web, protocol: TCP}]}`},
		"job": {"Job", `spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [], restartPolicy: Never}}}`, `
metadata: {labels: {a: b}}
spec: {completions: 1, parallelism: 1, backoffLimit: 6, completionMode: NonIndexed, suspend: false, manualSelector: false, podReplacementPolicy: TerminatingOrFailed,
  template: {metadata: {labels: {a: b}}, spec: {containers: [], restartPolicy: Never, dnsPolicy: ClusterFirst, schedulerName: default-scheduler, terminationGracePeriodSeconds: 30, securityContext: {}}}}`},
		"secret":         {"Secret", `stringData: {a: b}`, `{type: Opaque, data: {a: Yg==}}`},
		"network policy": {"NetworkPolicy", `spec: {egress: [{ports: [{port: 53}]}]}`, `spec: {policyTypes: [Ingress, Egress], podSelector: {}, egress: [{ports: [{port: 53, protocol: TCP}]}]}`},
	} {
		k := kindOf(t, c.kind)
		got := read(t, k, c.given)
		want := k.New()
		if err := yaml.UnmarshalStrict([]byte(c.want), want); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s:\n got %s\nwant %s", name, a, b)
		}
	}
}

func TestDeploymentDefaults(t *testing.T) {
	k := kindOf(t, "Deployment")
	obj := read(t, k, `spec: {template: {spec: {containers: []}}}`)
	text, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"maxSurge: 25%", "maxUnavailable: 25%", "type: RollingUpdate", "replicas: 1",
		"revisionHistoryLimit: 10", "progressDeadlineSeconds: 600"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %q in:\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "enableServiceLinks") {
		t.Error("a template got what only pods get")
	}
}

func TestAliasConversionsAreLossless(t *testing.T) {
	for kindName, text := range map[string]string{
		"Event":                   `{metadata: {name: e, namespace: n}, involvedObject: {kind: Pod, name: p, namespace: n}, reason: R, message: M, type: Normal, count: 3, source: {component: c}, series: {count: 2}}`,
		"HorizontalPodAutoscaler": `{metadata: {name: h}, spec: {maxReplicas: 3, minReplicas: 2, scaleTargetRef: {kind: Deployment, name: d}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}, {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}}], behavior: {scaleDown: {stabilizationWindowSeconds: 5}}}}`,
	} {
		k := kindOf(t, kindName)
		hub := read(t, k, text)
		other, err := k.Aliases[0].FromHub(hub)
		if err != nil {
			t.Fatal(err)
		}
		back, err := k.Aliases[0].ToHub(other)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(hub)
		b, _ := json.Marshal(back)
		if string(a) != string(b) {
			t.Errorf("%s:\n got %s\nwant %s", kindName, b, a)
		}
	}
}

func TestUnscheduledPodsAreDeletedAtOnce(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		pod       corev1.Pod
		requested *int64
		want      int64
	}{
		"on no node": {corev1.Pod{}, nil, 0},
		"usual":      {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, nil, 30},
		"its own": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(5)}}, nil,
			5},
		"asked": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(5)}},
			seconds(0), 0},
		"finished": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
			nil, 0},
	} {
		if got := kindOf(t, "Pod").GracePeriod(&c.pod, c.requested); got != c.want {
			t.Errorf("%s: %d s, want %d", name, got, c.want)
		}
	}
}
