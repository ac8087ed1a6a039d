// Package replica says as whom a daemon that runs on several machines speaks to the API server, and in which objects of
// kube-system it publishes itself. The daemon, the API server, which holds it to the objects of its own machine, and the
// controller that removes the objects of dead machines agree on it.
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

// managers are the daemons that publish endpoints in the service of their name, with the value of the label
// endpointslice.kubernetes.io/managed-by of their slices.
var managers = map[string]string{DNS: "dns.clusterctl", Ingress: "ingress.clusterctl", Metrics: "metrics-server.clusterctl"}

// Publishers returns the daemons that publish endpoints, in order.
func Publishers() []string { return []string{DNS, Ingress, Metrics} }

// Manager returns who manages the endpoint slices of a daemon, as their label says; "" if the daemon publishes none.
func Manager(daemon string) string { return managers[daemon] }

// LeaseLabel returns the label of the leases that a daemon's replicas renew. Its value is the name of the service.
func LeaseLabel(manager string) string { return manager + "/service" }

// User returns the user that a daemon is on a machine. It is a member of the group that Group returns.
func User(daemon, machine string) string { return "system:" + daemon + ":" + machine }

// Group returns the group of a daemon's users on all machines.
func Group(daemon string) string { return "system:" + daemon }

// Of returns the daemon and the machine that a user is, if it is one.
func Of(u api.User) (daemon, machine string, ok bool) {
	rest, ok := strings.CutPrefix(u.Name, "system:")
	if !ok {
		return "", "", false
	}
	daemon, machine, ok = strings.Cut(rest, ":")
	if !ok || machine == "" || !known(daemon) || !u.InGroup(Group(daemon)) {
		return "", "", false
	}
	return daemon, machine, true
}

func known(daemon string) bool { return slices.Contains(All(), daemon) }

// All returns the daemons that have an identity on each machine.
func All() []string { return []string{DNS, Ingress, Network, Metrics} }

// Lease returns the name of the lease that the replica of a machine renews, and of the slice with its first address.
func Lease(service, machine string) string { return service + "-" + machine }

// Slices returns the names of the endpoint slices that the replica of a machine may have: with its first address, and with
// its second one by family. The name of a service has no dot, so that no machine's name makes two of them equal.
func Slices(service, machine string) []string {
	return []string{Lease(service, machine), service + ".ipv4-" + machine, service + ".ipv6-" + machine}
}

// Machine returns the machine whose lease has a name.
func Machine(service, lease string) (machine string, ok bool) {
	machine, ok = strings.CutPrefix(lease, service+"-")
	return machine, ok && machine != ""
}
