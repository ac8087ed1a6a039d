package admission

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	securityconfig "k8s.io/pod-security-admission/admission/api"

	"clusterctl/daemons/api"
)

// The decisions of pod security are counted as upstream counts them.
// Proves S12.
func TestPodSecurityDecisionsAreCounted(t *testing.T) {
	o, counts := storedObjects(), prometheus.NewRegistry()
	o.Put(labelledNamespace("enforce", "baseline", "enforce-version", "v1.30", "warn", "restricted", "warn-version",
		"v1.999"))
	p, err := newPodSecurity(o, &securityconfig.PodSecurityConfiguration{
		Defaults: securityconfig.PodSecurityDefaults{
			Enforce:        "privileged",
			EnforceVersion: "latest",
			Audit:          "privileged",
			AuditVersion:   "latest",
			Warn:           "privileged",
			WarnVersion:    "latest",
		},
		Exemptions: securityconfig.PodSecurityExemptions{Usernames: []string{"root"}},
	}, counts)
	if err != nil {
		t.Fatal(err)
	}
	someone := api.User{Name: "someone"}
	for _, a := range []*api.Admission{
		newWrite(someone, "CREATE", ":pods", "bounded", "p", newPod(nil), nil),
		newWrite(someone, "CREATE", ":pods", "levels", "p", newPod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			nil),
		newWrite(someone, "CREATE", ":pods", "levels", "p", newPod(nil), nil), // causes a warning
		newWrite(root, "CREATE", ":pods", "levels", "p", newPod(nil), nil),
		newWrite(root, "UPDATE", ":namespaces", "", "levels", labelledNamespace("enforce", "baseline"),
			labelledNamespace()),
	} {
		_ = p.Validate(t.Context(), a) // other tests check the decision
	}
	const want = `
# HELP pod_security_evaluations_total Policies evaluated, besides for requests that are ignored or exempt.
# TYPE pod_security_evaluations_total counter
pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",request_operation="create",resource="pod",subresource=""} 1
pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="baseline",policy_version="v1.30",request_operation="create",resource="pod",subresource=""} 1
pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="v1.30",request_operation="create",resource="pod",subresource=""} 1
pod_security_evaluations_total{decision="deny",mode="warn",policy_level="restricted",policy_version="future",request_operation="create",resource="pod",subresource=""} 1
# HELP pod_security_exemptions_total Requests that are exempt, besides those that are ignored.
# TYPE pod_security_exemptions_total counter
pod_security_exemptions_total{request_operation="create",resource="pod",subresource=""} 1
`
	if err := testutil.GatherAndCompare(counts, strings.NewReader(want), "pod_security_evaluations_total",
		"pod_security_exemptions_total", "pod_security_errors_total"); err != nil {
		t.Error(err)
	}
}
