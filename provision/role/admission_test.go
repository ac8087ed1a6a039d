package role_test

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// The API server gets the AdmissionConfiguration, and restarts when it changes.
// Proves S12.
func TestTheAPIServerGetsItsAdmissionConfiguration(t *testing.T) {
	const path, text = "/etc/kubernetes/apiserver/admission.yaml", "kind: AdmissionConfiguration"
	m := machine("one", "10.0.0.1", config.RoleControlPlane, config.RoleNode)
	for _, message := range []string{"", text} {
		c := cluster(m)
		c.API.Admission = message
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("one"), Files: files{}})
		if err != nil {
			t.Fatal(err)
		}
		var isGone, flagged, read bool
		var written string
		for _, s := range steps {
			switch s := s.(type) {
			case *step.Absent:
				isGone = isGone || s.Path == path
			case *step.File:
				if s.Path == path {
					written = string(s.Content)
				}
				flagged = flagged || strings.Contains(string(s.Content), "--admission-control-config-file="+path)
			case *step.Unit:
				read = read || s.Name == "kube-apiserver.service" && slices.Contains(s.Files, path)
			}
		}
		if exists := message != ""; isGone == exists || flagged != exists || read != exists || written != message {
			t.Errorf("with %q: gone %v, written %q, a flag %v, restarts %v", message, isGone, written, flagged, read)
		}
	}
}
