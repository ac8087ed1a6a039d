package apiserver_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/store/memory"
	"clusterctl/tests/tools/amount"
)

// The memory of decoded bodies is limited, not only the length of bodies.
// Proves S12.
func TestBodiesWithTooManyPartsAreRejected(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	cfg := startConfig(t, s, nil)
	many := amount.Scaled(900_000, 120_000)
	empty := strings.TrimSuffix(strings.Repeat("{},", many), ",")
	pod, err := (&corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 75_000)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	message, err := (&kruntime.Unknown{TypeMeta: kruntime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: pod}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/namespaces/default/pods"
	for name, r := range map[string]struct{ method, path, kind, body string }{
		"a pod":         {"POST", pods, "application/json", `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + empty + `]}}`},
		"a pod in YAML": {"POST", pods, "application/yaml", `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + empty + `]}}`},
		"a pod in CBOR": {"POST", pods, "application/cbor", "\xa1\x64spec\xa1\x6acontainers\x9f" +
			strings.Repeat("\x98\x64"+strings.Repeat("\xa0", 100), many/100) + "\xff"},
		"a pod's bytes":  {"POST", pods, "application/vnd.kubernetes.protobuf", "k8s\x00" + string(message)},
		"a merge patch":  {"PATCH", pods + "/p", "application/merge-patch+json", `{"spec":{"containers":[` + empty + `]}}`},
		"an apply patch": {"PATCH", pods + "/p?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + empty + `]}}`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, text := sendTyped(t, cfg, r.method, r.path, r.kind, r.body)
		runtime.ReadMemStats(&after)
		if code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %.200s", name, code, text)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<30 {
			t.Errorf("%s: %d bytes took %d MiB", name, len(r.body), spent>>20)
		}
	}
}

// Bodies with many parts wait for each other, and all are answered.
// Proves S12.
func TestBodiesWithManyPartsWaitForEachOther(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	cfg := startConfig(t, s, nil)
	var rules []string
	for i := range 30_000 {
		rules = append(rules, fmt.Sprintf(`"k%d":{}`, i))
	}
	body := `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"r%d"},"revision":1,"data":{` + strings.Join(
		rules,
		",",
	) + `}}`
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if code, text := sendTyped(t, cfg, "POST",
				"/apis/apps/v1/namespaces/default/controllerrevisions?dryRun=All",
				"application/json", fmt.Sprintf(body, i)); code != http.StatusCreated {
				t.Errorf("%d %.200s", code, text)
			}
		})
	}
	all.Wait()
}

func sendTyped(t testing.TB, cfg *rest.Config, method, path, kind, body string) (int, []byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	r, err := http.NewRequest(method, cfg.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	r.Header.Set("Content-Type", kind)
	answer, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, text
}
