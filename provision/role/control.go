package role

import (
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	hcl "clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

const etcdData = "/var/lib/etcd"

// etcdJoining is the file with the list of members that a joining member starts with. It is written when the member
// joins.
const etcdJoining = etcdData + "/initial-cluster"

func clientURL(m hcl.Machine) string { return "https://" + net.JoinHostPort(m.IP.String(), "2379") }

// PeerURL returns the URL under which other members reach a machine's member.
func PeerURL(m hcl.Machine) string { return "https://" + net.JoinHostPort(m.IP.String(), "2380") }

// Store returns how control-plane machines reach the store. It leaves out the members in without, and those that have
// not joined yet.
func Store(c *hcl.Cluster, st *state.State, without ...string) step.Store {
	s := newStore()
	for _, m := range EtcdMachines(c, st) {
		started := st.Machines[m.Address].HasJoined || !st.Etcd[m.Name].Existing
		if started && !slices.Contains(without, m.Name) {
			s.Endpoints = append(s.Endpoints, clientURL(m))
		}
	}
	return s
}

// Member returns how other machines reach one machine's member.
func Member(m hcl.Machine) step.Store {
	return newStore(clientURL(m))
}

const etcdClient = "apiserver-etcd-client" // the only client certificate that etcd accepts

func newStore(endpoints ...string) step.Store {
	return step.Store{
		Endpoints: endpoints,
		CA:        PKI + "/etcd/ca.crt",
		Cert:      PKI + "/" + etcdClient + ".crt",
		Key:       PKI + "/" + etcdClient + ".key",
	}
}

// storeClient adds the certificate of etcd's clients, and removes an additional one of earlier releases.
func (b *builder) storeClient() (cert, key string) {
	for _, end := range []string{".crt", ".key"} {
		b.add(&step.Absent{Path: PKI + "/etcd/healthcheck-client" + end})
	}
	return b.certificate(etcdClient, certs.EtcdCA, certs.APIServerEtcdClient())
}

// StopServers returns the steps that stop the API server of a control-plane machine, as a unit or a static pod.
func StopServers() []step.Step {
	return []step.Step{&step.StopUnit{Unit: "kube-apiserver.service"}, removeStaticPod("kube-apiserver")}
}

// StopControlPlane returns the steps that stop what API clients reach on a machine. The virtual address is released
// first, so that another machine takes it.
func StopControlPlane() []step.Step {
	return append([]step.Step{&step.StopUnit{Unit: "kube-address.service"}}, StopServers()...)
}

// StopMembers returns the steps that stop the store member of a control-plane machine, as a unit or a static pod.
func StopMembers() []step.Step {
	return []step.Step{&step.StopUnit{Unit: snapshotTimer}, &step.StopUnit{Unit: "etcd.service"},
		removeStaticPod("etcd")}
}

// EtcdData is the data directory of a member.
const EtcdData = etcdData

// addEtcd adds a member of the store.
func addEtcd(b *builder) {
	m := b.Machine
	started := b.State.Etcd[m.Name]
	cfg := config.Etcd{
		Name: m.Name, DataDir: etcdData,
		ListenClientURLs: []string{"https://127.0.0.1:2379", clientURL(m)}, AdvertiseClientURLs: []string{clientURL(m)},
		ListenPeerURLs: []string{PeerURL(m)}, InitialAdvertisePeerURLs: []string{PeerURL(m)},
		InitialCluster: started.InitialCluster, InitialClusterState: "new", InitialClusterToken: b.State.Token,
		TrustedCAFile: PKI + "/etcd/ca.crt", ClientCertAuth: true, PeerTrustedCAFile: PKI + "/etcd/ca.crt",
		PeerClientCertAuth: true,
		ListenMetricsURLs:  []string{"http://127.0.0.1:2381"},
	}
	cfg.ClientCRLFile, cfg.PeerCRLFile, cfg.QuotaBackendBytes = etcdCRL, etcdCRL, int(b.Cluster.Etcd.Quota)
	if started.Existing {
		cfg.InitialClusterState = "existing"
		if started.InitialCluster == "" {
			cfg.InitialClusterFile = etcdJoining
		}
	}
	hosts := []string{m.IP.String()}
	cfg.CertFile, cfg.KeyFile = b.certificate("etcd/server", certs.EtcdCA, certs.EtcdServer(m.Name, hosts))
	cfg.PeerCertFile, cfg.PeerKeyFile = b.certificate("etcd/peer", certs.EtcdCA, certs.EtcdPeer(m.Name, hosts))
	cfg.ClientCertAllowedCNs = []string{certs.APIServerEtcdClient().CommonName}
	cfg.PeerCertAllowedHostnames = []string{certs.EtcdPeerHost}
	b.add(&step.Directory{Path: etcdData, Mode: 0o700})
	program := b.addProgram(bundle.Etcd, binPath(bundle.Etcd))
	if started.Existing {
		others := Store(b.Cluster, b.State, m.Name)
		b.addUnitStep(
			&step.RemoveFormerEtcd{
				Store:    others,
				Unit:     "etcd.service",
				Manifest: step.Manifest("etcd"),
				DataDir:  etcdData,
				Former:   b.State.FormerStores,
			},
			&step.EtcdJoin{
				Store:       others,
				Name:        m.Name,
				PeerURL:     PeerURL(m),
				DataDir:     etcdData,
				MembersFile: etcdJoining,
			},
		)
	}
	b.addComponent(component{service: service{
		name: "etcd", description: "etcd, the cluster's store", hasWatchdog: true,
		exec:    append([]string{program}, config.Args(&cfg, &config.Etcd{})...),
		reads:   []string{cfg.TrustedCAFile}, // it loads its certificates for each connection
		options: append([]string{"CapabilityBoundingSet=", "ReadWritePaths=" + etcdData}, confinement...),
	}, port: 2381, isPlainHTTP: true, livePath: "/livez", readyPath: "/readyz", cpu: "100m", memory: "100Mi",
		image:  bundle.EtcdImage,
		mounts: []string{PKI + "/etcd"}, writableDirs: []string{etcdData}})
	if started.Existing {
		b.addUnitStep(&step.EtcdVote{Store: Store(b.Cluster, b.State), Name: m.Name})
	}
}

// removeFormerEtcd removes the store member of a machine that stays in the cluster. The member leaves while it still
// runs, so that the majority is counted among running members. A machine that leaves the control plane has no
// credentials for that once its files are removed. The run has another machine remove the member before, and this step
// only shows it in the plan.
func removeFormerEtcd(b *builder) {
	if _, existed := b.State.Etcd[b.Machine.Name]; existed && (b.isControlPlane() || b.wasControlPlane()) {
		b.add(&step.EtcdLeave{Store: Store(b.Cluster, b.State), Name: b.Machine.Name})
	}
	b.add(removeStaticPod("etcd"), &step.RemoveUnit{Name: "etcd.service", Path: step.UnitDir + "etcd.service"},
		&step.Absent{Path: etcdData + "/member"})
}

// addAPIServer adds the API server.
func addAPIServer(b *builder) {
	m, def := b.Machine, config.DefaultAPIServer()
	cfg := def
	cfg.AdvertiseAddress = m.IP.String()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate("apiserver", certs.ClusterCA,
		certs.APIServer(b.Cluster.Domain, b.Cluster.ServiceIP(1).String(), apiHosts(b.Cluster, m)))
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", apiCRL
	cfg.EtcdServers = b.etcdServers()
	cfg.EtcdCAFile = PKI + "/etcd/ca.crt"
	cfg.EtcdCertFile, cfg.EtcdKeyFile = b.storeClient()
	cfg.EncryptionProviderConfig = b.configureEncryption()
	cfg.KubeletCertificateAuthority = PKI + "/ca.crt"
	cfg.KubeletClientCertificate, cfg.KubeletClientKey = b.certificate(kubeletClient, certs.ClusterCA,
		certs.APIServerKubeletClient())
	cfg.ServiceAccountIssuer = "https://kubernetes.default.svc." + b.Cluster.Domain
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{PKI + "/sa.pub"}, PKI+"/sa.key"
	cfg.RequestheaderClientCAFile, cfg.RequestheaderAllowedNames = PKI+"/front-proxy-ca.crt", []string{
		"front-proxy-client",
	}
	cfg.ProxyClientCertFile, cfg.ProxyClientKeyFile = b.certificate("front-proxy-client", certs.FrontProxyCA,
		certs.FrontProxyClient())
	cfg.ServiceClusterIPRange = toStrings(b.Cluster.ServiceCIDRs)
	if b.hasStaticPods() {
		cfg.HealthzBindAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(plainHealthPort))
	}
	b.add(&step.Directory{Path: apiServerDir, Mode: 0o700})
	reads, taken := b.configureAudit(&cfg)
	taken = append(taken, b.configureAuth(&cfg)...)
	reads = append(reads, b.configureAdmission(&cfg)...)
	var writes []string
	if cfg.AuditLogPath != "" {
		writes = []string{auditLogDir}
	}
	proxy, files := b.proxyOptions(proxyFile, b.Cluster.System.Proxy) // for token issuers' configuration and keys
	var environment []corev1.EnvVar
	if p := b.Cluster.System.Proxy; p != nil {
		environment = proxyVariables(b.Cluster, b.Machine, p)
	}
	if !b.hasStaticPods() {
		reads = append(reads, files...)
	}
	b.addComponent(component{environment: environment, service: service{
		name: "kube-apiserver", description: "Kubernetes API server", startAfter: "etcd.service", hasWatchdog: true,
		needsProxy: true,
		exec:       append([]string{b.addDaemon("kube-apiserver")}, config.Args(&cfg, &def)...),
		reads: append(reads, cfg.TLSCertFile, cfg.ClientCAFile, cfg.EtcdCAFile, cfg.EtcdCertFile,
			cfg.KubeletClientCertificate, cfg.ServiceAccountKeyFiles[0], cfg.RequestheaderClientCAFile,
			cfg.ProxyClientCertFile),
		options: append(append([]string{"CapabilityBoundingSet="}, confinement...), proxy...),
	}, port: 6443, probePort: plainHealthPort, livePath: "/livez", readyPath: "/readyz", cpu: "250m",
		image:  bundle.ControlPlaneImage,
		mounts: []string{PKI, apiServerDir}, socketDirs: b.kmsSocketDirs(), writableDirs: writes})
	b.addUnitStep(taken...)
}

// plainHealthPort is the port on which an API server in a static pod reports its health to the kubelet. The kubelet has
// no credentials, and the AuthenticationConfiguration decides whether port 6443 answers anonymous requests.
const plainHealthPort = 6080

// ServerClient holds the credentials with which control-plane machines check the API servers' health.
var ServerClient = host.Client{
	CA:   PKI + "/ca.crt",
	Cert: PKI + "/" + kubeletClient + ".crt",
	Key:  PKI + "/" + kubeletClient + ".key",
}

const kubeletClient = "apiserver-kubelet-client"

// etcdServers returns the URLs of the members, this machine's own first.
func (b *builder) etcdServers() []string {
	var list []string
	for _, m := range EtcdMachines(b.Cluster, b.State) {
		if m.Name == b.Machine.Name {
			list = append([]string{"https://127.0.0.1:2379"}, list...)
		} else {
			list = append(list, clientURL(m))
		}
	}
	return list
}

// schedulerConfig is the file with the scheduler's profiles, if the configuration has any.
const schedulerConfig = Kubernetes + "/scheduler.yaml"

// addControllers adds the scheduler and the controller manager.
func addControllers(b *builder) {
	def := config.DefaultScheduler()
	cfg := def
	b.Cluster.Scheduler.Over(&cfg)
	var profiles []string
	if cfg.Config != "" { // the configuration contains the content of the file
		cfg.Config = b.addFile(schedulerConfig, cfg.Config)
		profiles = []string{cfg.Config}
	} else {
		b.add(&step.Absent{Path: schedulerConfig})
	}
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("scheduler", certs.Daemon("kube-scheduler")), b.apiServers()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate("kube-scheduler", certs.ClusterCA,
		certs.DaemonServer("kube-scheduler", nil))
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", caCRL
	b.addComponent(component{service: service{
		name: "kube-scheduler", description: "Kubernetes scheduler", startAfter: "kube-apiserver.service",
		hasWatchdog:        true,
		canStartInParallel: true,
		exec:               append([]string{b.addDaemon("kube-scheduler")}, config.Args(&cfg, &def)...),
		reads:              append([]string{cfg.Kubeconfig, cfg.TLSCertFile, cfg.ClientCAFile}, profiles...),
		options:            append([]string{"CapabilityBoundingSet="}, confinement...),
	}, port: 10259, livePath: "/livez", readyPath: "/readyz", cpu: "100m", image: bundle.ControlPlaneImage,
		mounts: append([]string{cfg.Kubeconfig, PKI}, profiles...)})
	managerDef := config.DefaultControllerManager()
	manager := managerDef
	b.Cluster.Controllers.Over(&manager)
	manager.Kubeconfig, manager.APIServers = b.kubeconfig("controller-manager",
		certs.Daemon("kube-controller-manager")), b.apiServers()
	manager.TLSCertFile, manager.TLSPrivateKeyFile = b.certificate("kube-controller-manager", certs.ClusterCA,
		certs.DaemonServer("kube-controller-manager", nil))
	manager.ClientCAFile, manager.ClientCRLFile, manager.RootCAFile = PKI+"/ca.crt", caCRL, PKI+"/ca.crt"
	manager.ClusterCIDR = toStrings(b.Cluster.PodCIDRs)
	manager.ServiceAccountPrivateKeyFile = PKI + "/sa.key"
	manager.ClusterSigningCertFile, manager.ClusterSigningKeyFile = PKI+"/ca.crt", PKI+"/ca.key"
	b.addComponent(component{service: service{
		name: "kube-controller-manager", description: "Kubernetes controllers", startAfter: "kube-apiserver.service",
		hasWatchdog: true, canStartInParallel: true,
		exec: append([]string{b.addDaemon("kube-controller-manager")}, config.Args(&manager, &managerDef)...),
		reads: []string{
			manager.Kubeconfig,
			manager.TLSCertFile,
			manager.ClientCAFile,
			manager.ServiceAccountPrivateKeyFile,
		},
		options: append([]string{"CapabilityBoundingSet="}, confinement...),
	}, port: 10257, livePath: "/livez", readyPath: "/readyz", cpu: "200m", image: bundle.ControlPlaneImage,
		mounts: []string{PKI, manager.Kubeconfig}})
}

// addMetrics adds the metrics server, which the API servers aggregate.
func addMetrics(b *builder) {
	def := config.DefaultMetricsServer()
	cfg := def
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("metrics-server", certs.Replica("metrics-server", b.Machine.Name)),
		b.apiServers()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate("metrics-server", certs.ClusterCA,
		certs.MetricsServer([]string{b.Machine.IP.String()}))
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", apiCRL
	cfg.RequestheaderClientCAFile, cfg.RequestheaderAllowedNames = PKI+"/front-proxy-ca.crt", []string{
		certs.FrontProxyClient().CommonName,
	}
	cfg.NodeName, cfg.NodeIP = b.Machine.Name, b.Machine.IP.String()
	b.addComponent(component{service: service{
		name: "metrics-server", description: "Kubernetes resource metrics", startAfter: "kube-apiserver.service",
		hasWatchdog: true, canStartInParallel: true,
		exec:    append([]string{b.addDaemon("metrics-server")}, config.Args(&cfg, &def)...),
		reads:   []string{cfg.Kubeconfig, cfg.TLSCertFile, cfg.ClientCAFile, cfg.RequestheaderClientCAFile},
		options: append([]string{"CapabilityBoundingSet="}, confinement...),
	}, port: 10261, livePath: "/livez", readyPath: "/readyz", cpu: "50m", image: bundle.ControlPlaneImage,
		mounts: []string{PKI, cfg.Kubeconfig}})
}

// addVirtualAddress adds the daemon that keeps the virtual address on one machine of the control plane. It starts last,
// because a machine may hold the address only when its API server is ready.
func addVirtualAddress(b *builder) {
	def := config.DefaultAddress()
	cfg := def
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("address", certs.Daemon("kube-address")), b.apiServers()
	cfg.Address, cfg.NodeName, cfg.NodeIP = b.Cluster.VirtualAddress.String(), b.Machine.Name, b.Machine.IP.String()
	b.addUnit(service{
		name: "kube-address", description: "Kubernetes API virtual address", startAfter: "kube-apiserver.service",
		hasWatchdog: true, health: readyURL(cfg.HealthAddress),
		exec:  append([]string{b.addDaemon("kube-address")}, config.Args(&cfg, &def)...),
		reads: []string{cfg.Kubeconfig},
		options: append([]string{"CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW"},
			withAddressFamilies(confinement, "AF_NETLINK AF_PACKET")...),
	})
}
