package credentials

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// machineKinds are the machines whose credentials are tested. Each daemon runs on at least one of them.
var machineKinds = []config.Machine{
	{Address: "machine.control", Name: "control", IP: netip.MustParseAddr("10.0.0.1"),
		Roles: []string{config.RoleControlPlane}},
	{Address: "machine.worker", Name: "worker", IP: netip.MustParseAddr("10.0.0.2"), Roles: []string{config.RoleNode}},
}

// machineCredential is a client certificate, or a secret file, on a kind of machine.
type machineCredential struct {
	machine, path string
	ca            string // the authority that signs the certificate; empty for a secret file
	request       certs.Request
}

type fakeFiles struct{}

func (fakeFiles) File(name string) (bundle.File, error) {
	return bundle.File{Name: name, Digest: "d-" + name, Size: 1}, nil
}

// listCredentials returns the credentials that the steps of each kind of machine write, sorted by machine and path.
func listCredentials(t *testing.T) (list []machineCredential) {
	t.Helper()
	c := &config.Cluster{Name: "home", Domain: "cluster.local", Machines: machineKinds,
		Runtime: config.Runtime{Source: config.RuntimeBundle}, Ingress: &config.Ingress{Class: "clusterctl"},
		VirtualAddress: netip.MustParseAddr("10.0.0.100"),
		PodCIDRs:       []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		ServiceCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	c.Etcd.Members = 1
	s := &state.State{Token: "token", Machines: map[string]state.Machine{},
		Etcd: map[string]state.Member{"control": {InitialCluster: "control=https://10.0.0.1:2380"}},
		CAs:  map[string][]byte{}}
	for _, m := range machineKinds {
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: s, Files: fakeFiles{}, Facts: host.Facts{}})
		if err != nil {
			t.Fatal(err)
		}
		from := len(list)
		for _, one := range steps {
			switch one := one.(type) {
			case *step.Kubeconfig:
				list = append(list, machineCredential{m.Name, one.Path, one.CA, one.Request})
			case *step.Certificate:
				list = append(list, machineCredential{m.Name, one.Path + ".crt", one.CA, one.Request})
			case *step.File:
				if one.Secret && one.Mode == 0o600 {
					list = append(list, machineCredential{machine: m.Name, path: one.Path})
				}
			}
		}
		slices.SortFunc(list[from:], func(a, b machineCredential) int { return strings.Compare(a.path, b.path) })
	}
	return list
}
