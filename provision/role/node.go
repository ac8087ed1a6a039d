package role

import (
	"fmt"
	"net"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

const (
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	// nodeCredential is the kubelet's kubeconfig. Its user is the machine's node.
	nodeCredential = Kubernetes + "/kubelet.conf"
)

// readyURL returns the readiness URL of a daemon.
func readyURL(address string) string { return "http://" + address + "/readyz" }

// addProxy adds kube-proxy, which forwards connections to services to their pods.
func addProxy(b *builder) {
	def := config.DefaultProxy()
	cfg := def
	b.Cluster.Proxy.Over(&cfg)
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("proxy", certs.Daemon("kube-proxy")), b.apiServers()
	cfg.HostnameOverride, cfg.ClusterCIDR = b.Machine.Name, toStrings(b.Cluster.PodCIDRs)
	b.addUnit(service{
		name: "kube-proxy", description: "Kubernetes service proxy", hasWatchdog: true, canStartInParallel: true,
		health: readyURL(cfg.MetricsBindAddress),
		exec:   append([]string{b.addDaemon("kube-proxy")}, config.Args(&cfg, &def)...),
		reads:  []string{cfg.Kubeconfig},
	})
}

// addNetwork adds kube-network, which connects the machine to the pods of all nodes. A machine that is not a node needs
// it for the API server, which connects to webhooks and proxied services in pods.
func addNetwork(b *builder) {
	def := config.DefaultNetwork()
	cfg := def
	b.Cluster.Network.Over(&cfg)
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("network", certs.Replica("kube-network", b.Machine.Name)),
		b.apiServers()
	cfg.HostnameOverride, cfg.ClusterCIDR = b.Machine.Name, toStrings(b.Cluster.PodCIDRs)
	cfg.RoutesOnly = !b.isNode()
	reads := []string{cfg.Kubeconfig}
	if b.isNode() {
		// The daemon's own credential cannot read pods, so it reads those of its node with the node's credential.
		cfg.NodeKubeconfig = nodeCredential
		reads = append(reads, nodeCredential)
	}
	b.addUnit(service{
		name: "kube-network", description: "Kubernetes pod network", hasWatchdog: true, canStartInParallel: true,
		health: readyURL(cfg.HealthAddress),
		// It must be back before another machine takes over its leases, because moving an address ends the connections
		// to it.
		restartDelay: "100ms",
		exec:         append([]string{b.addDaemon("kube-network")}, config.Args(&cfg, &def)...), reads: reads,
	})
	// The plugin of a former release is not called any more once the daemon has written its replacement.
	b.addUnitStep(&step.Absent{Path: bundleCNI + "/bridge", LinkInto: host.LibraryDir})
}

func addKubelet(b *builder) {
	m, def, all := b.Machine, config.DefaultKubelet(), config.DefaultKubeletSettings()
	b.Cluster.Kubelet.Over(&all)
	m.Kubelet.Over(&all)
	cfg, file := all.Kubelet, all.KubeletFile
	cfg.Kubeconfig, cfg.APIServers = b.kubeconfig("kubelet", certs.Node(m.Name)), b.apiServers()
	cfg.Config, cfg.HostnameOverride, cfg.NodeIP = kubeletConfig, m.Name, m.IPs()
	cfg.NodeLabels = selfSetLabels(m.Labels)
	cfg.ClientCRLFile = caCRL
	cfg.NetworkPolicySocket = config.DefaultNetwork().PolicySocket

	file.TLSCertFile, file.TLSPrivateKeyFile = b.certificate("kubelet", certs.ClusterCA,
		certs.KubeletServer(m.Name, m.IPs()))
	file.Authentication.X509.ClientCAFile = PKI + "/ca.crt"
	file.StaticPodPath = Kubernetes + "/manifests"
	file.ClusterDNS, file.ClusterDomain = []string{b.Cluster.ServiceIP(10).String()}, b.Cluster.Domain
	for _, t := range m.Taints {
		file.RegisterWithTaints = append(file.RegisterWithTaints,
			config.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	b.addPrivateFile(kubeletConfig, b.renderKubelet(file))
	b.add(newDirectory(file.StaticPodPath, 0o755), newDirectory(cfg.RootDir, 0o750))
	providers := b.configureProviders(&cfg)
	var own []string
	for _, c := range staticComponents {
		own = append(own, path.Base(step.Manifest(c.name)))
	}
	b.add(&step.Foreign{Dir: file.StaticPodPath, OwnFiles: own, Effect: "the kubelet runs it as a static pod"})
	// The kubelet runs credential providers, which need the proxy.
	proxy, files := b.proxyOptions(proxyFile, b.Cluster.System.Proxy)
	b.addUnit(service{
		name: "kubelet", description: "Kubernetes node agent", startAfter: "containerd.service", hasWatchdog: true,
		canStartInParallel: true, needsProxy: true,
		isReadyOnStart: b.hasStaticPods(),
		health:         readyURL(net.JoinHostPort(file.HealthzBindAddress, strconv.Itoa(file.HealthzPort))),
		exec:           append([]string{b.addDaemon("kubelet")}, config.Args(&cfg, &def)...),
		reads: slices.Concat([]string{cfg.Kubeconfig, kubeletConfig, file.TLSCertFile,
			file.Authentication.X509.ClientCAFile}, files, providers),
		options: append([]string{"Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "TasksMax=infinity"},
			proxy...),
	})
}

// kubeletFiles caches the last text, because it is the same for most machines.
var kubeletFiles struct {
	mu   sync.Mutex
	of   config.KubeletFile
	text string
}

func (b *builder) renderKubelet(file config.KubeletFile) string {
	f := &kubeletFiles
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text != "" && reflect.DeepEqual(f.of, file) {
		return f.text
	}
	text, err := yaml.Marshal(file)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	f.of, f.text = file, string(text)
	return f.text
}

// selfSetLabels returns the labels that a node may set on itself. The others are applied through the API once the node
// exists.
func selfSetLabels(labels map[string]string) map[string]string {
	own := map[string]string{}
	for k, v := range labels {
		domain, _, qualified := strings.Cut(k, "/")
		reserved := qualified &&
			(domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || domain == "k8s.io" ||
				strings.HasSuffix(domain, ".k8s.io"))
		switch {
		case !reserved,
			domain == "topology.kubernetes.io",
			domain == "node.kubernetes.io",
			domain == "kubelet.kubernetes.io":
			own[k] = v
		}
	}
	if len(own) == 0 {
		return nil
	}
	return own
}

// addDNS adds kube-dns, which answers on the machine's own address. This does not conflict with a resolver on the
// loopback address.
func addDNS(b *builder) {
	def := config.DefaultDNS()
	cfg := def
	b.Cluster.DNS.Settings.Over(&cfg)
	const name = "kube-dns"
	file := b.kubeconfig("dns", certs.Replica(name, b.Machine.Name))
	cfg.Kubeconfig, cfg.APIServers = credentialPath(name), b.apiServers()
	cfg.BindAddress, cfg.ClusterDomain = net.JoinHostPort(b.Machine.IP.String(), "53"), b.Cluster.Domain
	cfg.ServiceName, cfg.NodeName, cfg.NodeIP = "kube-system/"+name, b.Machine.Name, b.Machine.IP.String()
	cfg.ClusterCIDR, cfg.ServiceClusterIPRange = toStrings(b.Cluster.PodCIDRs), toStrings(b.Cluster.ServiceCIDRs)
	b.addUnit(service{
		name: name, description: "Kubernetes cluster DNS", hasWatchdog: true, canStartInParallel: true,
		health: readyURL(cfg.HealthAddress),
		exec:   append([]string{b.addDaemon(name)}, config.Args(&cfg, &def)...), reads: []string{file},
		// It learns the machine's addresses from the kernel over netlink. Requests that arrive during a restart wait in
		// its sockets, which systemd keeps.
		options: append(withAddressFamilies(dynamicUserOptions(file, "CAP_NET_BIND_SERVICE"), "AF_NETLINK"),
			"FileDescriptorStoreMax=4"),
	})
}
