package announce

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/config"
	"clusterctl/kube/kubernetes/fake"
)

// A pools ConfigMap that is missing, empty or unreadable changes no announcement: interfaces and routers stay. A
// ConfigMap that states that there are no pools does change them.
// Proves S22.
func TestPoolsStayUntilNewOnesAreRead(t *testing.T) {
	maps := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	memory := filepath.Join(t.TempDir(), "pools.json")
	start := func() *Announcer {
		write := func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }
		a := New(Options{Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler), PoolsFile: memory,
			WriteFile: write})
		a.configMaps = corelisters.NewConfigMapLister(maps)
		a.loadPools()
		return a
	}
	a := start()
	configMap := func(data, annotations map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   metav1.NamespaceSystem,
				Name:        config.PoolsName,
				Annotations: annotations,
			},
			Data: data,
		}
	}
	reads := func(when string, m *corev1.ConfigMap, want int) {
		t.Helper()
		list := []any{}
		if m != nil {
			list = append(list, m)
		}
		if err := maps.Replace(list, ""); err != nil {
			t.Fatal(err)
		}
		pools, err := a.readPools(t.Context())
		if err != nil || len(pools) != want || want > 0 && pools[0].Interfaces[0] != "eth7" {
			t.Errorf("%s the pools are %v, %v", when, pools, err)
		}
	}
	_, none, err := config.EncodePools(nil)
	if err != nil {
		t.Fatal(err)
	}
	office := map[string]string{"office": `{"addresses":["10.0.0.10"],"interfaces":["eth7"]}`}
	reads("before anything is said", nil, 0)
	reads("with a pool", configMap(office, nil), 1)
	reads("when it is missing", nil, 1)
	reads("when it is empty", configMap(nil, nil), 1)
	a = start()
	reads("after a restart without it", nil, 1)
	reads("when it cannot be read", configMap(map[string]string{"office": `{`}, nil), 1)
	reads("when there are to be none", configMap(nil, none), 0)
	reads("when that is missing", nil, 0)
	a = start()
	reads("after a restart without that", nil, 0)
	reads("with a pool again", configMap(office, none), 1)
}

// An unreadable file of pools counts as missing.
func TestABrokenPoolsFileIsIgnored(t *testing.T) {
	memory := filepath.Join(t.TempDir(), "pools.json")
	for _, text := range []string{"", "{", "{}", `{"data":{"office":"{"}}`, `{"data":{"office":"{\"addresses\":[\"x\"]}"}}`, "null", "[]"} {
		if err := os.WriteFile(memory, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := New(Options{Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler), PoolsFile: memory})
		if a.loadPools(); a.knownPools.pools != nil {
			t.Errorf("of %q the pools are %v", text, a.knownPools.pools)
		}
	}
}

// A full disk is logged once, not for every change of a Service.
func TestASaveErrorOfPoolsIsLoggedOnce(t *testing.T) {
	var logs strings.Builder
	full, tries := true, 0
	a := New(Options{Client: fake.NewClientset(), Log: slog.New(slog.NewTextHandler(&logs, nil)),
		PoolsFile: "pools.json",
		WriteFile: func(string, []byte) error {
			if tries++; full {
				return fmt.Errorf("open .conflist-%d.tmp: no space left on device", tries)
			}
			return nil
		}})
	maps := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	a.configMaps = corelisters.NewConfigMapLister(maps)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.PoolsName},
		Data: map[string]string{"office": `{"addresses":["10.0.0.10"]}`}}
	if err := maps.Add(m); err != nil {
		t.Fatal(err)
	}
	look := func(n int) int {
		logs.Reset()
		for range n {
			if pools, err := a.readPools(t.Context()); err != nil || len(pools) != 1 {
				t.Fatalf("the pools are %v, %v", pools, err)
			}
		}
		return strings.Count(logs.String(), "cannot be kept")
	}
	if n := look(5); n != 1 {
		t.Errorf("it was reported %d times", n)
	}
	full = false
	look(1)
	full, a.knownPools.savedText = true, ""
	if n := look(5); n != 1 {
		t.Errorf("the next failure was reported %d times", n)
	}
}
