package config

import (
	"net/netip"
	"slices"

	daemons "clusterctl/daemons/config"
)

// Roles of machines.
const (
	RoleControlPlane = "control-plane"
	RoleNode         = "node"
)

// Machine is a computer that the cluster runs on.
type Machine struct {
	Address        string // in the configuration: machine.web["a"]
	Name           string // of the node and of the etcd member
	IP             netip.Addr
	SecondIP       netip.Addr   // of the other family, in a cluster whose pods have addresses of both
	External       []netip.Addr // by which others than the cluster's machines reach it
	Roles          []string
	Labels         map[string]string
	Taints         []Taint
	SSH            SSH
	Kubelet        daemons.Chosen[daemons.KubeletSettings] // before the cluster's
	Source         Source
	PreventDestroy bool // it is neither removed nor replaced
}

// IPs are the machine's addresses, that of the first family first.
func (m Machine) IPs() []string {
	list := []string{m.IP.String()}
	if m.SecondIP.IsValid() {
		list = append(list, m.SecondIP.String())
	}
	return list
}

// Has reports whether the machine has a role.
func (m Machine) Has(role string) bool { return slices.Contains(m.Roles, role) }

// Taint is a taint that the node registers with.
type Taint struct {
	Key, Value, Effect string
}

// SSH is how a machine is reached. Empty fields are taken from ~/.ssh/config,
// then from the defaults of OpenSSH.
type SSH struct {
	Host            string // the machine's address when empty
	User            string
	Port            int
	Key             string // path of a private key
	Jump            string // [user@]host[:port] to go through
	KnownHosts      string // path of a file of host keys
	PasswordEnv     string // environment variable with the login password
	SudoPasswordEnv string // environment variable with sudo's password
}
