// Package config defines a cluster as a configuration describes it. It has plain, complete and consistent values,
// without behaviour beyond lookups. Package block defines the syntax, package load reads it from files, and the
// packages in provision derive what is installed on machines.
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
	Version      string // always KubernetesVersion
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Domain       string // DNS domain of services, such as cluster.local
	Endpoint     string // host:port at which clients reach the API; if empty, the first control-plane machine
	// VirtualAddress is the endpoint's address if the control plane itself holds it, on one machine at a time. It is
	// invalid if the endpoint is managed elsewhere.
	VirtualAddress netip.Addr
	// ControlPlaneForm is how the control plane's daemons run: FormSystemd or FormStaticPods.
	ControlPlaneForm string
	API              API
	Etcd             Etcd
	Encryption       Encryption
	Audit            Audit
	Runtime          Runtime
	Roll             Roll
	System           System

	// The chosen settings of daemons. All others have default or computed values.
	Scheduler   daemons.Chosen[daemons.Scheduler]
	Controllers daemons.Chosen[daemons.ControllerManager]
	Kubelet     daemons.Chosen[daemons.KubeletSettings] // for all machines; Machine.Kubelet takes precedence
	Proxy       daemons.Chosen[daemons.Proxy]
	Network     daemons.Chosen[daemons.Network]
	DNS         DNS
	Ingress     *Ingress   // nil means none
	Dashboard   *Dashboard // nil means none
	GitOps      daemons.Chosen[daemons.GitOps]

	Machines  []Machine
	Inventory inventory.Inventory // of all machines, computed when a plan is made; nil before that
	// HadPools means that pools were applied before, so that an empty list must be applied as well. It is set when a
	// plan is made.
	HadPools       bool
	HadGitSources  bool // GitSources were applied before, so that their controller stays; set when a plan is made
	HasFormerUsers bool // some machines have certificates of daemons/config.HasFormerUsers; set when a plan is made
	Images         []Image
	Workloads      []Workload
	Objects        []Object // from object blocks and manifests
	Pools          []Pool   // of addresses for services of type LoadBalancer
	Moved          []Moved
	Removed        []Removed
	Imports        []Import
	Outputs        []Output

	// Deferred are the addresses of blocks that depend on values known only when a plan is made. They are not part of
	// this value yet.
	Deferred []string

	Secrets []string // sensitive values, which must not be printed
	Source  Source
}

// Forms of the control plane.
const (
	FormSystemd    = "systemd"
	FormStaticPods = "static-pods"
)

// ControlPlaneNode is the label of nodes that run a control plane of static pods. It is also the key of the taint that
// keeps other pods off them.
const ControlPlaneNode = "node-role.kubernetes.io/control-plane"

// Source is the position of a declaration.
type Source struct {
	File string
	Line int
}

// API holds the settings of API servers.
type API struct {
	MaxRequests int // concurrent read requests; zero means the API server's default
	MaxMutating int

	Authentication       string // an AuthenticationConfiguration in YAML; empty means none
	TokenWebhook         string // a kubeconfig; empty means none
	Authorization        string // an AuthorizationConfiguration in YAML; empty means Node and RBAC
	AuthorizationWebhook string // the kubeconfig that it refers to
	AdmissionPlugins     []string
	AllowedExternalIPs   []string // CIDRs or addresses used by the cluster itself that Services may use nevertheless
	Admission            string   // an AdmissionConfiguration in YAML; empty means none
}

// Etcd holds the settings of the store.
type Etcd struct {
	Members    int  // number of members, computed from the control-plane machines unless configured
	MembersSet bool // the number of members is configured

	Quota    int64     // in bytes; zero means clusterctl's default of 8 GiB
	Snapshot *Snapshot // nil means that snapshots are taken only before risky changes
}

// Snapshot configures when snapshots of the store are taken, where they are stored and how long they are kept.
type Snapshot struct {
	Schedule  Schedule
	Keep      int
	MaxAge    time.Duration // zero means that age does not matter
	Directory string
	S3        *S3Bucket
}

// S3Bucket is a bucket of an object store.
type S3Bucket struct {
	Endpoint, Bucket, Prefix, Region string
	PathStyle                        bool
	CA                               string // PEM; empty means the machine's trusted CAs
	AccessKey, SecretKey, Session    string
}

// Pool is a pool of addresses for services of type LoadBalancer.
type Pool struct {
	daemons.Pool
	Address string
	Source  Source
}

// Encryption configures how values are encrypted in the store.
type Encryption struct {
	Provider  string   // secretbox, aesgcm, aescbc or EncryptionKMS; EncryptionIdentity or empty means none
	Key       string   // name of the key, or of the KMS plugin; another name means another key
	Endpoint  string   // for KMS, unix:///PATH of the plugin's socket on control-plane machines
	Resources []string // sorted
}

// EncryptionIdentity is the provider that does not encrypt values.
const EncryptionIdentity = "identity"

// EncryptionKMS is the provider whose keys are in a KMS plugin.
const EncryptionKMS = "kms"

// IsEnabled reports whether values are encrypted.
func (e Encryption) IsEnabled() bool { return e.Provider != "" && e.Provider != EncryptionIdentity }

// Audit configures the API servers' audit logs.
type Audit struct {
	Enabled    bool
	Policy     string // an audit.k8s.io/v1 Policy in YAML; empty means the default policy
	MaxAge     int    // in days
	MaxBackups int
	MaxSize    int    // in megabytes
	Webhook    string // a kubeconfig; empty means none
}

// Runtime configures the container runtime.
type Runtime struct {
	Source string // RuntimeBundle or RuntimeDistribution
	Proxy  *Proxy // for pulling images; nil means none

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

// Proxy is the proxy for connections from machines to the internet.
type Proxy struct {
	HTTP, HTTPS string // URLs; empty means a direct connection
	NoProxy     []string
}

// DNS configures the cluster's name servers.
type DNS struct {
	Replicas int // minimum number of machines; zero means DNSReplicas
	Settings daemons.Chosen[daemons.DNS]
}

// Dashboard configures the dashboard on the control plane.
type Dashboard struct {
	Hostnames []string // names and addresses besides those of the machines
}

// Ingress configures the ingress proxy.
type Ingress struct {
	Class        string            // name of its IngressClass
	DefaultClass bool              // Ingresses without a class use it
	GatewayAPI   bool              // install the kinds of Gateway API and a GatewayClass
	NodeSelector map[string]string // labels of the nodes that it runs on; empty means all nodes
	Settings     daemons.Chosen[daemons.Ingress]
}

// HasIngress reports whether the ingress proxy runs on a machine.
func (c *Cluster) HasIngress(m Machine) bool {
	if c.Ingress == nil || !m.HasRole(RoleNode) {
		return false
	}
	for name, value := range c.Ingress.NodeSelector {
		if current, ok := m.Labels[name]; !ok || current != value {
			return false
		}
	}
	return true
}

// Ports returns the ports that the proxy listens on.
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

// DNSReplicas is the default minimum number of machines that run kube-dns.
const DNSReplicas = 2

// Roll configures rolling changes of nodes.
type Roll struct {
	// MaxUnavailable is the number of nodes at a time, or a percentage of all nodes; empty means
	// plan.DefaultMaxUnavailable.
	MaxUnavailable string
	Hold           time.Duration // how long a new release must be well; zero means ten seconds
	Timeout        time.Duration // how long a daemon may take to become ready; zero means two minutes
	OnFailure      string        // OnFailureStop or OnFailureContinue; empty means OnFailureStop
	Pause          time.Duration // pause between two machines whose daemons restart
}

// Values of OnFailure: what happens to the other nodes when one has failed.
const (
	OnFailureStop     = "stop"
	OnFailureContinue = "continue"
)

// Sources of the container runtime.
const (
	RuntimeBundle       = "bundle"
	RuntimeDistribution = "distribution"
)

// Image is an OCI archive that nodes receive without a registry.
type Image struct {
	Name      string
	Archive   string // path on this computer
	Digest    string // SHA-256 of the archive, hex
	Reference string // the reference to use in pods; it changes with the content
	Source    Source
}

// Object is an API object, decoded from JSON.
type Object struct {
	Address string // such as object.v1.ConfigMap.motd or manifests.addons[file]
	// address of the block, without the namespace, such as object.v1.ConfigMap.motd["a"] or manifests.addons
	Block     string
	DependsOn []string
	Content   map[string]any
	Source    Source

	PreventDestroy bool // the object may not be deleted or replaced
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
	Value     any // as decoded from JSON
}

// ServiceIP returns address number n of the first service network. Number 1 is the API's, and number 10 the name
// server's.
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

// ControlPlane returns the machines of the control plane, in the order of declaration.
func (c *Cluster) ControlPlane() []Machine {
	var machines []Machine
	for i := range c.Machines { // indexed, because machines are large and this is called for each of them
		if m := &c.Machines[i]; m.HasRole(RoleControlPlane) {
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

// MaxEtcdMembers is the largest number of members. More members would only make writes slower.
const MaxEtcdMembers = 7

// EtcdMembers returns the number of members for a number of control-plane machines. It is the largest odd number,
// because an even number tolerates no more failures than one member less.
func EtcdMembers(machines int) int {
	n := min(machines, MaxEtcdMembers)
	if n%2 == 0 {
		n--
	}
	return max(n, 0)
}
