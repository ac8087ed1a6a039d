package matrix

import (
	"strings"

	"clusterctl/tests/programs/walk"
)

// row is the documented outcome for one way of packets. A field with several words stands for several rows.
type row struct {
	// from is the client. pod, friend, muted and endpoint are pods on machine a, of which endpoint is the server on
	// this machine. node is machine a, and outside is not in the cluster.
	from        string
	to          string // the kind of address, a key of addressKinds
	service     string // for Pod and HostPort, the server
	by          string // protocols; empty: all that the kind of address has
	want        string // outcome of the program walk
	answers     string // names of the servers, all of which answer and no others; after "one of ", any one of them
	keepsClient bool   // whether the server sees the client's own address
	// relayed is the outcome for TCP and UDP in the mode userspace, if it differs. In this mode, policies see the proxy
	// as the client.
	relayed string
	reason  string // the documented reason
}

// Outcomes of packets. HTTP also has statuses.
const (
	outcomeReached = walk.Reached
	outcomeRefused = walk.Refused
	outcomeDropped = walk.Dropped
	outcomeNoRoute = walk.NoRoute
	outcomeNoName  = walk.NoName
)

// outcomeEither is an outcome that depends on which machine holds an address.
const outcomeEither = outcomeReached + " or " + outcomeDropped

// The names of services consist of their traffic policies, internal and external, and the location of their endpoints
// relative to machine a: cluster-here, local-there. Servers with network policies have these names:
//
//	guarded   allows pods with the label role=friend
//	narrow    allows the TCP port with the name who
//	blocked   allows only the address outside; its external traffic policy is Local
//
// The pod muted may only send to the server on machine b and to name servers.
const (
	plainServices = "cluster-here cluster-there cluster-both"
	entryKinds    = "NodePort ExternalIP"
	insideKinds   = "ClusterIP Name"
)

var rows = []row{
	// Cluster addresses, by number and by name.
	{from: "pod node", to: insideKinds, service: plainServices, want: outcomeReached, keepsClient: true,
		reason: "a cluster address leads to all endpoints, wherever they are"},
	{from: "pod node", to: insideKinds, service: "local-here local-both", want: outcomeReached, answers: "here",
		keepsClient: true,
		reason:      "internalTrafficPolicy: Local uses endpoints of the client's machine alone"},
	{from: "pod node", to: insideKinds, service: "local-there", want: outcomeDropped,
		reason: "internalTrafficPolicy: Local without endpoints on the machine behaves as if there were none"},
	{from: "pod node", to: insideKinds, service: "cluster-none", want: outcomeRefused, reason: "a service without " +
		"endpoints refuses"},
	{from: "pod node", to: "ClusterIP", service: "sticky", want: outcomeReached, answers: "one of here there",
		keepsClient: true,
		reason:      "sessionAffinity: ClientIP leads a client to one endpoint"},
	{from: "endpoint", to: "ClusterIP", service: "cluster-here", want: outcomeReached,
		reason: "a pod reaches itself by its service, and sees another address than its own"},
	{from: "outside", to: "ClusterIP", service: "cluster-here", want: outcomeNoRoute,
		reason: "cluster addresses lead nowhere from outside"},
	{from: "outside", to: "Name", service: "cluster-here", want: outcomeNoName,
		reason: "the cluster's names are known to its own name server"},

	// Node ports and external addresses of machine a, and node ports of b.
	{from: "pod", to: entryKinds, service: plainServices, want: outcomeReached,
		reason: "with externalTrafficPolicy: Cluster the client's address may be lost"},
	{from: "node", to: entryKinds, service: plainServices + " local-here local-there " +
		"local-both", want: outcomeReached, keepsClient: true,
		reason: "the machine itself reaches all endpoints, whatever the policy"},
	{from: "outside", to: entryKinds, service: plainServices, want: outcomeReached,
		reason: "any machine leads to any endpoint, and has the answer come back by itself"},
	{from: "pod", to: entryKinds, service: "local-here local-there local-both", want: outcomeReached, keepsClient: true,
		reason: "to pods externalTrafficPolicy: Local is no matter: they are inside of the cluster"},
	{from: "outside", to: entryKinds, service: "local-here local-both", want: outcomeReached, answers: "here",
		keepsClient: true,
		reason:      "externalTrafficPolicy: Local uses the machine's own endpoints and keeps the client's address"},
	{from: "outside", to: entryKinds, service: "local-there", want: outcomeDropped,
		reason: "externalTrafficPolicy: Local does not leave the machine"},
	{from: "pod node outside", to: entryKinds, service: "cluster-none", want: outcomeRefused,
		reason: "a service without endpoints refuses"},
	{from: "outside", to: entryKinds, service: "local-none", want: outcomeRefused, reason: "a service without " +
		"endpoints refuses"},
	{from: "pod node outside", to: "FarNodePort", service: plainServices, want: outcomeReached,
		reason: "any machine leads to any endpoint, and has the answer come back by itself"},
	{from: "pod", to: "FarNodePort", service: "local-there local-both", want: outcomeReached, answers: "there",
		reason: "a pod's packets leave its machine under the machine's address"},
	{
		from:        "node outside",
		to:          "FarNodePort",
		service:     "local-there local-both",
		want:        outcomeReached,
		answers:     "there",
		keepsClient: true,
		reason:      "externalTrafficPolicy: Local uses the machine's own endpoints and keeps the client's address",
	},
	{from: "pod node outside", to: "FarNodePort", service: "local-here", want: outcomeDropped,
		reason: "externalTrafficPolicy: Local does not leave the machine"},

	// Addresses of load balancers.
	{from: "pod", to: "LoadBalancer", service: plainServices, want: outcomeReached,
		reason: "with externalTrafficPolicy: Cluster the client's address may be lost"},
	{from: "node", to: "LoadBalancer", service: plainServices + " local-here local-there " +
		"local-both", want: outcomeReached, keepsClient: true,
		reason: "the machine itself reaches all endpoints, whatever the policy"},
	{from: "outside", to: "LoadBalancer", service: plainServices, want: outcomeReached,
		reason: "whichever machine has the address leads to all endpoints"},
	{from: "pod", to: "LoadBalancer", service: "local-here local-there " +
		"local-both", want: outcomeReached, keepsClient: true,
		reason: "to pods externalTrafficPolicy: Local is no matter: they are inside of the cluster"},
	{from: "outside", to: "LoadBalancer", service: "local-here local-there", want: outcomeReached, keepsClient: true,
		reason: "a machine with an endpoint has the address, and the client's is kept"},
	{
		from:        "outside",
		to:          "LoadBalancer",
		service:     "local-both",
		want:        outcomeReached,
		answers:     "one of here there",
		keepsClient: true,
		reason:      "one machine at a time has the address, and leads to its own endpoints",
	},
	{from: "pod node outside", to: "LoadBalancer", service: "cluster-none", want: outcomeRefused,
		reason: "a service without endpoints refuses"},
	{from: "outside", to: "LoadBalancer", service: "local-none", want: outcomeNoRoute + " or " + outcomeDropped,
		reason: "externalTrafficPolicy: Local: machines without endpoints are no targets of load balancers"},
	{from: "outside", to: "LoadBalancer", service: "ranged-in", want: outcomeReached,
		reason: "loadBalancerSourceRanges let in whom they name"},
	{from: "outside", to: "LoadBalancer", service: "ranged-out", want: outcomeDropped,
		reason: "loadBalancerSourceRanges drop whom they do not name"},

	// Pods are reached directly, without a proxy.
	{from: "pod node", to: "Headless", service: "headless-here headless-there " +
		"headless-both", want: outcomeReached, keepsClient: true,
		reason: "the name of a headless service is that of its pods"},
	{from: "outside", to: "Headless", service: "headless-here", want: outcomeNoName,
		reason: "the cluster's names are known to its own name server"},
	{from: "pod node", to: "Pod", service: "here there", want: outcomeReached, keepsClient: true,
		reason: "pods and machines reach all pods, without translation"},
	{from: "outside", to: "Pod", service: "here there", want: outcomeNoRoute, reason: "pods' networks are the " +
		"cluster's own"},
	{from: "pod", to: "HostPort", service: "there", want: outcomeReached,
		reason: "a pod's packets leave its machine under the machine's address"},
	{from: "node outside", to: "HostPort", service: "there", want: outcomeReached, keepsClient: true,
		reason: "a hostPort is a port of the pod's machine"},
	{from: "node outside", to: "HostPort", service: "here", want: outcomeReached, keepsClient: true,
		reason: "a hostPort is a port of the pod's machine"},
	{from: "pod", to: "HostPort", service: "here", want: outcomeReached,
		reason: "who a pod of the same machine is seen as is said nowhere: the plugin masquerades the machine's own " +
			"pods"},

	// Names that are aliases of other names.
	{from: "pod node", to: "ExternalName", service: "alias", want: outcomeReached, answers: "here there",
		keepsClient: true,
		reason:      "the name server answers with the other name, and with what that has"},
	{from: "pod node", to: "ExternalName", service: "lost", want: outcomeNoName, reason: "nobody has the name"},
	{from: "outside", to: "ExternalName", service: "alias", want: outcomeNoName,
		reason: "the cluster's names are known to its own name server"},

	// The ingress proxy, with Ingress and Gateway API, with and without TLS.
	{from: "pod node outside", to: "Ingress Gateway", service: plainServices, want: outcomeReached, keepsClient: true,
		reason: "the rule for the host leads to the service's endpoints; the proxy says who the client is"},
	{from: "node outside", to: "FarIngress FarGateway", service: plainServices, want: outcomeReached, keepsClient: true,
		reason: "every machine serves all hosts"},
	{from: "pod", to: "FarIngress", service: "cluster-both", want: outcomeReached,
		reason: "a pod's packets leave its machine under the machine's address"},
	{from: "outside", to: "Ingress", service: "cluster-none", want: "status 503",
		reason: "a rule whose service has no endpoints is there, and cannot be served"},
	{from: "outside", to: "Gateway", service: "cluster-none", want: "status 503",
		reason: "backends without endpoints are answered for with 503"},
	{from: "outside", to: "Ingress Gateway", service: "nobody", want: "status 404",
		reason: "no rule names the host, and there is no default backend"},
	{from: "outside", to: "Redirected", service: "cluster-here", by: "HTTP", want: "status 308",
		reason: "plain requests for a host with TLS are redirected"},

	{from: "node outside", to: "OwnGateway", service: plainServices, want: outcomeReached, keepsClient: true,
		reason: "an address of a Gateway's own leads to a machine's proxy, which says who the client is"},
	{
		from:    "outside",
		to:      "OwnGateway",
		service: "cluster-none",
		want:    "status 503",
		reason:  "backends without endpoints are answered for with 503",
	},
	{
		from:    "outside",
		to:      "OwnGateway",
		service: "nobody",
		want:    "status 404",
		reason:  "no rule names the host, and there is no default backend",
	},

	// Network policies for ingress: by label, port and address.
	{from: "friend", to: "Pod", service: "guarded-here guarded-there", want: outcomeReached, keepsClient: true,
		reason: "ingress: from a podSelector that means the client"},
	{from: "friend", to: insideKinds, service: "guarded-here", want: outcomeReached, keepsClient: true,
		reason: "policies see packets as they are between pods, whatever service led them"},
	{from: "friend", to: insideKinds, service: "guarded-there", want: outcomeReached, keepsClient: true,
		relayed: outcomeDropped,
		reason:  "policies see packets as they are between pods, whatever service led them"},
	{from: "pod", to: "Pod", service: "guarded-here guarded-there blocked-here blocked-there", want: outcomeDropped,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "pod", to: insideKinds, service: "guarded-here blocked-here", want: outcomeDropped, relayed: outcomeReached,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "pod", to: insideKinds, service: "guarded-there blocked-there", want: outcomeDropped,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "node", to: "Pod ClusterIP", service: "guarded-here blocked-here " +
		"narrow-here", want: outcomeReached, keepsClient: true,
		reason: "traffic between a pod and its own machine is always let through"},
	{from: "node", to: "Pod ClusterIP", service: "guarded-there blocked-there", want: outcomeDropped,
		reason: "other machines are let in by policies alone"},
	{from: "pod", to: "NodePort", service: "guarded-here", want: outcomeDropped, relayed: outcomeReached,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "outside", to: "NodePort", service: "guarded-here", want: outcomeDropped, relayed: outcomeReached,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "outside pod", to: "NodePort", service: "guarded-there", want: outcomeDropped,
		reason: "an isolated pod lets in whom some policy lets in"},
	{from: "outside", to: "LoadBalancer", service: "guarded-here guarded-there", want: outcomeDropped,
		relayed: outcomeEither,
		reason:  "an isolated pod lets in whom some policy lets in"},
	{from: "outside", to: "NodePort", service: "blocked-here", want: outcomeReached, keepsClient: true,
		reason: "ingress: from an ipBlock with the client's address, which externalTrafficPolicy: Local keeps"},
	{from: "outside", to: "LoadBalancer", service: "blocked-here blocked-there", want: outcomeReached,
		keepsClient: true,
		reason:      "ingress: from an ipBlock with the client's address, which externalTrafficPolicy: Local keeps"},
	{from: "pod", to: "Pod", service: "narrow-here narrow-there", by: "TCP", want: outcomeReached, keepsClient: true,
		reason: "ingress: a port by its name"},
	{from: "pod", to: "Pod", service: "narrow-here narrow-there", by: "UDP SCTP", want: outcomeDropped,
		reason: "a port of TCP is not that of other protocols"},
	{from: "pod", to: "ClusterIP", service: "narrow-there", by: "TCP", want: outcomeReached, keepsClient: true,
		reason: "ingress: a port by its name"},
	{from: "pod", to: "ClusterIP", service: "narrow-there", by: "UDP SCTP", want: outcomeDropped,
		reason: "a port of TCP is not that of other protocols"},
	{from: "outside", to: "Ingress Gateway", service: "guarded-here", want: outcomeReached, keepsClient: true,
		reason: "the proxy's machine reaches its own pods"},
	{from: "outside", to: "Ingress Gateway", service: "guarded-there", want: "status 504",
		reason: "other machines, from which the proxy asks, are let in by policies alone"},

	// Network policies for egress.
	{from: "muted", to: "Pod", service: "here", want: outcomeDropped,
		reason: "egress: nobody is let out to whom no policy lets out"},
	{from: "muted", to: insideKinds, service: "cluster-here", want: outcomeDropped, relayed: outcomeReached,
		reason: "egress: nobody is let out to whom no policy lets out"},
	{from: "muted", to: "Pod", service: "there", want: outcomeReached, keepsClient: true,
		reason: "egress: to a podSelector that means the server"},
	{from: "muted", to: insideKinds, service: "cluster-there", want: outcomeReached, keepsClient: true,
		reason: "egress: to a podSelector that means the server, whatever service leads there"},
	{
		from:    "muted",
		to:      "FarNodePort",
		service: "cluster-there",
		want:    outcomeDropped,
		reason:  "egress: another machine is no pod",
	},
}

// expandRows expands rows that stand for several, except for their protocols.
func expandRows(rows []row) (all []row) {
	for _, r := range rows {
		for _, from := range strings.Fields(r.from) {
			for _, to := range strings.Fields(r.to) {
				for _, service := range strings.Fields(r.service) {
					one := r
					one.from, one.to, one.service = from, to, service
					all = append(all, one)
				}
			}
		}
	}
	return all
}
