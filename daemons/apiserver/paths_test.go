package apiserver_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Proves S08.
func TestWritesNeedANamespaceInThePath(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/api/v1/configmaps", 200},
		{"POST", "/api/v1/configmaps", 405},
		{"DELETE", "/api/v1/configmaps", 405},
		{"PATCH", "/api/v1/configmaps", 405},
		{"GET", "/api/v1/configmaps/a", 404},
		{"PUT", "/api/v1/configmaps/a", 404},
		{"DELETE", "/api/v1/configmaps/a", 404},
		{"POST", "/api/v1/pods/a/exec", 404},
		{"POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404},
	} {
		if answer, text := sendRaw(t, cfg, c.method, c.path, body,
			map[string]string{"Content-Type": "application/json"}); answer.StatusCode != c.code {
			t.Errorf("%s %s: %d (%s)", c.method, c.path, answer.StatusCode, text)
		}
	}
}

// Proves S08.
func TestEphemeralContainersCannotBeChanged(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
	p, err := pods.Create(ctx, pod("p"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	debugger := func(name, image string) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image},
		}
	}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("one", "i")}
	if p, err = pods.UpdateEphemeralContainers(ctx, "p", p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want string
		next []corev1.EphemeralContainer
	}{
		"removed": {`spec.ephemeralContainers: Forbidden: existing ephemeral containers "one" may not be removed`, []corev1.EphemeralContainer{debugger("two", "i")}},
		"changed": {`spec.ephemeralContainers: Forbidden: existing ephemeral containers "one" may not be changed`, []corev1.EphemeralContainer{debugger("one", "j")}},
		"added": {"", append([]corev1.EphemeralContainer{*p.Spec.EphemeralContainers[0].DeepCopy()},
			debugger("two", "i"))},
	} {
		next := p.DeepCopy()
		next.ResourceVersion, next.Spec.EphemeralContainers = "", c.next
		_, err := pods.UpdateEphemeralContainers(ctx, "p", next,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
