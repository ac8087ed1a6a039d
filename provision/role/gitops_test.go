package role_test

import (
	"strings"
	"testing"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
)

// A cluster without GitSources gets neither the controller nor its credentials.
func TestOnlyControlPlanesWithGitSourcesRunTheirController(t *testing.T) {
	control, node := machine("control", "10.0.0.1", config.RoleControlPlane),
		machine("node", "10.0.0.2", config.RoleNode)
	source := config.Object{Content: map[string]any{"apiVersion": gitsource.APIVersion, "kind": gitsource.Kind}}
	applied := state.Object{APIVersion: gitsource.APIVersion, Kind: gitsource.Kind, Namespace: "kube-system", Name: "a"}
	for _, row := range []struct {
		machine  config.Machine
		declared []config.Object
		applied  []state.Object
		want     bool
	}{
		{control, nil, nil, false},
		{control, []config.Object{source}, nil, true},
		{control, nil, []state.Object{applied}, true}, // its objects are still to be deleted
		{node, []config.Object{source}, []state.Object{applied}, false},
	} {
		c, s := cluster(control, node), newState("control")
		c.Objects, s.Objects = row.declared, row.applied
		steps, err := role.Steps(role.Input{Cluster: c, Machine: row.machine, State: s, Files: files{},
			Facts: host.Facts{}})
		if err != nil {
			t.Fatal(err)
		}
		text := render(t, steps)
		for _, part := range []string{"/usr/local/bin/gitops-controller \\\n",
			"for system:gitops-controller:control [system:gitops-controller]",
			"CacheDirectory=gitops-controller", "no /etc/kubernetes/gitops.conf",
			"no /var/cache/gitops-controller", "no /var/cache/private/gitops-controller"} {
			want := row.want != strings.HasPrefix(part, "no ") // removed where the controller does not run
			if got := strings.Contains(text, part); got != want {
				t.Errorf("%s with %d declared and %d applied: the steps contain %q: %v", row.machine.Name,
					len(row.declared), len(row.applied), part, got)
			}
		}
	}
}

// The port for webhooks has a certificate of its own, which is removed with the setting.
func TestThePortForWebhooksHasACertificate(t *testing.T) {
	control := machine("control", "10.0.0.1", config.RoleControlPlane)
	for _, port := range []int{0, 10267} {
		c, s := cluster(control), newState("control")
		c.Objects = []config.Object{{Content: map[string]any{"apiVersion": gitsource.APIVersion,
			"kind": gitsource.Kind}}}
		if port != 0 {
			c.GitOps.Choose("receiver_port", port)
		}
		steps, err := role.Steps(role.Input{Cluster: c, Machine: control, State: s, Files: files{},
			Facts: host.Facts{}})
		if err != nil {
			t.Fatal(err)
		}
		text := render(t, steps)
		for part, want := range map[string]bool{"--receiver-port=10267": port != 0,
			"LoadCredential=receiver.key:/etc/kubernetes/pki/gitops-receiver.key": port != 0,
			"no /etc/kubernetes/pki/gitops-receiver.key":                          port == 0} {
			if got := strings.Contains(text, part); got != want {
				t.Errorf("with port %d, the steps contain %q: %v", port, part, got)
			}
		}
	}
}
