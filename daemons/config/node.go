package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Kubelet holds the kubelet's command line: paths and identity. KubeletFile holds the settings of its behaviour.
type Kubelet struct {
	Connection
	Config                        string            `flag:"config" help:"KubeletConfiguration file"`
	RootDir                       string            `flag:"root-dir" help:"directory of pods' volumes and of the kubelet's state"`
	BootstrapKubeconfig           string            `flag:"bootstrap-kubeconfig" help:"credentials that request the first client certificate, if --kubeconfig has none or an expired one"`
	HostnameOverride              string            `flag:"hostname-override" help:"name of the node; the host name when empty"`
	NodeIP                        []string          `flag:"node-ip" help:"addresses of the node; found when empty"`
	NodeLabels                    map[string]string `flag:"node-labels" help:"labels to register the node with"`
	ClientCRLFile                 string            `flag:"client-crl-file" help:"revocation list of client certificates, signed by the configured clientCAFile; read again when it changes"`
	NetworkPolicySocket           string            `flag:"network-policy-socket" help:"socket of the network daemon; containers start after it reports the pod's policies as applied; no wait when empty"`
	ImageCredentialProviderConfig string            `flag:"image-credential-provider-config" help:"CredentialProviderConfig file, which lists the plugins that provide registry credentials"`
	ImageCredentialProviderBinDir string            `flag:"image-credential-provider-bin-dir" help:"directory of the credential provider plugins"`
	AllowedUnsafeSysctls          []string          `flag:"allowed-unsafe-sysctls" setting:"allowed_unsafe_sysctls" help:"sysctls that pods may set besides the safe ones; a * at the end stands for whatever follows"`
}

// DefaultKubelet returns the documented defaults.
func DefaultKubelet() Kubelet {
	return Kubelet{RootDir: "/var/lib/kubelet"}
}

// KubeletFile is the supported part of KubeletConfiguration of kubelet.config.k8s.io/v1beta1, with the same names and
// units.
type KubeletFile struct {
	APIVersion string `json:"apiVersion"` // kubelet.config.k8s.io/v1beta1
	Kind       string `json:"kind"`       // KubeletConfiguration

	Address            string                `json:"address,omitempty"`
	Port               int                   `json:"port,omitempty"` // 10250
	HealthzBindAddress string                `json:"healthzBindAddress,omitempty"`
	HealthzPort        int                   `json:"healthzPort,omitempty"` // 10248
	TLSCertFile        string                `json:"tlsCertFile,omitempty"`
	TLSPrivateKeyFile  string                `json:"tlsPrivateKeyFile,omitempty"`
	Authentication     KubeletAuthentication `json:"authentication"`
	Authorization      KubeletAuthorization  `json:"authorization"`

	// default: unix:///run/containerd/containerd.sock
	ContainerRuntimeEndpoint string   `json:"containerRuntimeEndpoint,omitempty"`
	StaticPodPath            string   `json:"staticPodPath,omitempty"`
	PodCIDR                  string   `json:"podCIDR,omitempty" refused:"is not supported: the controller manager gives nodes their networks"`
	ClusterDNS               []string `json:"clusterDNS,omitempty"`
	ClusterDomain            string   `json:"clusterDomain,omitempty"`
	ResolverConfig           string   `json:"resolvConf" setting:"resolv_conf" help:"file of the machine with the name servers of pods that do not use the cluster's"`
	CgroupDriver             string   `json:"cgroupDriver,omitempty"` // cgroupfs
	CgroupRoot               string   `json:"cgroupRoot,omitempty" setting:"cgroup_root" help:"control group under which pods run; / when empty"`
	MaxPods                  int      `json:"maxPods,omitempty" setting:"max_pods" range:"1.." help:"largest number of pods of the node"`

	NodeStatusUpdateFrequency      metav1.Duration   `json:"nodeStatusUpdateFrequency,omitempty" setting:"node_status_update_frequency" range:"1ms.." help:"interval at which the node's status is computed"`
	NodeStatusReportFrequency      metav1.Duration   `json:"nodeStatusReportFrequency,omitempty" setting:"node_status_report_frequency" range:"1ms.." help:"interval at which the status is written although nothing has changed"`
	NodeLeaseDurationSeconds       int               `json:"nodeLeaseDurationSeconds,omitempty" setting:"node_lease_duration_seconds" range:"1.." help:"lifetime of the node's lease, seconds; the kubelet renews it four times in that time"`
	ShutdownGracePeriod            metav1.Duration   `json:"shutdownGracePeriod,omitempty" refused:"is not supported: drain the node before its machine is shut down"`
	RegisterWithTaints             []Taint           `json:"registerWithTaints,omitempty"`
	ProtectKernelDefaults          bool              `json:"protectKernelDefaults,omitempty" setting:"protect_kernel_defaults" help:"do not start if kernel settings differ from those that upstream's kubelet requires; the kubelet never changes them"`
	SystemReserved                 map[string]string `json:"systemReserved,omitempty" setting:"system_reserved" help:"resources that are reserved for the system: cpu, memory and ephemeral-storage, as { cpu = \"100m\" }"`
	KubeReserved                   map[string]string `json:"kubeReserved,omitempty" setting:"kube_reserved" help:"resources that are reserved for the daemons"`
	EvictionHard                   map[string]string `json:"evictionHard" setting:"eviction_hard" help:"free resources below which pods are evicted, as { \"memory.available\" = \"100Mi\", \"nodefs.available\" = \"10%\" }: of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available and pid.available. Signals that are left out are not monitored"`
	MergeDefaultEvictionSettings   bool              `json:"mergeDefaultEvictionSettings,omitempty" setting:"merge_default_eviction_settings" help:"signals that eviction_hard leaves out keep their default"`
	ImageGCHighThresholdPercent    int               `json:"imageGCHighThresholdPercent" setting:"image_gc_high_threshold_percent" range:"0..100" help:"disk usage, in percent, above which unused images are removed"`
	ImageGCLowThresholdPercent     int               `json:"imageGCLowThresholdPercent" setting:"image_gc_low_threshold_percent" range:"0..100" help:"disk usage, in percent, down to which unused images are removed"`
	ImageMinimumGCAge              metav1.Duration   `json:"imageMinimumGCAge,omitempty" setting:"image_minimum_gc_age" range:"0s.." help:"how long an image is unused before it may be removed"`
	ContainerLogMaxSize            string            `json:"containerLogMaxSize,omitempty" setting:"container_log_max_size" help:"size at which a container's log is rotated, as 10Mi"`
	ContainerLogMaxFiles           int               `json:"containerLogMaxFiles,omitempty" setting:"container_log_max_files" range:"2.." help:"number of logs of a container, including the current one"`
	PodPidsLimit                   int               `json:"podPidsLimit" setting:"pod_pids_limit" help:"number of processes and threads that a pod may have; -1 is the machine's limit. Running pods keep a limit that is removed"`
	SerializeImagePulls            *bool             `json:"serializeImagePulls,omitempty" setting:"serialize_image_pulls" help:"pull one image at a time"`
	StreamingConnectionIdleTimeout metav1.Duration   `json:"streamingConnectionIdleTimeout,omitempty" setting:"streaming_connection_idle_timeout" range:"0s.." help:"idle time after which exec, attach and port-forward end; 0 is never"`
	// RotateCertificates makes the kubelet request its next client certificate.
	RotateCertificates bool `json:"rotateCertificates,omitempty"`
	// ServerTLSBootstrap makes it request its serving certificate too, which must be approved.
	ServerTLSBootstrap bool `json:"serverTLSBootstrap,omitempty"`
	ReadOnlyPort       int  `json:"readOnlyPort" refused:"is not supported: everything is served at port, to who may ask"`

	SingleProcessOOMKill                   *bool           `json:"singleProcessOOMKill,omitempty" setting:"single_process_oom_kill" help:"on version 2 of control groups, kill a single process of a container that is out of memory, and not all of them; version 1 always does"`
	MemoryReservationPolicy                string          `json:"memoryReservationPolicy" setting:"memory_reservation_policy" help:"on version 2 of control groups, TieredReservation has the kernel never reclaim the memory that guaranteed pods request, and reclaim that of burstable ones last; None protects nothing"`
	MemoryThrottlingFactor                 float64         `json:"memoryThrottlingFactor,omitempty" setting:"memory_throttling_factor" range:"0..1" help:"on version 2 of control groups, throttle the memory of a container that is not guaranteed above this fraction of the range from its request to its limit, or to the node's memory, as 0.9; 0 disables it"`
	ContainerLogMonitorInterval            metav1.Duration `json:"containerLogMonitorInterval,omitempty" setting:"container_log_monitor_interval" range:"3s.." help:"interval at which the sizes of logs are checked"`
	ImagePullCredentialsVerificationPolicy string          `json:"imagePullCredentialsVerificationPolicy" setting:"image_pull_credentials_verification_policy" help:"for which images on the node a pod must prove with its pull secrets that it may pull them: NeverVerify (none), NeverVerifyPreloadedImages (those that a kubelet has pulled), NeverVerifyAllowlistedImages (all but those of preloaded_images_verification_allowlist that no kubelet has pulled) or AlwaysVerify (all)"`
	PreloadedImagesVerificationAllowlist   []string        `json:"preloadedImagesVerificationAllowlist,omitempty" setting:"preloaded_images_verification_allowlist" help:"names of images without tag and digest, as registry.example/team/web, or of all below a path, as registry.example/team/*"`
}

// Values of ImagePullCredentialsVerificationPolicy. They select the images on the node for which a pod must prove that
// it could pull them.
const (
	VerifyNone          = "NeverVerify"
	VerifyPulled        = "NeverVerifyPreloadedImages"   // only images that a kubelet has pulled
	VerifyAllButAllowed = "NeverVerifyAllowlistedImages" // also preloaded images that are not on the allow list
	VerifyAll           = "AlwaysVerify"
)

// Values of MemoryReservationPolicy.
const (
	ReserveNone   = "None"
	ReserveTiered = "TieredReservation"
)

// KubeletAuthentication configures how the kubelet authenticates requests.
type KubeletAuthentication struct {
	X509 struct {
		ClientCAFile string `json:"clientCAFile,omitempty"`
	} `json:"x509"`
	Anonymous struct {
		Enabled bool `json:"enabled"`
	} `json:"anonymous"`
	Webhook struct {
		Enabled bool `json:"enabled"`
	} `json:"webhook"`
}

// KubeletAuthorization configures how the kubelet authorizes requests. Webhook means that it asks the API server.
type KubeletAuthorization struct {
	Mode string `json:"mode,omitempty"`
}

// KubeletSettings holds all settings of a kubelet: its command line and its file.
type KubeletSettings struct {
	Kubelet
	KubeletFile
}

// problems returns nothing, because the two parts check themselves.
func (*KubeletSettings) problems() []Problem { return nil }

// DefaultKubeletSettings returns the documented defaults.
func DefaultKubeletSettings() KubeletSettings {
	return KubeletSettings{DefaultKubelet(), DefaultKubeletFile()}
}

// Taint is a taint to register the node with.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// ReadKubeletFile parses a KubeletConfiguration on top of the defaults. An unknown field is an error. The file's
// eviction thresholds replace the defaults, unless the file asks to merge them.
func ReadKubeletFile(text []byte) (KubeletFile, error) {
	file := DefaultKubeletFile()
	defaults := file.EvictionHard
	file.EvictionHard = nil
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return KubeletFile{}, err
	}
	switch {
	case file.EvictionHard == nil:
		file.EvictionHard = defaults
	case file.MergeDefaultEvictionSettings:
		maps.Copy(defaults, file.EvictionHard)
		file.EvictionHard = defaults
	}
	return file, nil
}

// DefaultKubeletFile returns the documented defaults, which are upstream's.
func DefaultKubeletFile() KubeletFile {
	f := KubeletFile{
		APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration",
		Address: "0.0.0.0", Port: 10250, HealthzBindAddress: "127.0.0.1", HealthzPort: 10248,
		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		ClusterDomain:            "cluster.local", ResolverConfig: "/etc/resolv.conf", CgroupDriver: "cgroupfs",
		MaxPods:                   110,
		NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second},
		NodeStatusReportFrequency: metav1.Duration{Duration: 5 * time.Minute},
		NodeLeaseDurationSeconds:  40,
		EvictionHard: map[string]string{
			"memory.available":  "100Mi",
			"nodefs.available":  "10%",
			"nodefs.inodesFree": "5%",
			"imagefs.available": "15%",
		},
		ImageGCHighThresholdPercent: 85, ImageGCLowThresholdPercent: 80,
		ImageMinimumGCAge:   metav1.Duration{Duration: 2 * time.Minute},
		ContainerLogMaxSize: "10Mi", ContainerLogMaxFiles: 5, PodPidsLimit: -1,
		ImagePullCredentialsVerificationPolicy: VerifyPulled, MemoryReservationPolicy: ReserveNone,
		ContainerLogMonitorInterval:    metav1.Duration{Duration: 10 * time.Second},
		StreamingConnectionIdleTimeout: metav1.Duration{Duration: 4 * time.Hour},
	}
	f.Authentication.Webhook.Enabled = true
	f.Authorization.Mode = "Webhook"
	return f
}

// Proxy configures kube-proxy.
type Proxy struct {
	Connection
	HostnameOverride   string        `flag:"hostname-override" help:"name of the node; the host name when empty"`
	ProxyMode          string        `flag:"proxy-mode" setting:"mode" help:"how packets reach services: nftables (a random endpoint, at the same cost for any number of services), iptables (a random endpoint, by rules that are evaluated one after the other) or userspace (endpoints in turn, by the proxy itself, whose address endpoints see). A change keeps connections of nftables and iptables"`
	ClusterCIDR        []string      `flag:"cluster-cidr" help:"networks of pod addresses"`
	NodePortAddresses  []string      `flag:"nodeport-addresses" setting:"node_port_addresses" help:"networks whose addresses serve node ports; all local addresses when empty"`
	HealthzBindAddress string        `flag:"healthz-bind-address" setting:"healthz_bind_address" help:"host:port of /healthz"`
	MetricsBindAddress string        `flag:"metrics-bind-address" setting:"metrics_bind_address" help:"host:port of /metrics"`
	MinSyncPeriod      time.Duration `flag:"min-sync-period" setting:"min_sync_period" range:"0s..1h" help:"shortest time between two changes of the rules"`

	ConntrackMaxPerCore     int           `flag:"conntrack-max-per-core" setting:"conntrack_max_per_core" range:"0..1048576" help:"connections that the kernel tracks for each processor; 0 keeps the kernel's setting. A larger limit is not lowered"`
	ConntrackMin            int           `flag:"conntrack-min" setting:"conntrack_min" range:"0..67108864" help:"connections that the kernel tracks at least, with any number of processors"`
	ConntrackTCPEstablished time.Duration `flag:"conntrack-tcp-timeout-established" setting:"conntrack_tcp_timeout_established" range:"0s..8760h" help:"how long an idle TCP connection is tracked; 0 keeps the kernel's setting"`
	ConntrackTCPCloseWait   time.Duration `flag:"conntrack-tcp-timeout-close-wait" setting:"conntrack_tcp_timeout_close_wait" range:"0s..8760h" help:"how long a TCP connection is tracked that one end has closed; 0 keeps the kernel's setting"`
	ConntrackTCPBeLiberal   bool          `flag:"conntrack-tcp-be-liberal" setting:"conntrack_tcp_be_liberal" help:"treat packets outside of the window as part of their TCP connection"`
	ConntrackUDP            time.Duration `flag:"conntrack-udp-timeout" setting:"conntrack_udp_timeout" range:"0s..8760h" help:"how long UDP packets in one direction are tracked; 0 keeps the kernel's setting"`
	ConntrackUDPStream      time.Duration `flag:"conntrack-udp-timeout-stream" setting:"conntrack_udp_timeout_stream" range:"0s..8760h" help:"how long UDP packets in both directions are tracked; 0 keeps the kernel's setting"`
}

// DefaultProxy returns the documented defaults.
func DefaultProxy() Proxy {
	return Proxy{
		ProxyMode: "nftables", HealthzBindAddress: "0.0.0.0:10256", MetricsBindAddress: "127.0.0.1:10249",
		ConntrackMaxPerCore: 32768, ConntrackMin: 131072, ConntrackTCPEstablished: 24 * time.Hour,
		ConntrackTCPCloseWait: time.Hour,
	}
}

// Network configures the pod network daemon: the CNI configuration of this machine, and the routes to other machines'
// pods.
type Network struct {
	Connection
	HostnameOverride string   `flag:"hostname-override" help:"name of the node; the host name when empty"`
	ClusterCIDR      []string `flag:"cluster-cidr" help:"networks of pod addresses; packets that leave them are masqueraded"`
	CNIConfDir       string   `flag:"cni-conf-dir" help:"directory of the CNI configuration"`
	MTU              int      `flag:"mtu" setting:"mtu" range:"0|576..65535" help:"MTU of pods, bytes; 0 uses that of the node's interface. Running pods keep theirs"`
	Exceptions       []string `flag:"masquerade-exceptions" setting:"masquerade_exceptions" help:"networks, besides those of pods, that pods reach without masquerading"`
	VXLANID          int      `flag:"vxlan-id" setting:"vxlan_id" range:"1..16777215" help:"VXLAN network identifier of the overlay to nodes behind a router"`
	VXLANPort        int      `flag:"vxlan-port" setting:"vxlan_port" range:"1..65535" help:"UDP port of the overlay"`
	HealthAddress    string   `flag:"health-address" setting:"health_address" help:"host:port of health and metrics"`
	NodeKubeconfig   string   `flag:"node-kubeconfig" help:"kubeconfig of this machine's node, which is used to watch its pods; the daemon's own when empty"`
	PolicySocket     string   `flag:"policy-socket" help:"socket at which the kubelet asks, before a pod's containers start, whether its network policies are applied"`
	RoutesOnly       bool     `flag:"routes-only" help:"keep routes to the pods of all nodes, and no pod network here: for a machine that is not a node"`
}

// DefaultNetwork returns the documented defaults.
func DefaultNetwork() Network {
	return Network{
		CNIConfDir:    "/etc/cni/net.d",
		VXLANID:       4096,
		VXLANPort:     4789,
		HealthAddress: "127.0.0.1:10255",
		PolicySocket:  "/run/clusterctl/network.sock",
	}
}

// Address configures the daemon that manages the virtual address on a machine of the control plane.
type Address struct {
	Connection
	Address       string `flag:"address" help:"virtual address that one machine holds at a time"`
	NodeName      string `flag:"node-name" help:"name of this machine, under which it holds the lease kube-system/kube-address"`
	NodeIP        string `flag:"node-ip" help:"this machine's own address: the interface that has it gets the virtual one"`
	HealthAddress string `flag:"health-address" help:"host:port of health and metrics"`
}

// DefaultAddress returns the documented defaults.
func DefaultAddress() Address { return Address{HealthAddress: "127.0.0.1:10254"} }
