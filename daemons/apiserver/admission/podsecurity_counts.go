package admission

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	securityapi "k8s.io/pod-security-admission/api"

	"clusterctl/daemons/api"
	release "clusterctl/daemons/version"
)

// securityCounts counts the decisions of pod security, under upstream's names.
type securityCounts struct {
	newestVersion                   securityapi.Version // the newest version that this release knows
	evaluations, exemptions, errors *prometheus.CounterVec
}

func newSecurityCounts(register prometheus.Registerer) (*securityCounts, error) {
	parts := strings.SplitN(release.Kubernetes, ".", 3)
	version, err := securityapi.ParseVersion(strings.Join(parts[:min(len(parts), 2)], "."))
	if err != nil {
		return nil, fmt.Errorf("read this release's version: %w", err)
	}
	what := []string{"request_operation", "resource", "subresource"}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels, what...))
	}
	c := &securityCounts{
		newestVersion: version,
		evaluations: count("pod_security_evaluations_total",
			"Policies evaluated, besides for requests that are ignored or exempt.", "decision", "policy_level",
			"policy_version", "mode"),
		exemptions: count("pod_security_exemptions_total", "Requests that are exempt, besides those that are ignored."),
		errors: count("pod_security_errors_total", "Errors that kept policies from being evaluated as usual; where "+
			"they are not fatal the restricted level may have held.", "fatal"),
	}
	return c, errors.Join(register.Register(c.evaluations), register.Register(c.exemptions),
		register.Register(c.errors))
}

// countEvaluation counts a decision (allow or deny) in a mode (enforce, audit or warn).
func (c *securityCounts) countEvaluation(decision string, held securityapi.LevelVersion, mode string,
	a *api.Admission) {
	version := held.Version.String()
	switch {
	case held.Version.Latest() || held.Level == securityapi.LevelPrivileged:
		version = "latest" // the privileged level is the same in every version
	case c.newestVersion.Older(held.Version):
		version = "future"
	}
	c.evaluations.WithLabelValues(securityLabels(a, decision, string(held.Level), version, mode)...).Inc()
}

func (c *securityCounts) countExemption(a *api.Admission) {
	c.exemptions.WithLabelValues(securityLabels(a)...).Inc()
}

func (c *securityCounts) countError(fatal bool, a *api.Admission) {
	c.errors.WithLabelValues(securityLabels(a, strconv.FormatBool(fatal))...).Inc()
}

// securityLabels appends the labels that describe a request.
func securityLabels(a *api.Admission, labels ...string) []string {
	about := "controller"
	switch a.Resource.GroupResource() {
	case podsGR:
		about = "pod"
	case namespacesGR:
		about = "namespace"
	}
	return append(labels, strings.ToLower(a.Operation), about, a.Subresource)
}
