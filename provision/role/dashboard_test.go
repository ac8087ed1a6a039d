package role_test

import (
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
)

// Proves S34.
func TestTheDashboardHasACertificateAndNoCredentials(t *testing.T) {
	control, node := machine("control", "10.0.0.1", config.RoleControlPlane), machine("node", "10.0.0.2",
		config.RoleNode)
	c := cluster(control, node)
	c.Dashboard = &config.Dashboard{Hostnames: []string{"board.example"}}
	for _, m := range []config.Machine{control, node} {
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("control"), Files: files{}})
		if err != nil {
			t.Fatal(err)
		}
		text := render(t, steps)
		if m.Name == "node" {
			if strings.Contains(text, "for kube-dashboard") ||
				!strings.Contains(text, "no unit kube-dashboard.service") {
				t.Error("a worker has the dashboard")
			}
			continue
		}
		for _, part := range []string{
			"for kube-dashboard [] [localhost 127.0.0.1 kube-dashboard control 10.0.0.1 board.example]",
			"--api-servers=10.0.0.1:6443", "--cluster-name=home", "DynamicUser=yes",
			"--certificate-authority=/run/credentials/kube-dashboard.service/ca",
			"LoadCredential=key:/etc/kubernetes/pki/dashboard.key",
		} {
			if !strings.Contains(text, part) {
				t.Errorf("the control plane lacks %s", part)
			}
		}
		if strings.Contains(text, "/etc/kubernetes/dashboard.conf") || strings.Contains(text, "system:kube-dashboard") {
			t.Error("the dashboard has credentials of the API")
		}
	}
}
