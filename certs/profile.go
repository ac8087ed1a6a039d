package certs

import "crypto/x509"

// Names of the authorities, also the file names below /etc/kubernetes/pki.
const (
	ClusterCA    = "ca"
	EtcdCA       = "etcd/ca"
	FrontProxyCA = "front-proxy-ca"
)

// CommonNames are the authorities' own names, kubeadm's.
var CommonNames = map[string]string{
	ClusterCA:    "kubernetes",
	EtcdCA:       "etcd-ca",
	FrontProxyCA: "front-proxy-ca",
}

var (
	server = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// APIServer is the API server's serving certificate. Besides hosts it carries the
// names of the service kubernetes in the cluster domain, serviceIP (the first
// address of the service network), and "kubernetes", which daemons verify.
func APIServer(domain, serviceIP string, hosts []string) Request {
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain,
		"localhost", serviceIP, "127.0.0.1",
	}
	return Request{CommonName: "kube-apiserver", Hosts: append(names, hosts...), Usages: server}
}

// APIServerKubeletClient is the API server towards kubelets.
func APIServerKubeletClient() Request {
	return Request{
		CommonName:    "kube-apiserver-kubelet-client",
		Organizations: []string{"kubeadm:cluster-admins"},
		Usages:        client,
	}
}

// APIServerEtcdClient is the API server towards etcd, signed by EtcdCA. etcd lets nobody else in: the
// tool itself, which looks after the membership on machines of the control plane, has it too.
func APIServerEtcdClient() Request {
	return Request{CommonName: "kube-apiserver-etcd-client", Usages: client}
}

// FrontProxyClient is the API server towards aggregated servers, signed by FrontProxyCA.
func FrontProxyClient() Request {
	return Request{CommonName: "front-proxy-client", Usages: client}
}

// EtcdServer is a member towards its clients. It is nobody's client, and so it opens no port.
func EtcdServer(name string, hosts []string) Request {
	return Request{CommonName: name, Hosts: append([]string{EtcdPeerHost, "127.0.0.1", name}, hosts...), Usages: server}
}

// EtcdPeerHost is a name that certificates of members have and those of etcd's clients do not.
const EtcdPeerHost = "localhost"

// EtcdPeer is a member towards the other members.
func EtcdPeer(name string, hosts []string) Request {
	r := EtcdServer(name, hosts)
	r.Usages = both
	return r
}

// KubeletServer is a kubelet's serving certificate.
func KubeletServer(node string, hosts []string) Request {
	return Request{
		CommonName: "system:node:" + node, Organizations: []string{"system:nodes"},
		Hosts: append([]string{node, "localhost", "127.0.0.1"}, hosts...), Usages: server,
	}
}

// Node is a kubelet's client certificate; the node authorizer knows it by its names.
func Node(node string) Request {
	return Request{CommonName: "system:node:" + node, Organizations: []string{"system:nodes"}, Usages: client}
}

// Daemon is the client certificate of a component whose role is bound to the
// user system:name, as kube-scheduler, kube-controller-manager, kube-proxy.
func Daemon(name string) Request {
	return Request{CommonName: "system:" + name, Usages: client}
}

// Replica is the client certificate of one replica of a daemon that runs on several machines. The API server limits the
// replica to objects that belong to its machine.
func Replica(name, machine string) Request {
	return Request{CommonName: "system:" + name + ":" + machine, Organizations: []string{"system:" + name},
		Usages: client}
}

// DaemonServer is the serving certificate of a component's health and metrics endpoints.
func DaemonServer(name string, hosts []string) Request {
	return Request{CommonName: name, Hosts: append([]string{"localhost", "127.0.0.1", name}, hosts...), Usages: server}
}

// MetricsServer is the serving certificate of the server of metrics.k8s.io, by the name of its service.
func MetricsServer(hosts []string) Request {
	const service = "metrics-server.kube-system"
	return DaemonServer("metrics-server", append([]string{service, service + ".svc"}, hosts...))
}

// Admin is a person with every right, by way of a binding that can be taken away.
func Admin() Request {
	return Request{CommonName: "kubernetes-admin", Organizations: []string{"kubeadm:cluster-admins"}, Usages: client}
}

// SuperAdmin has every right whatever the bindings say.
func SuperAdmin() Request {
	return Request{CommonName: "kubernetes-super-admin", Organizations: []string{"system:masters"}, Usages: client}
}
