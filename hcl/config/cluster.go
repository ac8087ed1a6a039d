// Package config is the typed description of a cluster that a configuration
// says: plain values, complete and consistent, without behaviour beyond looking
// things up. How they are written is hcl/block's, how they are read from files
// hcl/load's, and what follows from them for machines provision's.
package config

import (
	"net"
	"net/netip"
	"strconv"
	"time"

	daemons "clusterctl/daemons/config"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/version"
)

// KubernetesVersion is the version of Kubernetes whose API this release serves.
const KubernetesVersion = version.Kubernetes

// Cluster is everything that a configuration declares.
type Cluster struct {
	Name         string
	Version      string // KubernetesVersion
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Domain       string // of service names, cluster.local
	Endpoint     string // host:port at which clients reach the API; the first control-plane machine when empty
	// VirtualAddress is the endpoint's when the control plane itself holds it: one
	// machine at a time. It is not valid when the endpoint is somebody else's.
	VirtualAddress netip.Addr
	// ControlPlaneForm is how the control plane's programs run: FormSystemd or FormStaticPods.
	ControlPlaneForm string
	API              API
	Etcd             Etcd
	Encryption       Encryption
	Audit            Audit
	Runtime          Runtime
	Roll             Roll
	System           System

	// What is chosen of daemons' settings; everything else is as by default, or worked out.
	Scheduler   daemons.Chosen[daemons.Scheduler]
	Controllers daemons.Chosen[daemons.ControllerManager]
	Kubelet     daemons.Chosen[daemons.KubeletSettings] // of all machines; Machine.Kubelet goes before it
	Proxy       daemons.Chosen[daemons.Proxy]
	Network     daemons.Chosen[daemons.Network]
	DNS         DNS
	Ingress     *Ingress // nil: none

	Machines  []Machine
	Inventory inventory.Inventory // of all machines, worked out when a plan is made; nil when there is no such
	// pools were applied once, worked out when a plan is made: that there are none now has to be said
	HadPools    bool
	FormerUsers bool // machines have certificates of daemons/config.FormerUsers, set when a plan is made
	Images      []Image
	Workloads   []Workload
	Objects     []Object // from object blocks and from manifests
	Pools       []Pool   // of addresses for services of type LoadBalancer
	Moved       []Moved
	Removed     []Removed
	Imports     []Import
	Outputs     []Output

	// Deferred are addresses of blocks that refer to what is known only when a plan is made, and are not here yet.
	Deferred []string

	Secrets []string // values of sensitive variables: never printed
	Source  Source
}

// Forms of the control plane.
const (
	FormSystemd    = "systemd"
	FormStaticPods = "static-pods"
)

// ControlPlaneNode is the label of nodes that run a control plane of static pods, and the
// key of the taint that keeps other pods from them.
const ControlPlaneNode = "node-role.kubernetes.io/control-plane"

// Source is where something is declared.
type Source struct {
	File string
	Line int
}

// API says how API servers answer.
type API struct {
	MaxRequests int // that only read, at once; zero means the API server's default
	MaxMutating int

	Authentication       string // an AuthenticationConfiguration, YAML; empty means none
	TokenWebhook         string // a kubeconfig; empty means none
	Authorization        string // an AuthorizationConfiguration; empty means Node and RBAC
	AuthorizationWebhook string // the kubeconfig that it names
	AdmissionPlugins     []string
	AllowedExternalIPs   []string // CIDRs or addresses that Services may use although the cluster itself uses them
	Admission            string   // an AdmissionConfiguration, YAML; empty means none
}

// Etcd is what the cluster block says of the store.
type Etcd struct {
	Members int  // worked out from the control-plane machines when not said
	Said    bool // whether the configuration says how many members there are

	Quota    int64     // bytes; zero means etcd's default here, 8 GiB
	Snapshot *Snapshot // nil: none is taken but before risky changes
}

// Snapshot is when snapshots of the store are taken, where they go and how long they stay.
type Snapshot struct {
	Schedule  Schedule
	Keep      int
	MaxAge    time.Duration // zero: age does not matter
	Directory string
	S3        *S3
}

// S3 is a bucket of an object store.
type S3 struct {
	Endpoint, Bucket, Prefix, Region string
	PathStyle                        bool
	CA                               string // PEM; empty means what the machine trusts
	AccessKey, SecretKey, Session    string
}

// Pool is addresses that services of type LoadBalancer get.
type Pool struct {
	daemons.Pool
	Address string
	Source  Source
}

// Encryption says how values are encrypted in the store.
type Encryption struct {
	Provider  string   // secretbox, aesgcm, aescbc or EncryptionKMS; EncryptionIdentity or empty for none
	Key       string   // name of the key, of KMS that of the plugin; another name is another key
	Endpoint  string   // of KMS: unix:///PATH of the plugin's socket on machines of the control plane
	Resources []string // sorted
}

// EncryptionIdentity is the provider that stores values as they are.
const EncryptionIdentity = "identity"

// EncryptionKMS is the provider whose keys a KMS plugin keeps.
const EncryptionKMS = "kms"

// On says whether anything is encrypted.
func (e Encryption) On() bool { return e.Provider != "" && e.Provider != EncryptionIdentity }

// Audit says what API servers keep about requests.
type Audit struct {
	Enabled    bool
	Policy     string // of audit.k8s.io/v1, YAML; empty means the default one
	MaxAge     int    // days
	MaxBackups int
	MaxSize    int    // megabytes
	Webhook    string // a kubeconfig; empty means none
}

// Runtime says where the container runtime comes from.
type Runtime struct {
	Source string // RuntimeBundle or RuntimeDistribution
	Proxy  *Proxy // through which images are pulled; nil means none

	Registries  []Registry
	Credentials []CredentialProvider
}

// AnyRegistry is the host of the entry that applies to all registries without an entry of their own.
const AnyRegistry = "*"

// Registry describes how to reach an image registry.
type Registry struct {
	Host       string   // host or host:port, or AnyRegistry
	Mirrors    []string // URLs, tried in order before the registry itself
	PlainHTTP  bool     // use HTTP without TLS
	SkipVerify bool     // do not verify the server certificate
	CA         string   // PEM of the CAs of the server certificate; empty means the machine's trust store
	ClientCert string   // PEM of the client certificate; empty means none
	ClientKey  string
	Username   string // empty means no authentication
	Password   string
}

// CredentialProvider is a program on the machines that returns registry credentials to the kubelet.
type CredentialProvider struct {
	Name     string
	Program  string // absolute path on the machines
	Version  string // version of the credentialprovider.kubelet.k8s.io API
	Images   []string
	CacheFor time.Duration
	Args     []string
	Env      map[string]string
}

// Proxy is how programs on the machines reach the internet.
type Proxy struct {
	HTTP, HTTPS string // URLs; empty means directly
	NoProxy     []string
}

// DNS says who answers for the cluster's names.
type DNS struct {
	Replicas int // machines, at least; zero means DNSReplicas
	Settings daemons.Chosen[daemons.DNS]
}

// Ingress is the proxy that Ingresses set up.
type Ingress struct {
	Class        string            // the name of its IngressClass
	DefaultClass bool              // Ingresses that name no class are for it
	GatewayAPI   bool              // the kinds of Gateway API are installed, with a GatewayClass
	NodeSelector map[string]string // labels of the nodes that it runs on; none: all nodes
	Settings     daemons.Chosen[daemons.Ingress]
}

// HasIngress reports whether the proxy runs on a machine.
func (c *Cluster) HasIngress(m Machine) bool {
	if c.Ingress == nil || !m.Has(RoleNode) {
		return false
	}
	for name, value := range c.Ingress.NodeSelector {
		if is, there := m.Labels[name]; !there || is != value {
			return false
		}
	}
	return true
}

// Ports are those that the proxy listens on.
func (i *Ingress) Ports() []int {
	cfg := daemons.DefaultIngress()
	i.Settings.Over(&cfg)
	list := []int{cfg.HTTPPort, cfg.HTTPSPort}
	if _, port, err := net.SplitHostPort(cfg.HealthAddress); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// DNSReplicas is how many machines answer for the cluster's names when the control plane alone has fewer.
const DNSReplicas = 2

// Roll says how changes go over the nodes.
type Roll struct {
	// nodes at a time: a number, or a share of all as 10%; empty means plan.DefaultMaxUnavailable
	MaxUnavailable string
	Hold           time.Duration // that a new release has to be well; zero means ten seconds
	Timeout        time.Duration // that a daemon has to start, and to be ready; zero means two minutes
	OnFailure      string        // OnFailureStop when empty
	Pause          time.Duration // between one machine and the next whose daemons restart
}

// What becomes of the other nodes when one has failed.
const (
	OnFailureStop     = "stop"
	OnFailureContinue = "continue"
)

// Sources of the container runtime.
const (
	RuntimeBundle       = "bundle"
	RuntimeDistribution = "distribution"
)

// Image is an OCI archive that nodes get without a registry.
type Image struct {
	Name      string
	Archive   string // path on this machine
	Digest    string // sha256 of the archive, hex
	Reference string // what pods write; it changes with the content
	Source    Source
}

// Object is an API object, as in JSON.
type Object struct {
	Address   string // object.v1.ConfigMap.motd or manifests.addons[file]
	Block     string // address of the block, without the namespace: object.v1.ConfigMap.motd["a"], manifests.addons
	DependsOn []string
	Content   map[string]any
	Source    Source

	PreventDestroy bool // it is neither removed nor replaced
	Ignored        Ignored
}

// Ignored lists the fields that apply leaves unchanged in an object that already exists.
type Ignored struct {
	All    bool
	Fields [][]string // paths of field names, map keys and names of list elements
}

// Output is a value that a run prints.
type Output struct {
	Name      string
	Sensitive bool
	Value     any // as in JSON
}

// ServiceIP returns the address number n of the first service network: 1 is the
// API's, 10 the name server's.
func (c *Cluster) ServiceIP(n int) netip.Addr {
	if len(c.ServiceCIDRs) == 0 {
		return netip.Addr{}
	}
	addr := c.ServiceCIDRs[0].Masked().Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}

// ControlPlane returns the machines that run the control plane, in the order of declaration.
func (c *Cluster) ControlPlane() []Machine {
	var machines []Machine
	for i := range c.Machines { // asked once per machine, of large values
		if m := &c.Machines[i]; m.Has(RoleControlPlane) {
			machines = append(machines, *m)
		}
	}
	return machines
}

// Machine returns the machine with an address such as machine.web["a"].
func (c *Cluster) Machine(address string) (Machine, bool) {
	for _, m := range c.Machines {
		if m.Address == address {
			return m, true
		}
	}
	return Machine{}, false
}

// MaxEtcdMembers is the size beyond which more members only make writes slower.
const MaxEtcdMembers = 7

// EtcdMembers returns the number of members for so many control-plane machines:
// the largest odd one, since an even one survives no more losses than one less.
func EtcdMembers(machines int) int {
	n := min(machines, MaxEtcdMembers)
	if n%2 == 0 {
		n--
	}
	return max(n, 0)
}
