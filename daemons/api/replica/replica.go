// Package replica defines the users and the kube-system objects of daemons that run on several machines. The daemons
// publish themselves in these objects. The API server restricts each replica to the objects of its own machine. The
// presence controller removes the objects of dead replicas.
package replica

import (
	"slices"
	"strings"

	"clusterctl/daemons/api"
)

// Daemons that run on several machines and have an identity on each.
const (
	DNS     = "kube-dns"
	Ingress = "kube-ingress"
	Network = "kube-network"
	Metrics = "metrics-server"
)

// managers maps a daemon that publishes endpoints to the value of the label endpointslice.kubernetes.io/managed-by of
// its slices. The service has the daemon's name.
var managers = map[string]string{
	DNS:     "dns.clusterctl",
	Ingress: "ingress.clusterctl",
	Metrics: "metrics-server.clusterctl",
}

// Publishers returns the daemons that publish endpoints, in order.
func Publishers() []string { return []string{DNS, Ingress, Metrics} }

// Manager returns the value of the managed-by label of a daemon's endpoint slices, or "" if the daemon publishes none.
func Manager(daemon string) string { return managers[daemon] }

// LeaseLabel returns the key of the label of leases that a daemon's replicas renew. The value is the name of the
// service.
func LeaseLabel(manager string) string { return manager + "/service" }

// User returns the user name of a daemon on a machine. The user belongs to the group that Group returns.
func User(daemon, machine string) string { return "system:" + daemon + ":" + machine }

// Group returns the group of a daemon's users on all machines.
func Group(daemon string) string { return "system:" + daemon }

// Parse returns the daemon and the machine that a user represents. ok is false for other users.
func Parse(u api.User) (daemon, machine string, ok bool) {
	rest, ok := strings.CutPrefix(u.Name, "system:")
	if !ok {
		return "", "", false
	}
	daemon, machine, ok = strings.Cut(rest, ":")
	if !ok || machine == "" || !hasIdentity(daemon) || !u.InGroup(Group(daemon)) {
		return "", "", false
	}
	return daemon, machine, true
}

func hasIdentity(daemon string) bool { return slices.Contains(All(), daemon) }

// All returns the daemons that have an identity on each machine.
func All() []string { return []string{DNS, Ingress, Network, Metrics} }

// Lease returns the name of the lease that the replica on a machine renews. The slice with its first address has the
// same name.
func Lease(service, machine string) string { return service + "-" + machine }

// Slices returns the names of the endpoint slices that the replica on a machine can have: one for its first address,
// and one for a second address of each family. Service names contain no dot, so the names of two machines never
// collide.
func Slices(service, machine string) []string {
	return []string{Lease(service, machine), service + ".ipv4-" + machine, service + ".ipv6-" + machine}
}

// Machine returns the machine that a lease name belongs to. ok is false if the name is not a lease of the service.
func Machine(service, lease string) (machine string, ok bool) {
	machine, ok = strings.CutPrefix(lease, service+"-")
	return machine, ok && machine != ""
}
