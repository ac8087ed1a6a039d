package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet holds the kubelet's command line: where it finds everything, and who
// it is. Settings of behaviour are in KubeletFile.
type Kubelet struct {
	Connection
	Config               string            `flag:"config" help:"KubeletConfiguration file"`
	RootDir              string            `flag:"root-dir" help:"directory of pods' volumes and of the kubelet's state"`
	BootstrapKubeconfig  string            `flag:"bootstrap-kubeconfig" help:"with what a first client certificate is asked for, when --kubeconfig has none or one that has ended"`
	HostnameOverride     string            `flag:"hostname-override" help:"name of the node; the host name when empty"`
	NodeIP               []string          `flag:"node-ip" help:"addresses of the node; found when empty"`
	NodeLabels           map[string]string `flag:"node-labels" help:"labels to register the node with"`
	ClientCRLFile        string            `flag:"client-crl-file" help:"revocation list of client certificates, signed by the configured clientCAFile; read again when it changes"`
	AllowedUnsafeSysctls []string          `flag:"allowed-unsafe-sysctls" help:"sysctls that pods may set besides the safe ones; a * at the end stands for whatever follows"`
}

// DefaultKubelet returns the documented defaults.
func DefaultKubelet() Kubelet {
	return Kubelet{RootDir: "/var/lib/kubelet"}
}

// KubeletFile is the part of kubelet.config.k8s.io/v1beta1 KubeletConfiguration
// that this kubelet knows, in the same spelling and units.
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

	ContainerRuntimeEndpoint string   `json:"containerRuntimeEndpoint,omitempty"` // unix:///run/containerd/containerd.sock
	StaticPodPath            string   `json:"staticPodPath,omitempty"`
	PodCIDR                  string   `json:"podCIDR,omitempty"` // refused
	ClusterDNS               []string `json:"clusterDNS,omitempty"`
	ClusterDomain            string   `json:"clusterDomain,omitempty"`
	ResolverConfig           string   `json:"resolvConf,omitempty"`
	CgroupDriver             string   `json:"cgroupDriver,omitempty"` // cgroupfs or systemd
	CgroupRoot               string   `json:"cgroupRoot,omitempty"`
	MaxPods                  int      `json:"maxPods,omitempty"` // 110

	NodeStatusUpdateFrequency      metav1.Duration   `json:"nodeStatusUpdateFrequency,omitempty"`
	NodeStatusReportFrequency      metav1.Duration   `json:"nodeStatusReportFrequency,omitempty"`
	NodeLeaseDurationSeconds       int               `json:"nodeLeaseDurationSeconds,omitempty"`
	ShutdownGracePeriod            metav1.Duration   `json:"shutdownGracePeriod,omitempty"` // refused unless 0
	RegisterWithTaints             []Taint           `json:"registerWithTaints,omitempty"`
	ProtectKernelDefaults          bool              `json:"protectKernelDefaults,omitempty"` // do not start where the kernel is set otherwise; it is never changed
	SystemReserved                 map[string]string `json:"systemReserved,omitempty"`
	KubeReserved                   map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard                   map[string]string `json:"evictionHard,omitempty"`
	SerializeImagePulls            *bool             `json:"serializeImagePulls,omitempty"` // nil pulls several at once
	StreamingConnectionIdleTimeout metav1.Duration   `json:"streamingConnectionIdleTimeout,omitempty"`
	RotateCertificates             bool              `json:"rotateCertificates,omitempty"` // the kubelet asks for its next client certificate itself
	ServerTLSBootstrap             bool              `json:"serverTLSBootstrap,omitempty"` // and its serving certificate, of which somebody has to approve
	ReadOnlyPort                   int               `json:"readOnlyPort"`                 // refused unless 0
}

// KubeletAuthentication says who may call the kubelet.
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

// KubeletAuthorization says what they may do: Webhook asks the API server.
type KubeletAuthorization struct {
	Mode string `json:"mode,omitempty"`
}

// Taint is a taint to register the node with.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// DefaultKubeletFile returns the documented defaults, upstream's.
func DefaultKubeletFile() KubeletFile {
	f := KubeletFile{
		APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration",
		Address: "0.0.0.0", Port: 10250, HealthzBindAddress: "127.0.0.1", HealthzPort: 10248,
		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		ClusterDomain:            "cluster.local", ResolverConfig: "/etc/resolv.conf", CgroupDriver: "cgroupfs", MaxPods: 110,
		NodeStatusUpdateFrequency:      metav1.Duration{Duration: 10 * time.Second},
		NodeStatusReportFrequency:      metav1.Duration{Duration: 5 * time.Minute},
		NodeLeaseDurationSeconds:       40,
		EvictionHard:                   map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"},
		StreamingConnectionIdleTimeout: metav1.Duration{Duration: 4 * time.Hour},
	}
	f.Authentication.Webhook.Enabled = true
	f.Authorization.Mode = "Webhook"
	return f
}

// Proxy holds kube-proxy's command line, and Network's where the pod network
// between machines is kept by the same process's sibling daemon.
type Proxy struct {
	Connection
	HostnameOverride   string        `flag:"hostname-override" help:"name of the node; the host name when empty"`
	ProxyMode          string        `flag:"proxy-mode" help:"nftables"`
	ClusterCIDR        []string      `flag:"cluster-cidr" help:"networks of pod addresses"`
	NodePortAddresses  []string      `flag:"nodeport-addresses" help:"networks in which node ports answer; all local addresses when empty"`
	HealthzBindAddress string        `flag:"healthz-bind-address" help:"host:port of /healthz"`
	MetricsBindAddress string        `flag:"metrics-bind-address" help:"host:port of /metrics"`
	MinSyncPeriod      time.Duration `flag:"min-sync-period" help:"shortest time between two changes of the rules"`
}

// DefaultProxy returns the documented defaults.
func DefaultProxy() Proxy {
	return Proxy{ProxyMode: "nftables", HealthzBindAddress: "0.0.0.0:10256", MetricsBindAddress: "127.0.0.1:10249"}
}

// Network configures the pod network daemon: CNI configuration on this machine
// and routes to the pod networks of the others.
type Network struct {
	Connection
	HostnameOverride string   `flag:"hostname-override" help:"name of the node; the host name when empty"`
	ClusterCIDR      []string `flag:"cluster-cidr" help:"networks of pod addresses: what leaves them is masqueraded"`
	CNIConfDir       string   `flag:"cni-conf-dir" help:"directory of the CNI configuration"`
	MTU              int      `flag:"mtu" help:"largest packet between pods, bytes; that of the node's own interface when 0"`
	HealthAddress    string   `flag:"health-address" help:"host:port of health and metrics"`
	RoutesOnly       bool     `flag:"routes-only" help:"keep routes to the pods of all nodes, and no pod network here: for a machine that is no node"`
}

// DefaultNetwork returns the documented defaults.
func DefaultNetwork() Network {
	return Network{CNIConfDir: "/etc/cni/net.d", HealthAddress: "127.0.0.1:10255"}
}

// Address configures the keeper of the virtual address on a machine of the control plane.
type Address struct {
	Connection
	Address       string `flag:"address" help:"virtual address that one machine holds at a time"`
	NodeName      string `flag:"node-name" help:"name of this machine, under which it holds the lease kube-system/kube-address"`
	NodeIP        string `flag:"node-ip" help:"this machine's own address: the interface that has it gets the virtual one"`
	HealthAddress string `flag:"health-address" help:"host:port of health and metrics"`
}

// DefaultAddress returns the documented defaults.
func DefaultAddress() Address { return Address{HealthAddress: "127.0.0.1:10254"} }
