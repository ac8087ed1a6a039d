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

// etcdJoining has the members that one which joins begins beside: those that the store has at that moment.
const etcdJoining = etcdData + "/initial-cluster"

func clientURL(m hcl.Machine) string { return "https://" + net.JoinHostPort(m.IP.String(), "2379") }

// PeerURL is where other members reach a machine's.
func PeerURL(m hcl.Machine) string { return "https://" + net.JoinHostPort(m.IP.String(), "2380") }

// Store says how the store is reached from a control-plane machine, leaving out the
// members named and those that have not joined yet.
func Store(c *hcl.Cluster, st *state.State, without ...string) step.Store {
	s := store()
	for _, m := range EtcdMachines(c, st) {
		started := st.Machines[m.Address].Joined || !st.Etcd[m.Name].Existing
		if started && !slices.Contains(without, m.Name) {
			s.Endpoints = append(s.Endpoints, clientURL(m))
		}
	}
	return s
}

// Member says how one machine's member of the store is reached from the others.
func Member(m hcl.Machine) step.Store {
	return store(clientURL(m))
}

const etcdClient = "apiserver-etcd-client" // the one certificate that etcd lets in

func store(endpoints ...string) step.Store {
	return step.Store{
		Endpoints: endpoints,
		CA:        PKI + "/etcd/ca.crt",
		Cert:      PKI + "/" + etcdClient + ".crt",
		Key:       PKI + "/" + etcdClient + ".key",
	}
}

// storeClient adds the certificate of etcd's clients, and takes away the one that earlier releases had besides.
func (b *builder) storeClient() (cert, key string) {
	for _, end := range []string{".crt", ".key"} {
		b.add(&step.Absent{Path: PKI + "/etcd/healthcheck-client" + end})
	}
	return b.certificate(etcdClient, certs.EtcdCA, certs.APIServerEtcdClient())
}

// StopServers and StopMembers have the API servers, and then the members of the store, rest on a machine of the control
// plane, whichever form it has.
func StopServers() []step.Step {
	return []step.Step{&step.Stopped{Unit: "kube-apiserver.service"}, noStaticPod("kube-apiserver")}
}

// StopControlPlane has a machine stop what clients of the API reach on it: the virtual address first, which another
// machine takes then.
func StopControlPlane() []step.Step {
	return append([]step.Step{&step.Stopped{Unit: "kube-address.service"}}, StopServers()...)
}

// StopMembers is described above.
func StopMembers() []step.Step {
	return []step.Step{&step.Stopped{Unit: snapshotTimer}, &step.Stopped{Unit: "etcd.service"}, noStaticPod("etcd")}
}

// EtcdData is where a member has its data.
const EtcdData = etcdData

// etcd is a member of the store.
func etcd(b *builder) {
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
	program := b.program(bundle.Etcd, bin(bundle.Etcd))
	if started.Existing {
		others := Store(b.Cluster, b.State, m.Name)
		b.run(
			&step.EtcdFormer{
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
	b.component(component{service: service{
		name: "etcd", description: "etcd, the cluster's store", watchdog: true,
		exec:    append([]string{program}, config.Args(&cfg, &config.Etcd{})...),
		reads:   []string{cfg.TrustedCAFile}, // it reads its certificates with each connection
		options: append([]string{"CapabilityBoundingSet=", "ReadWritePaths=" + etcdData}, confined...),
	}, port: 2381, http: true, live: "/livez", ready: "/readyz", cpu: "100m", memory: "100Mi", image: bundle.EtcdImage,
		mounts: []string{PKI + "/etcd"}, writes: []string{etcdData}})
	if started.Existing {
		b.run(&step.EtcdVote{Store: Store(b.Cluster, b.State), Name: m.Name})
	}
}

// formerEtcd removes the member of a machine that stays. The member leaves the store while it still runs, so that the
// majority is always of members that are there. A machine that leaves the control plane has no credentials left to do
// that by when its files are removed: a run has another machine remove the member first, and this step shows it.
func formerEtcd(b *builder) {
	if _, had := b.State.Etcd[b.Machine.Name]; had && (b.controlPlane() || b.wasControl()) {
		b.add(&step.EtcdLeave{Store: Store(b.Cluster, b.State), Name: b.Machine.Name})
	}
	b.add(
		noStaticPod("etcd"),
		&step.NoUnit{Name: "etcd.service", Path: step.UnitDir + "etcd.service"},
		&step.Absent{Path: etcdData + "/member"},
	)
}

// apiServer is the cluster's front door.
func apiServer(b *builder) {
	m, def := b.Machine, config.DefaultAPIServer()
	cfg := def
	cfg.AdvertiseAddress = m.IP.String()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate(
		"apiserver",
		certs.ClusterCA,
		certs.APIServer(b.Cluster.Domain, b.Cluster.ServiceIP(1).String(), apiHosts(b.Cluster, m)),
	)
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", apiCRL
	cfg.EtcdServers = b.etcdServers()
	cfg.EtcdCAFile = PKI + "/etcd/ca.crt"
	cfg.EtcdCertFile, cfg.EtcdKeyFile = b.storeClient()
	cfg.EncryptionProviderConfig = b.encryption()
	cfg.KubeletCertificateAuthority = PKI + "/ca.crt"
	cfg.KubeletClientCertificate, cfg.KubeletClientKey = b.certificate(
		kubeletClient,
		certs.ClusterCA,
		certs.APIServerKubeletClient(),
	)
	cfg.ServiceAccountIssuer = "https://kubernetes.default.svc." + b.Cluster.Domain
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{PKI + "/sa.pub"}, PKI+"/sa.key"
	cfg.RequestheaderClientCAFile, cfg.RequestheaderAllowedNames = PKI+"/front-proxy-ca.crt", []string{
		"front-proxy-client",
	}
	cfg.ProxyClientCertFile, cfg.ProxyClientKeyFile = b.certificate(
		"front-proxy-client",
		certs.FrontProxyCA,
		certs.FrontProxyClient(),
	)
	cfg.ServiceClusterIPRange = texts(b.Cluster.ServiceCIDRs)
	if b.staticPods() {
		cfg.HealthzBindAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(probedPort))
	}
	b.add(&step.Directory{Path: settings, Mode: 0o700})
	reads, taken := b.audit(&cfg)
	taken = append(taken, b.answering(&cfg)...)
	reads = append(reads, b.admission(&cfg)...)
	var writes []string
	if cfg.AuditLogPath != "" {
		writes = []string{auditLogs}
	}
	proxy, files := b.outside(proxyFile, b.Cluster.System.Proxy) // for the configuration and keys of token issuers
	var environment []corev1.EnvVar
	if p := b.Cluster.System.Proxy; p != nil {
		environment = proxyVariables(b.Cluster, b.Machine, p)
	}
	if !b.staticPods() {
		reads = append(reads, files...)
	}
	b.component(component{environment: environment, service: service{
		name: "kube-apiserver", description: "Kubernetes API server", after: "etcd.service", watchdog: true,
		outside: true,
		exec:    append([]string{b.daemon("kube-apiserver")}, config.Args(&cfg, &def)...),
		reads: append(
			reads,
			cfg.TLSCertFile,
			cfg.ClientCAFile,
			cfg.EtcdCAFile,
			cfg.EtcdCertFile,
			cfg.KubeletClientCertificate,
			cfg.ServiceAccountKeyFiles[0],
			cfg.RequestheaderClientCAFile,
			cfg.ProxyClientCertFile,
		),
		options: append(append([]string{"CapabilityBoundingSet="}, confined...), proxy...),
	}, port: 6443, probed: probedPort, live: "/livez", ready: "/readyz", cpu: "250m", image: bundle.ControlPlaneImage,
		mounts: []string{PKI, settings}, shares: b.sockets(), writes: writes})
	b.run(taken...)
}

// probedPort is where an API server that is a static pod tells the kubelet how it is: the kubelet has no
// credentials, and whether anybody is answered without at 6443 is for the AuthenticationConfiguration to say.
const probedPort = 6080

// ServerClient is as whom a machine of the control plane asks the API servers whether they are well.
var ServerClient = host.Client{
	CA:   PKI + "/ca.crt",
	Cert: PKI + "/" + kubeletClient + ".crt",
	Key:  PKI + "/" + kubeletClient + ".key",
}

const kubeletClient = "apiserver-kubelet-client"

// etcdServers are the members' URLs, this machine's own first.
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

// schedulerConfig is where the scheduler's profiles lie, when the configuration has any.
const schedulerConfig = Kubernetes + "/scheduler.yaml"

// controllers are the scheduler and the controllers.
func controllers(b *builder) {
	def := config.DefaultScheduler()
	cfg := def
	b.Cluster.Scheduler.Over(&cfg)
	var profiles []string
	if cfg.Config != "" { // what the configuration has is the file's content
		cfg.Config = b.file(schedulerConfig, cfg.Config)
		profiles = []string{cfg.Config}
	} else {
		b.add(&step.Absent{Path: schedulerConfig})
	}
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("scheduler", certs.Daemon("kube-scheduler")), b.apiServers()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate(
		"kube-scheduler",
		certs.ClusterCA,
		certs.DaemonServer("kube-scheduler", nil),
	)
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", crl
	b.component(component{service: service{
		name: "kube-scheduler", description: "Kubernetes scheduler", after: "kube-apiserver.service", watchdog: true,
		beside:  true,
		exec:    append([]string{b.daemon("kube-scheduler")}, config.Args(&cfg, &def)...),
		reads:   append([]string{cfg.Kubeconfig, cfg.TLSCertFile, cfg.ClientCAFile}, profiles...),
		options: append([]string{"CapabilityBoundingSet="}, confined...),
	}, port: 10259, live: "/livez", ready: "/readyz", cpu: "100m", image: bundle.ControlPlaneImage,
		mounts: append([]string{cfg.Kubeconfig, PKI}, profiles...)})
	managerDef := config.DefaultControllerManager()
	manager := managerDef
	b.Cluster.Controllers.Over(&manager)
	manager.Kubeconfig, manager.APIServers = b.kubeconfig(
		"controller-manager",
		certs.Daemon("kube-controller-manager"),
	), b.apiServers()
	manager.TLSCertFile, manager.TLSPrivateKeyFile = b.certificate(
		"kube-controller-manager",
		certs.ClusterCA,
		certs.DaemonServer("kube-controller-manager", nil),
	)
	manager.ClientCAFile, manager.ClientCRLFile, manager.RootCAFile = PKI+"/ca.crt", crl, PKI+"/ca.crt"
	manager.ClusterCIDR = texts(b.Cluster.PodCIDRs)
	manager.ServiceAccountPrivateKeyFile = PKI + "/sa.key"
	manager.ClusterSigningCertFile, manager.ClusterSigningKeyFile = PKI+"/ca.crt", PKI+"/ca.key"
	b.component(component{service: service{
		name: "kube-controller-manager", description: "Kubernetes controllers", after: "kube-apiserver.service",
		watchdog: true, beside: true,
		exec: append([]string{b.daemon("kube-controller-manager")}, config.Args(&manager, &managerDef)...),
		reads: []string{
			manager.Kubeconfig,
			manager.TLSCertFile,
			manager.ClientCAFile,
			manager.ServiceAccountPrivateKeyFile,
		},
		options: append([]string{"CapabilityBoundingSet="}, confined...),
	}, port: 10257, live: "/livez", ready: "/readyz", cpu: "200m", image: bundle.ControlPlaneImage,
		mounts: []string{PKI, manager.Kubeconfig}})
}

// metrics answers what nodes and pods use, behind the API servers.
func metrics(b *builder) {
	def := config.DefaultMetricsServer()
	cfg := def
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("metrics-server", certs.Replica("metrics-server", b.Machine.Name)),
		b.apiServers()
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = b.certificate(
		"metrics-server",
		certs.ClusterCA,
		certs.MetricsServer([]string{b.Machine.IP.String()}),
	)
	cfg.ClientCAFile, cfg.ClientCRLFile = PKI+"/ca.crt", apiCRL
	cfg.RequestheaderClientCAFile, cfg.RequestheaderAllowedNames = PKI+"/front-proxy-ca.crt", []string{
		certs.FrontProxyClient().CommonName,
	}
	cfg.NodeName, cfg.NodeIP = b.Machine.Name, b.Machine.IP.String()
	b.component(component{service: service{
		name: "metrics-server", description: "Kubernetes resource metrics", after: "kube-apiserver.service",
		watchdog: true, beside: true,
		exec:    append([]string{b.daemon("metrics-server")}, config.Args(&cfg, &def)...),
		reads:   []string{cfg.Kubeconfig, cfg.TLSCertFile, cfg.ClientCAFile, cfg.RequestheaderClientCAFile},
		options: append([]string{"CapabilityBoundingSet="}, confined...),
	}, port: 10261, live: "/livez", ready: "/readyz", cpu: "50m", image: bundle.ControlPlaneImage,
		mounts: []string{PKI, cfg.Kubeconfig}})
}

// address keeps the virtual address on one machine of the control plane. It starts last:
// a machine holds the address only when its API server is ready.
func address(b *builder) {
	def := config.DefaultAddress()
	cfg := def
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("address", certs.Daemon("kube-address")), b.apiServers()
	cfg.Address, cfg.NodeName, cfg.NodeIP = b.Cluster.VirtualAddress.String(), b.Machine.Name, b.Machine.IP.String()
	b.unit(service{
		name: "kube-address", description: "Kubernetes API virtual address", after: "kube-apiserver.service",
		watchdog: true, health: ready(cfg.HealthAddress),
		exec: append([]string{b.daemon("kube-address")}, config.Args(&cfg, &def)...), reads: []string{cfg.Kubeconfig},
		options: append(
			[]string{"CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW"},
			speaking(confined, "AF_NETLINK AF_PACKET")...),
	})
}
