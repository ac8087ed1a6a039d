package role

import (
	"net"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/step"
)

// Kubernetes is the directory of the daemons' configuration.
const Kubernetes = "/etc/kubernetes"

// PKI is the directory of certificates, with the same layout as kubeadm's.
const PKI = Kubernetes + "/pki"

// addAuthorities adds the authorities. Nodes get the cluster's CA certificate, and the control plane gets all
// authorities with their keys.
func addAuthorities(b *builder) {
	b.add(&step.Directory{Path: PKI, Mode: 0o755})
	b.addFile(PKI+"/ca.crt", string(b.State.Trust(certs.ClusterCA))) // controllers sign with the first certificate
	b.add(Revocations(b.Input)...)
	if !b.isControlPlane() {
		return
	}
	for _, name := range []string{certs.EtcdCA, certs.FrontProxyCA} {
		b.addFile(PKI+"/"+name+".crt", string(b.State.Trusted(name)))
	}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		b.addSecretFile(PKI+"/"+name+".key", b.State.Keys.CAs[name])
	}
	b.addSecretFile(PKI+"/sa.key", b.State.Keys.ServiceAccount)
	b.addFile(PKI+"/sa.pub", string(b.State.ServicePublic()))
	b.kubeconfig("admin", certs.Admin())
	b.kubeconfig("super-admin", certs.SuperAdmin())
}

// certificate adds a leaf certificate at PKI/name and returns the paths of the certificate and the key.
func (b *builder) certificate(name, ca string, r certs.Request) (cert, key string) {
	path := PKI + "/" + name
	b.add(
		&step.Certificate{
			Path:    path,
			CA:      ca,
			CACert:  b.State.Trust(ca),
			Chain:   b.chain(ca),
			Request: r,
			Revoked: b.revokedSerials(ca, r),
		},
	)
	return path + ".crt", path + ".key"
}

// kubeconfig adds /etc/kubernetes/NAME.conf and returns its path.
func (b *builder) kubeconfig(name string, r certs.Request) string {
	path := Kubernetes + "/" + name + ".conf"
	b.add(&step.Kubeconfig{
		Path: path, Cluster: b.Cluster.Name, Server: b.apiServerURL(),
		CA: certs.ClusterCA, CACert: b.State.Trust(certs.ClusterCA), Chain: b.chain(certs.ClusterCA), Request: r,
		Revoked: b.revokedSerials(certs.ClusterCA, r),
	})
	return path
}

// chain returns the certificates that are appended to those that an authority signs. It caches them, because they are
// the same for all certificates of a machine.
func (b *builder) chain(ca string) []byte {
	if _, ok := b.chains[ca]; !ok {
		if b.chains == nil {
			b.chains = map[string][]byte{}
		}
		b.chains[ca] = b.State.CA(ca).Chain
	}
	return b.chains[ca]
}

// revokedSerials returns the serial numbers of revoked certificates with the same name.
func (b *builder) revokedSerials(ca string, r certs.Request) (serials []string) {
	for _, revoked := range b.State.Revoked {
		if revoked.CA == ca && (revoked.Name == r.CommonName || revoked.Name == "") {
			serials = append(serials, revoked.Serial)
		}
	}
	return serials
}

// apiHosts returns the names and addresses under which this machine's API server is reached.
func apiHosts(c *config.Cluster, m config.Machine) []string {
	hosts := append([]string{m.Name}, m.IPs()...)
	if host, _, err := net.SplitHostPort(c.Endpoint); err == nil && host != m.IP.String() && host != m.Name {
		hosts = append(hosts, host)
	}
	return hosts
}

// Paths of the certificate revocation lists. Daemons reload them when they change.
const (
	caCRL   = PKI + "/ca.crl"
	etcdCRL = PKI + "/etcd/ca.crl"
	// apiCRL is for API servers, which accept clients of the cluster's CA and of the front proxy CA. A front proxy's
	// certificate allows its holder to act as any user, so its revocation matters as well.
	apiCRL = PKI + "/apiserver-clients.crl"
)

// Revocations returns the steps that write the machine's revocation lists.
func Revocations(in Input) []step.Step {
	list := []step.Step{
		&step.File{Path: caCRL, Content: certs.EncodeRevocations(in.Revoked[certs.ClusterCA]), Mode: 0o644,
			Secret: true},
	}
	if in.isControlPlane() {
		both := append(certs.EncodeRevocations(in.Revoked[certs.ClusterCA]),
			certs.EncodeRevocations(in.Revoked[certs.FrontProxyCA])...)
		list = append(list, &step.File{Path: apiCRL, Content: both, Mode: 0o644, Secret: true})
		list = append(list, &step.File{Path: etcdCRL, Content: in.Revoked[certs.EtcdCA], Mode: 0o644, Secret: true})
	}
	return list
}
