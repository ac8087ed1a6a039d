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

// kindsOfMachine are the machines whose credentials are tested. Each daemon runs on at least one of them.
var kindsOfMachine = []config.Machine{
	{Address: "machine.control", Name: "control", IP: netip.MustParseAddr("10.0.0.1"),
		Roles: []string{config.RoleControlPlane}},
	{Address: "machine.worker", Name: "worker", IP: netip.MustParseAddr("10.0.0.2"), Roles: []string{config.RoleNode}},
}

// credential is a client certificate, or a secret file, on a kind of machine.
type credential struct {
	machine, path string
	ca            string // the authority that signs the certificate; empty for a secret file
	request       certs.Request
}

type noFiles struct{}

func (noFiles) File(name string) (bundle.File, error) {
	return bundle.File{Name: name, Digest: "d-" + name, Size: 1}, nil
}

// credentials returns the credentials that the steps of each kind of machine write, sorted by machine and path.
func credentials(t *testing.T) (list []credential) {
	t.Helper()
	c := &config.Cluster{Name: "home", Domain: "cluster.local", Machines: kindsOfMachine,
		Runtime: config.Runtime{Source: config.RuntimeBundle}, Ingress: &config.Ingress{Class: "clusterctl"},
		VirtualAddress: netip.MustParseAddr("10.0.0.100"),
		PodCIDRs:       []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		ServiceCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	c.Etcd.Members = 1
	s := &state.State{Token: "token", Machines: map[string]state.Machine{},
		Etcd: map[string]state.Member{"control": {InitialCluster: "control=https://10.0.0.1:2380"}},
		CAs:  map[string][]byte{}}
	for _, m := range kindsOfMachine {
		steps, err := role.Steps(role.Input{Cluster: c, Machine: m, State: s, Files: noFiles{}, Facts: host.Facts{}})
		if err != nil {
			t.Fatal(err)
		}
		from := len(list)
		for _, one := range steps {
			switch one := one.(type) {
			case *step.Kubeconfig:
				list = append(list, credential{m.Name, one.Path, one.CA, one.Request})
			case *step.Certificate:
				list = append(list, credential{m.Name, one.Path + ".crt", one.CA, one.Request})
			case *step.File:
				if one.Secret && one.Mode == 0o600 {
					list = append(list, credential{machine: m.Name, path: one.Path})
				}
			}
		}
		slices.SortFunc(list[from:], func(a, b credential) int { return strings.Compare(a.path, b.path) })
	}
	return list
}
