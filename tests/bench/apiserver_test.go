// Package bench measures the cost of the cluster's daemons. Its numbers are in docs/benchmarks.md. Its tests only check
// the marks of the design.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// newPod returns a pod of the size of a Deployment's pods.
func newPod(i int) *corev1.Pod {
	yes := true
	limits := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-6f7d8c9b5-%05d",
				i), Namespace: fmt.Sprintf("team-%d", i%50), UID: "0d309a4e-77d6-4db0-9b47-3cb92adb515c",
			Labels: map[string]string{
				"app":               "web",
				"pod-template-hash": "6f7d8c9b5",
				"team":              fmt.Sprint(i % 50),
			},
			CreationTimestamp: metav1.Now(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
				Name: "web-6f7d8c9b5", UID: "1", Controller: &yes}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: &metav1.FieldsV1{
						Raw: []byte(`{"f:spec":{` + strings.Repeat(`"f:field":{},`, 60) + `"f:last":{}}}`),
					}},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d",
				i%1000), ServiceAccountName: "default", SchedulerName: "default-scheduler", RestartPolicy: "Always",
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/shop/web:v1.2.3", ImagePullPolicy: "IfNotPresent",
				Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
				Env:       []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "LEVEL", Value: "info"}},
				Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
				VolumeMounts: []corev1.VolumeMount{
					{
						Name:      "kube-api-access-abcde",
						ReadOnly:  true,
						MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
					},
				},
			}},
		},
		Status: corev1.PodStatus{
			Phase: "Running", PodIP: "10.244.1.2", PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}}, HostIP: "10.0.0.1",
			QOSClass: "Guaranteed",
			Conditions: []corev1.PodCondition{
				{Type: "Ready", Status: "True"},
				{Type: "Initialized", Status: "True"},
				{Type: "ContainersReady", Status: "True"},
				{Type: "PodScheduled", Status: "True"},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "web", Ready: true, Started: &yes, Image: "registry.example.com/shop/web:v1.2.3",
					ImageID:     "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
					ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
			},
		},
	}
}

func podKind() *kinds.Kind {
	for _, k := range kinds.All() {
		if k.Resource == "pods" {
			return k
		}
	}
	return nil
}

// newFilledStore returns a store with n pods.
func newFilledStore(tb testing.TB, n int) store.Store {
	tb.Helper()
	s := memory.New()
	tb.Cleanup(s.Close)
	k := podKind()
	var txn store.Txn
	for i := range n {
		p := newPod(i)
		data, err := cache.Encode(k, p)
		if err != nil {
			tb.Fatal(err)
		}
		txn.Puts = append(txn.Puts, store.Put{Key: "/registry/pods/" + p.Namespace + "/" + p.Name, Value: data})
	}
	if _, err := s.Commit(context.Background(), txn); err != nil {
		tb.Fatal(err)
	}
	return s
}

func newServer(tb testing.TB, s store.Store) *apiserver.Server {
	tb.Helper()
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	server, err := apiserver.New(apiserver.Options{
		Storage: apiserver.OpenStorage(s, "", kinds.All(), env.Log), Env: env,
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for env.Health.Err(true) != nil {
		<-tick.C
	}
	return server
}

// discardWriter is a response writer that only counts bytes.
type discardWriter struct {
	header http.Header
	size   int
	code   int
}

func (d *discardWriter) Header() http.Header  { return d.header }
func (d *discardWriter) WriteHeader(code int) { d.code = code }
func (d *discardWriter) Write(data []byte) (int, error) {
	d.size += len(data)
	return len(data), nil
}

func doRequest(tb testing.TB, server http.Handler, method, path, accept, body string, want int) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Accept", accept)
	w := &discardWriter{header: http.Header{}, code: 200}
	server.ServeHTTP(w, r)
	if w.code != want {
		tb.Fatalf("%s %s: %d", method, path, w.code)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return w.size
}

const protobuf = "application/vnd.kubernetes.protobuf"

func BenchmarkGetPod(b *testing.B) {
	server := newServer(b, newFilledStore(b, 1000))
	for name, accept := range map[string]string{"json": "application/json", "protobuf": protobuf} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				doRequest(b, server, "GET", "/api/v1/namespaces/team-7/pods/web-6f7d8c9b5-00007", accept, "", 200)
			}
		})
	}
}

func BenchmarkListPods(b *testing.B) {
	server := newServer(b, newFilledStore(b, 5000))
	for name, c := range map[string]struct{ accept, query string }{
		"json": {"application/json", ""}, "protobuf": {protobuf, ""},
		"table":         {"application/json;as=Table;v=v1;g=meta.k8s.io", ""},
		"of one node":   {protobuf, "?fieldSelector=spec.nodeName%3Dnode-7"},
		"of no waiting": {protobuf, "?resourceVersion=0&limit=500"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(doRequest(b, server, "GET", "/api/v1/pods"+c.query, c.accept, "", 200)))
			}
		})
	}
}

func BenchmarkWritePod(b *testing.B) {
	server := newServer(b, newFilledStore(b, 10))
	const body = `{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	b.Run("create", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			doRequest(b, server, "POST", "/api/v1/namespaces/bench/pods", "application/json", body, 201)
		}
	})
	b.Run("patch status", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r := httptest.NewRequest("PATCH", "/api/v1/namespaces/team-7/pods/web-6f7d8c9b5-00007/status",
				strings.NewReader(fmt.Sprintf(`{"status":{"message":"m%d"}}`, i)))
			r.Header.Set("Content-Type", "application/merge-patch+json")
			w := &discardWriter{header: http.Header{}, code: 200}
			if server.ServeHTTP(w, r); w.code != 200 {
				b.Fatalf("patch: %d", w.code)
			}
		}
	})
}

// The cache of 50,000 pods stays below the mark of the design, 400 MiB.
func TestFiftyThousandPodsFitIntoTheMemoryMark(t *testing.T) {
	const n, mark = 50000, 400 << 20
	s := newFilledStore(t, n)
	used := heapBytes()
	c := cache.New(s, "/registry", kinds.All(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- c.Run(ctx) }()
	if err := c.WaitFor(ctx, 2); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	r := c.Resource(schema.GroupResource{Resource: "pods"})
	if r.Len() != n {
		t.Fatalf("%d pods", r.Len())
	}
	size := 0
	r.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		size += e.Size()
		return true
	})
	// The store in memory shares the encoded bytes with the cache, so they are counted too.
	total := heapBytes() - used + uint64(size)
	t.Logf("%d pods of %d bytes: %d MiB in all, loaded in %s", n, size/n, total>>20, took.Round(time.Millisecond))
	if total > mark {
		t.Errorf("%d pods cost %d MiB, the mark is %d", n, total>>20, mark>>20)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkLoad measures the start with 50,000 pods, without the store's part.
func BenchmarkLoad(b *testing.B) {
	s := newFilledStore(b, 50000)
	for b.Loop() {
		c := cache.New(s, "/registry", kinds.All(), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		if err := c.WaitFor(ctx, 2); err != nil {
			b.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
