package admission

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	securityapi "k8s.io/pod-security-admission/api"

	"clusterctl/daemons/api"
)

// annotationRecorder is a request that records its audit annotations.
type annotationRecorder map[string]string

func (n annotationRecorder) Options() runtime.Object    { return nil }
func (n annotationRecorder) Verb() string               { return "create" }
func (n annotationRecorder) Annotate(key, value string) { n[key] = value }
func (n annotationRecorder) Audited(bool) bool          { return true }

// newTestPodSecurity returns the plugin, configured by the text of a file.
func newTestPodSecurity(t *testing.T, o api.Objects, text string) *podSecurity {
	t.Helper()
	file := ""
	if text != "" {
		file = filepath.Join(t.TempDir(), "admission.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	levels, err := podSecurityConfiguration(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPodSecurity(o, levels, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func labelledNamespace(pairs ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "levels", Labels: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		ns.Labels["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
	}
	return ns
}

// Invalid labels are refused. A stricter level causes warnings about the pods that violate it.
// Proves S12.
func TestNamespaceLevelsAreValidated(t *testing.T) {
	o := storedObjects()
	o.Put(
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "levels", Name: "old"},
			Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c"}}},
		},
	)
	p := newTestPodSecurity(t, o, "")
	for what, c := range map[string]struct {
		after, before *corev1.Namespace
		refused       string
		warned        []string
	}{
		"a level that there is": {after: labelledNamespace("enforce", "baseline", "warn", "restricted", "audit-version",
			"v1.30")},
		"a level that there is not":   {after: labelledNamespace("enforce", "bad"), refused: `metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "bad": must be one of privileged, baseline, restricted`},
		"a version that there is not": {after: labelledNamespace("warn-version", "v0"), refused: `metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "v0"`},
		"a change to no level": {after: labelledNamespace("enforce", "bad"), before: labelledNamespace(),
			refused: "Invalid value"},
		"what meant nothing before": {after: labelledNamespace("enforce", "bad"),
			before: labelledNamespace("enforce", "bad")},
		"more than its pods have": {after: labelledNamespace("enforce", "baseline"), before: labelledNamespace(), warned: []string{`existing pods in namespace "levels" violate the new PodSecurity enforce level "baseline:latest"`, "old: host namespaces"}},
		"less than before": {after: labelledNamespace("enforce", "baseline"),
			before: labelledNamespace("enforce", "restricted")},
		"as before": {after: labelledNamespace("enforce", "restricted", "warn", "baseline"),
			before: labelledNamespace("enforce", "restricted")},
	} {
		a := newWrite(root, "CREATE", ":namespaces", "", "levels", c.after, nil)
		if c.before != nil {
			a = newWrite(root, "UPDATE", ":namespaces", "", "levels", c.after, c.before)
		}
		a.Kind = corev1.SchemeGroupVersion.WithKind("Namespace")
		var warned []string
		a.Warn = func(text string) { warned = append(warned, text) }
		err := p.Validate(t.Context(), a)
		if (err == nil) != (c.refused == "") ||
			err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
		if !slices.Equal(warned, c.warned) {
			t.Errorf("%s: warned %q, want %q", what, warned, c.warned)
		}
	}
}

// Violations of the levels are in the audit log, and exemptions apply.
// Proves S12.
func TestPodSecurityViolationsAreAudited(t *testing.T) {
	const exempt = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, audit: restricted}
    exemptions: {usernames: [root], namespaces: [shop], runtimeClasses: [boxed]}
`
	private := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	boxed := "boxed"
	someone := api.User{Name: "someone"}
	old := newPod(private)
	old.Namespace = "bounded"
	newer := old.DeepCopy()
	newer.Spec.Containers[0].Image = "other"
	enforced, violated, reason := securityapi.AuditAnnotationPrefix+"enforce-policy", securityapi.AuditAnnotationPrefix+
		"audit-violations", securityapi.AuditAnnotationPrefix+"exempt"
	for what, c := range map[string]struct {
		config  string
		write   *api.Admission
		refused string
		noted   map[string]string
	}{
		"no labels": {"", newWrite(someone, "CREATE", ":pods", "bounded", "p", newPod(private), nil), "",
			annotationRecorder{enforced: "privileged:latest"}},
		"a default": {exempt, newWrite(someone, "CREATE", ":pods", "bounded", "p", newPod(private), nil), `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`, annotationRecorder{enforced: "baseline:latest", violated: `would violate PodSecurity "restricted:latest"`}},
		"another image": {exempt, newWrite(someone, "UPDATE", ":pods", "bounded", "p", newer, old),
			"violates PodSecurity", annotationRecorder{enforced: "baseline:latest", violated: ""}},
		"nothing that counts": {exempt, newWrite(someone, "UPDATE", ":pods", "bounded", "p", old, old), "", nil},
		"status": {exempt, newWrite(someone, "UPDATE", ":pods/status", "bounded", "p", newer, old), "",
			nil},
		"an exempt user": {exempt, newWrite(root, "CREATE", ":pods", "bounded", "p", newPod(private), nil), "",
			annotationRecorder{reason: "user"}},
		"an exempt namespace": {exempt, newWrite(someone, "CREATE", ":pods", "shop", "p", newPod(private), nil), "",
			annotationRecorder{reason: "namespace"}},
		"an exempt runtime": {exempt,
			newWrite(someone, "CREATE", ":pods", "bounded", "p",
				newPod(func(p *corev1.Pod) { private(p); p.Spec.RuntimeClassName = &boxed }), nil), "",
			annotationRecorder{reason: "runtimeClass"}},
	} {
		got := annotationRecorder{}
		c.write.Origin = got
		err := newTestPodSecurity(t, storedObjects(), c.config).Validate(t.Context(), c.write)
		if (err == nil) != (c.refused == "") ||
			err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(c.noted))) {
			t.Errorf("%s: noted %q, want %q", what, got, c.noted)
		}
		for key, want := range c.noted {
			if !strings.HasPrefix(got[key], want) {
				t.Errorf("%s: %s is %q, want %q", what, key, got[key], want)
			}
		}
	}
}

func TestInvalidAdmissionConfigurationsAreRejected(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for text, want := range map[string]string{
		"nonsense":                        "couldn't get version/kind",
		head + "- name: EventRateLimit\n": `it configures "EventRateLimit": the one plugin that takes a configuration is PodSecurity`,
		head + "- name: PodSecurity\n- name: PodSecurity\n": "it configures PodSecurity twice",
		head + "- {name: PodSecurity, path: missing.yaml}\n": "missing.yaml: no such file or " +
			"directory",
		head + "- name: PodSecurity\n  configuration: {apiVersion: v1, kind: Pod}\n": "no kind \"Pod\" is registered",
	} {
		file := filepath.Join(t.TempDir(), "admission.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := podSecurityConfiguration(file); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
