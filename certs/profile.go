package certs

import "crypto/x509"

// Names of the authorities, which are also their file names below /etc/kubernetes/pki.
const (
	ClusterCA    = "ca"
	EtcdCA       = "etcd/ca"
	FrontProxyCA = "front-proxy-ca"
)

// CommonNames are the common names of the authorities, the same as kubeadm's.
var CommonNames = map[string]string{
	ClusterCA:    "kubernetes",
	EtcdCA:       "etcd-ca",
	FrontProxyCA: "front-proxy-ca",
}

var (
	serverUsage          = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientUsage          = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	serverAndClientUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// APIServer returns the request for an API server's serving certificate. Besides hosts, it contains the names of the
// service kubernetes in the cluster domain, of which daemons verify "kubernetes". It also contains serviceIP, which is
// the first address of the service network.
func APIServer(domain, serviceIP string, hosts []string) Request {
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain,
		"localhost", serviceIP, "127.0.0.1",
	}
	return Request{CommonName: "kube-apiserver", Hosts: append(names, hosts...), Usages: serverUsage}
}

// APIServerKubeletClient returns the request for the API server's client certificate for kubelets.
func APIServerKubeletClient() Request {
	return Request{
		CommonName:    "kube-apiserver-kubelet-client",
		Organizations: []string{"kubeadm:cluster-admins"},
		Usages:        clientUsage,
	}
}

// APIServerEtcdClient returns the request for the API server's client certificate for etcd, signed by EtcdCA. etcd
// accepts no other client. The agent uses it as well, to manage members on machines of the control plane.
func APIServerEtcdClient() Request {
	return Request{CommonName: "kube-apiserver-etcd-client", Usages: clientUsage}
}

// FrontProxyClient returns the request for the API server's client certificate for aggregated servers, signed by
// FrontProxyCA.
func FrontProxyClient() Request {
	return Request{CommonName: "front-proxy-client", Usages: clientUsage}
}

// EtcdServer returns the request for a member's serving certificate. It is not valid as a client certificate.
func EtcdServer(name string, hosts []string) Request {
	return Request{CommonName: name, Hosts: append([]string{EtcdPeerHost, "127.0.0.1", name}, hosts...),
		Usages: serverUsage}
}

// EtcdPeerHost is a name that members' certificates have and those of etcd's clients do not have.
const EtcdPeerHost = "localhost"

// EtcdPeer returns the request for a member's certificate for connections between members.
func EtcdPeer(name string, hosts []string) Request {
	r := EtcdServer(name, hosts)
	r.Usages = serverAndClientUsage
	return r
}

// KubeletServer returns the request for a kubelet's serving certificate.
func KubeletServer(node string, hosts []string) Request {
	return Request{
		CommonName: "system:node:" + node, Organizations: []string{"system:nodes"},
		Hosts: append([]string{node, "localhost", "127.0.0.1"}, hosts...), Usages: serverUsage,
	}
}

// Node returns the request for a kubelet's client certificate. The node authorizer recognizes it by its names.
func Node(node string) Request {
	return Request{CommonName: "system:node:" + node, Organizations: []string{"system:nodes"}, Usages: clientUsage}
}

// Daemon returns the request for the client certificate of a component whose role is bound to the user system:name,
// such as kube-scheduler.
func Daemon(name string) Request {
	return Request{CommonName: "system:" + name, Usages: clientUsage}
}

// Replica returns the request for the client certificate of one replica of a daemon that runs on several machines. The
// API server limits the replica to objects that belong to its machine.
func Replica(name, machine string) Request {
	return Request{CommonName: "system:" + name + ":" + machine, Organizations: []string{"system:" + name},
		Usages: clientUsage}
}

// DaemonServer returns the request for the serving certificate of a component's health and metrics endpoints.
func DaemonServer(name string, hosts []string) Request {
	return Request{CommonName: name, Hosts: append([]string{"localhost", "127.0.0.1", name}, hosts...),
		Usages: serverUsage}
}

// MetricsServer returns the request for the metrics server's serving certificate, with the name of its service.
func MetricsServer(hosts []string) Request {
	const service = "metrics-server.kube-system"
	return DaemonServer("metrics-server", append([]string{service, service + ".svc"}, hosts...))
}

// GitOpsReceiver returns the request for the serving certificate of the GitOps controller's port for webhooks, with the
// names of its service.
func GitOpsReceiver(hosts []string) Request {
	const service = "gitops-receiver.kube-system"
	return Request{CommonName: "gitops-receiver", Hosts: append([]string{service, service + ".svc"}, hosts...),
		Usages: serverUsage}
}

// Admin returns the request for an administrator's certificate. Its rights come from a binding, which can be deleted.
func Admin() Request {
	return Request{CommonName: "kubernetes-admin", Organizations: []string{"kubeadm:cluster-admins"},
		Usages: clientUsage}
}

// SuperAdmin returns the request for a certificate that has all rights, whatever the bindings are.
func SuperAdmin() Request {
	return Request{CommonName: "kubernetes-super-admin", Organizations: []string{"system:masters"}, Usages: clientUsage}
}
