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
	Address        string // address in the configuration, such as machine.web["a"]
	Name           string // name of the node and of the store member
	IP             netip.Addr
	SecondIP       netip.Addr   // of the other IP family, in a dual-stack cluster
	External       []netip.Addr // addresses for clients outside the cluster
	Roles          []string
	Labels         map[string]string
	Taints         []Taint
	SSH            SSH
	Kubelet        daemons.Chosen[daemons.KubeletSettings] // takes precedence over the cluster's settings
	Source         Source
	PreventDestroy bool // the machine may not be removed or replaced
}

// IPs returns the machine's addresses, that of the first family first.
func (m Machine) IPs() []string {
	list := []string{m.IP.String()}
	if m.SecondIP.IsValid() {
		list = append(list, m.SecondIP.String())
	}
	return list
}

// HasRole reports whether the machine has a role.
func (m Machine) HasRole(role string) bool { return slices.Contains(m.Roles, role) }

// Taint is a taint that the node registers with.
type Taint struct {
	Key, Value, Effect string
}

// SSH configures how a machine is reached. Empty fields are taken from ~/.ssh/config, then from OpenSSH's defaults.
type SSH struct {
	Host            string // if empty, the machine's address
	User            string
	Port            int
	Key             string // path of a private key
	Jump            string // [user@]host[:port] of the jump host
	KnownHosts      string // path of a known_hosts file
	PasswordEnv     string // environment variable with the login password
	SudoPasswordEnv string // environment variable with sudo's password
}
