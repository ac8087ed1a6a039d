package config

import (
	"maps"
	"slices"
	"time"
)

// Etcd configures one member of the store. Its main is cmd/etcd.
type Etcd struct {
	Name                     string   `flag:"name" help:"name of this member"`
	DataDir                  string   `flag:"data-dir" help:"directory of the data"`
	ListenClientURLs         []string `flag:"listen-client-urls" help:"URLs to serve clients on"`
	AdvertiseClientURLs      []string `flag:"advertise-client-urls" help:"URLs at which clients reach this member"`
	ListenPeerURLs           []string `flag:"listen-peer-urls" help:"URLs to serve the other members on"`
	InitialAdvertisePeerURLs []string `flag:"initial-advertise-peer-urls" help:"URLs at which the other members reach this one"`
	InitialCluster           string   `flag:"initial-cluster" help:"first members, as name=url,…"`
	InitialClusterState      string   `flag:"initial-cluster-state" help:"new, or existing to join as the member that was added for this name"`
	InitialClusterFile       string   `flag:"initial-cluster-file" help:"file with the members of the cluster that this member joins, as name=url,…; if the file exists, it replaces initial-cluster"`
	InitialClusterToken      string   `flag:"initial-cluster-token" help:"name that distinguishes clusters"`
	CertFile                 string   `flag:"cert-file" help:"server certificate"`
	KeyFile                  string   `flag:"key-file" help:"server key"`
	TrustedCAFile            string   `flag:"trusted-ca-file" help:"CA of clients"`
	ClientCertAuth           bool     `flag:"client-cert-auth" help:"demand a certificate of clients"`
	ClientCertAllowedCNs     []string `flag:"client-cert-allowed-cn" help:"common names of clients that are accepted; every client with a certificate of the CA when empty"`
	PeerCertFile             string   `flag:"peer-cert-file" help:"certificate towards other members"`
	PeerKeyFile              string   `flag:"peer-key-file" help:"key towards other members"`
	ClientCRLFile            string   `flag:"client-crl-file" help:"revocation list of clients, DER; checked for every connection"`
	PeerCRLFile              string   `flag:"peer-crl-file" help:"revocation list of other members, DER"`
	PeerTrustedCAFile        string   `flag:"peer-trusted-ca-file" help:"CA of other members"`
	PeerClientCertAuth       bool     `flag:"peer-client-cert-auth" help:"demand a certificate of other members"`
	PeerCertAllowedHostnames []string `flag:"peer-cert-allowed-hostname" help:"names of which another member's certificate must have one; any when empty"`
	ListenMetricsURLs        []string `flag:"listen-metrics-urls" help:"URLs to serve /metrics and /health on"`
	QuotaBackendBytes        int      `flag:"quota-backend-bytes" help:"size at which the store refuses writes, bytes; 0 means 8 GiB"`
	HeartbeatInterval        int      `flag:"heartbeat-interval" help:"interval of the leader's heartbeats, milliseconds; 0 means 100"`
	ElectionTimeout          int      `flag:"election-timeout" help:"silence of the leader after which a member stands for election, milliseconds; 0 means 1000"`
	UnsafeNoFsync            bool     `flag:"unsafe-no-fsync" help:"do not wait for the disk (development only)"`
}

// APIServer configures kube-apiserver.
type APIServer struct {
	AdvertiseAddress                     string        `flag:"advertise-address" help:"address at which the members of the cluster reach this server"`
	BindAddress                          string        `flag:"bind-address" help:"address to serve on"`
	SecurePort                           int           `flag:"secure-port" help:"port to serve on; 0 takes a free one"`
	HealthzBindAddress                   string        `flag:"healthz-bind-address" help:"host:port that serves /livez, /readyz and /healthz without authentication, for the probes of a static pod; none when empty"`
	TLSCertFile                          string        `flag:"tls-cert-file" help:"server certificate"`
	TLSPrivateKeyFile                    string        `flag:"tls-private-key-file" help:"server key"`
	ClientCAFile                         string        `flag:"client-ca-file" help:"CA of client certificates"`
	ClientCRLFile                        string        `flag:"client-crl-file" help:"revocation list of client certificates, signed by --client-ca-file, and of --requestheader-client-ca-file's; read again when it changes"`
	EtcdServers                          []string      `flag:"etcd-servers" help:"URLs of the store's members"`
	EtcdCAFile                           string        `flag:"etcd-cafile" help:"CA of the store"`
	EtcdCertFile                         string        `flag:"etcd-certfile" help:"client certificate towards the store"`
	EtcdKeyFile                          string        `flag:"etcd-keyfile" help:"client key towards the store"`
	EtcdPrefix                           string        `flag:"etcd-prefix" help:"prefix of all keys"`
	EncryptionProviderConfig             string        `flag:"encryption-provider-config" help:"EncryptionConfiguration: how resources are encrypted in the store; read again when it changes"`
	KubeletCertificateAuthority          string        `flag:"kubelet-certificate-authority" help:"CA of kubelets' serving certificates"`
	KubeletClientCertificate             string        `flag:"kubelet-client-certificate" help:"client certificate towards kubelets"`
	KubeletClientKey                     string        `flag:"kubelet-client-key" help:"client key towards kubelets"`
	ServiceAccountIssuer                 string        `flag:"service-account-issuer" help:"issuer of service-account tokens"`
	ServiceAccountKeyFiles               []string      `flag:"service-account-key-file" help:"public keys that tokens are verified with"`
	ServiceAccountSigningKeyFile         string        `flag:"service-account-signing-key-file" help:"private key that tokens are signed with"`
	ServiceAccountExtendTokenExpiration  bool          `written:"always" flag:"service-account-extend-token-expiration" help:"let tokens of pods live for a year; only false is supported, because kubelets renew tokens in time"`
	APIAudiences                         []string      `flag:"api-audiences" help:"audiences of tokens for this server; the issuer when empty"`
	EnableBootstrapTokenAuth             bool          `flag:"enable-bootstrap-token-auth" help:"accept bootstrap tokens, which are secrets of kube-system"`
	AuthenticationConfig                 string        `flag:"authentication-config" help:"AuthenticationConfiguration: further issuers of tokens, and paths that are served without credentials"`
	AuthenticationTokenWebhookConfigFile string        `flag:"authentication-token-webhook-config-file" help:"kubeconfig of a webhook that authenticates tokens which no other authenticator knows"`
	AuthenticationTokenWebhookCacheTTL   time.Duration `flag:"authentication-token-webhook-cache-ttl" help:"how long its responses are cached"`
	RequestheaderClientCAFile            string        `flag:"requestheader-client-ca-file" help:"CA of front proxies"`
	RequestheaderAllowedNames            []string      `flag:"requestheader-allowed-names" help:"common names of front proxies"`
	ProxyClientCertFile                  string        `flag:"proxy-client-cert-file" help:"client certificate towards aggregated servers"`
	ProxyClientKeyFile                   string        `flag:"proxy-client-key-file" help:"client key towards aggregated servers"`
	AuthorizationMode                    []string      `written:"always" flag:"authorization-mode" help:"authorizers in order: Node, RBAC, AlwaysAllow"`
	AuthorizationConfig                  string        `flag:"authorization-config" help:"AuthorizationConfiguration: authorizers in order, including webhooks; replaces --authorization-mode"`
	EnableAdmissionPlugins               []string      `written:"always" flag:"enable-admission-plugins" help:"admission plugins besides the default ones"`
	RestrictedExternalIPs                []string      `flag:"restricted-external-ips" help:"networks and addresses that Services cannot use as external IPs, in addition to the cluster's own"`
	AllowedExternalIPs                   []string      `flag:"allowed-external-ips" help:"networks and addresses of the cluster that Services can use as external IPs"`
	AdmissionControlConfigFile           string        `flag:"admission-control-config-file" help:"AdmissionConfiguration of apiserver.config.k8s.io/v1: the levels and exemptions of PodSecurity"`
	AuditPolicyFile                      string        `flag:"audit-policy-file" help:"Policy of audit.k8s.io/v1: what is recorded about which requests"`
	AuditLogPath                         string        `flag:"audit-log-path" help:"file of audit events, one JSON object a line; - is standard output"`
	AuditLogMaxAge                       int           `flag:"audit-log-maxage" help:"days for which rotated audit logs are kept; 0 keeps them for ever"`
	AuditLogMaxBackup                    int           `flag:"audit-log-maxbackup" help:"number of rotated audit logs that are kept; 0 keeps all"`
	AuditLogMaxSize                      int           `flag:"audit-log-maxsize" help:"size at which the audit log is rotated, megabytes; 0: 100"`
	AuditWebhookConfigFile               string        `flag:"audit-webhook-config-file" help:"kubeconfig of a webhook that receives audit events"`
	AuditWebhookBatchBufferSize          int           `flag:"audit-webhook-batch-buffer-size" help:"audit events that may wait to be sent; further events are dropped and counted"`
	AuditWebhookBatchMaxSize             int           `flag:"audit-webhook-batch-max-size" help:"audit events in one request"`
	AuditWebhookBatchMaxWait             time.Duration `flag:"audit-webhook-batch-max-wait" help:"how long audit events are collected before they are sent"`
	AuditWebhookInitialBackoff           time.Duration `flag:"audit-webhook-initial-backoff" help:"first back-off before audit events are sent again; it doubles"`
	AnonymousAuth                        bool          `flag:"anonymous-auth" help:"accept requests without credentials as system:anonymous (health paths only)"`
	ServiceClusterIPRange                []string      `flag:"service-cluster-ip-range" help:"networks of service addresses"`
	ServiceNodePortRange                 string        `flag:"service-node-port-range" help:"range of node ports"`
	EnablePriorityAndFairness            bool          `flag:"enable-priority-and-fairness" help:"divide the server's capacity by FlowSchemas and PriorityLevelConfigurations"`
	MaxRequestsInflight                  int           `flag:"max-requests-inflight" help:"reading requests that are processed at a time; with priority and fairness, the sum of both limits counts"`
	MaxMutatingRequestsInflight          int           `flag:"max-mutating-requests-inflight" help:"writing requests that are processed at a time"`
	RequestTimeout                       time.Duration `flag:"request-timeout" help:"timeout of requests other than watches"`
	EventTTL                             time.Duration `flag:"event-ttl" help:"how long events are kept"`
	Profiling                            bool          `written:"always" flag:"profiling" help:"serve /debug/pprof to administrators"`
}

// OptionalAdmissionPlugins are the admission plugins that --enable-admission-plugins can enable.
var OptionalAdmissionPlugins = []string{"DenyServiceExternalIPs", "OwnerReferencesPermissionEnforcement"}

// DefaultAPIServer returns the documented defaults.
func DefaultAPIServer() APIServer {
	return APIServer{
		BindAddress: "0.0.0.0", SecurePort: 6443, EtcdPrefix: "/registry",
		ServiceAccountIssuer:     "https://kubernetes.default.svc.cluster.local",
		AuthorizationMode:        []string{"Node", "RBAC"},
		EnableBootstrapTokenAuth: true, AuthenticationTokenWebhookCacheTTL: 2 * time.Minute,
		AuditWebhookBatchBufferSize: 10000, AuditWebhookBatchMaxSize: 400, AuditWebhookBatchMaxWait: 30 * time.Second,
		AuditWebhookInitialBackoff: 10 * time.Second,
		AnonymousAuth:              true, Profiling: false, EnableAdmissionPlugins: []string{"NodeRestriction"},
		ServiceClusterIPRange: []string{"10.96.0.0/12"}, ServiceNodePortRange: "30000-32767",
		EnablePriorityAndFairness: true, MaxRequestsInflight: 400, MaxMutatingRequestsInflight: 200,
		RequestTimeout: time.Minute, EventTTL: time.Hour,
	}
}

// Connection configures how a daemon reaches the API.
type Connection struct {
	Kubeconfig string   `flag:"kubeconfig" help:"credentials and CA towards the API server"`
	APIServers []string `flag:"api-servers" help:"host:port of every API server, tried in turn; the kubeconfig's server when empty"`
}

// Serving configures where a daemon serves /livez, /readyz and /metrics over TLS.
type Serving struct {
	BindAddress       string `written:"always" flag:"bind-address" setting:"bind_address" help:"address to serve health and metrics on"`
	SecurePort        int    `flag:"secure-port" help:"port to serve health and metrics on; 0 serves nothing"`
	TLSCertFile       string `flag:"tls-cert-file" help:"server certificate; a self-signed one when empty"`
	TLSPrivateKeyFile string `flag:"tls-private-key-file" help:"server key"`
	ClientCAFile      string `flag:"client-ca-file" help:"CA of clients that may read /metrics; every client when empty"`
	ClientCRLFile     string `flag:"client-crl-file" help:"revocation list of clients, signed by --client-ca-file; read again when it changes"`
}

// Scheduler configures kube-scheduler.
type Scheduler struct {
	Connection
	Serving
	LeaderElect bool   `flag:"leader-elect" help:"be active only while holding the lease kube-system/kube-scheduler"`
	Profiling   bool   `written:"always" flag:"profiling" setting:"profiling" help:"serve /debug/pprof"`
	Config      string `flag:"config" setting:"config" doc:"a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, as in file(\"scheduler.yaml\"): profiles, their plugins and arguments, and how long pods wait" help:"file with a KubeSchedulerConfiguration: profiles, their plugins and arguments"`
}

// DefaultScheduler returns the documented defaults.
func DefaultScheduler() Scheduler {
	return Scheduler{Serving: Serving{BindAddress: "127.0.0.1", SecurePort: 10259}, LeaderElect: true}
}

// ControllerManager configures kube-controller-manager.
type ControllerManager struct {
	Connection
	Serving
	LeaderElect                  bool          `flag:"leader-elect" help:"be active only while holding the lease kube-system/kube-controller-manager"`
	Profiling                    bool          `written:"always" flag:"profiling" setting:"profiling" help:"serve /debug/pprof"`
	Controllers                  []string      `flag:"controllers" setting:"controllers" help:"controllers to run: * for all, NAME, or -NAME for all but that one"`
	ClusterCIDR                  []string      `flag:"cluster-cidr" help:"networks of pod addresses"`
	AllocateNodeCIDRs            bool          `flag:"allocate-node-cidrs" help:"assign every node a subnet of --cluster-cidr"`
	NodeCIDRMaskSize             int           `flag:"node-cidr-mask-size" setting:"node_cidr_mask_size" range:"8..32" fixed:"nodes have pieces of this size, and a piece of another size would have addresses of theirs" help:"prefix length of a node's IPv4 pod subnet"`
	NodeCIDRMaskSizeIPv6         int           `flag:"node-cidr-mask-size-ipv6" setting:"node_cidr_mask_size_ipv6" range:"48..124" fixed:"nodes have pieces of this size, and a piece of another size would have addresses of theirs" help:"prefix length of a node's IPv6 pod subnet"`
	NodeMonitorPeriod            time.Duration `flag:"node-monitor-period" setting:"node_monitor_period" range:"1ms.." help:"interval at which the health of nodes is checked"`
	NodeMonitorGracePeriod       time.Duration `flag:"node-monitor-grace-period" setting:"node_monitor_grace_period" range:"1ms.." help:"silence after which a node's Ready becomes Unknown"`
	NodeStartupGracePeriod       time.Duration `flag:"node-startup-grace-period" setting:"node_startup_grace_period" range:"1ms.." help:"the same for a node that has not reported its status yet"`
	NodeEvictionRate             float64       `flag:"node-eviction-rate" setting:"node_eviction_rate" range:"0.." help:"rate at which lost nodes of a zone are tainted so that their pods move, nodes per second"`
	SecondaryNodeEvictionRate    float64       `flag:"secondary-node-eviction-rate" setting:"secondary_node_eviction_rate" range:"0.." help:"the same in a large zone of which a large part is lost; in a small zone, no node is tainted then"`
	UnhealthyZoneThreshold       float64       `flag:"unhealthy-zone-threshold" setting:"unhealthy_zone_threshold" range:"0..1" help:"fraction of lost nodes from which on a large part of a zone counts as lost"`
	LargeClusterSizeThreshold    int           `flag:"large-cluster-size-threshold" setting:"large_cluster_size_threshold" range:"0.." help:"number of nodes above which a zone is large"`
	RootCAFile                   string        `flag:"root-ca-file" help:"CA bundle published in every namespace as kube-root-ca.crt"`
	ServiceAccountPrivateKeyFile string        `flag:"service-account-private-key-file" help:"key that legacy token secrets are signed with"`
	ClusterSigningCertFile       string        `flag:"cluster-signing-cert-file" help:"CA that approved certificate requests are signed with"`
	ClusterSigningKeyFile        string        `flag:"cluster-signing-key-file" help:"its key"`
	ClusterSigningDuration       time.Duration `flag:"cluster-signing-duration" setting:"cluster_signing_duration" range:"10m..87600h" help:"longest lifetime of certificates that are issued for requests; a request may ask for less"`
	UseServiceAccountCredentials bool          `written:"always" flag:"use-service-account-credentials" setting:"use_service_account_credentials" help:"run each controller as a service account of kube-system, limited to its role system:controller:NAME; false runs all controllers as the user system:kube-controller-manager, to whom the same roles are bound"`
	TerminatedPodGCThreshold     int           `written:"always" flag:"terminated-pod-gc-threshold" setting:"terminated_pod_gc_threshold" help:"number of finished pods that are kept"`

	HorizontalPodAutoscalerSyncPeriod              time.Duration `flag:"horizontal-pod-autoscaler-sync-period" setting:"horizontal_pod_autoscaler_sync_period" range:"1ms.." help:"interval at which each HorizontalPodAutoscaler is evaluated"`
	HorizontalPodAutoscalerDownscaleStabilization  time.Duration `flag:"horizontal-pod-autoscaler-downscale-stabilization" setting:"horizontal_pod_autoscaler_downscale_stabilization" range:"0s..1h" help:"stabilization window for scaling down, for autoscalers without a behavior"`
	HorizontalPodAutoscalerTolerance               float64       `flag:"horizontal-pod-autoscaler-tolerance" setting:"horizontal_pod_autoscaler_tolerance" range:"0.." help:"deviation of the ratio of usage to target from 1 that causes no scaling"`
	HorizontalPodAutoscalerCPUInitializationPeriod time.Duration `flag:"horizontal-pod-autoscaler-cpu-initialization-period" setting:"horizontal_pod_autoscaler_cpu_initialization_period" range:"0s.." help:"time after a pod's start in which its CPU usage counts only while it is ready"`
	HorizontalPodAutoscalerInitialReadinessDelay   time.Duration `flag:"horizontal-pod-autoscaler-initial-readiness-delay" setting:"horizontal_pod_autoscaler_initial_readiness_delay" range:"0s.." help:"time after a pod's start in which a pod that becomes unready counts as not ready yet"`

	LegacyServiceAccountTokenCleanUpPeriod time.Duration `flag:"legacy-service-account-token-clean-up-period" setting:"legacy_service_account_token_clean_up_period" range:"1s.." help:"how long a service account token in a Secret must be unused before it is marked invalid, and again as long before it is deleted"`
}

// DefaultControllerManager returns the documented defaults.
func DefaultControllerManager() ControllerManager {
	return ControllerManager{
		Serving: Serving{BindAddress: "127.0.0.1", SecurePort: 10257}, LeaderElect: true, Controllers: []string{"*"},
		ClusterCIDR: []string{"10.244.0.0/16"}, AllocateNodeCIDRs: true, NodeCIDRMaskSize: 24, NodeCIDRMaskSizeIPv6: 64,
		NodeMonitorPeriod: 5 * time.Second, NodeMonitorGracePeriod: 50 * time.Second,
		NodeStartupGracePeriod: time.Minute,
		NodeEvictionRate:       0.1, SecondaryNodeEvictionRate: 0.01, UnhealthyZoneThreshold: 0.55,
		LargeClusterSizeThreshold:    50,
		UseServiceAccountCredentials: true,
		ClusterSigningDuration:       365 * 24 * time.Hour, TerminatedPodGCThreshold: 12500,
		LegacyServiceAccountTokenCleanUpPeriod:        365 * 24 * time.Hour,
		HorizontalPodAutoscalerSyncPeriod:             15 * time.Second,
		HorizontalPodAutoscalerDownscaleStabilization: 5 * time.Minute, HorizontalPodAutoscalerTolerance: 0.1,
		HorizontalPodAutoscalerCPUInitializationPeriod: 5 * time.Minute,
		HorizontalPodAutoscalerInitialReadinessDelay:   30 * time.Second,
	}
}

// MetricsServer configures the server of metrics.k8s.io.
type MetricsServer struct {
	Connection
	Serving
	RequestheaderClientCAFile string        `flag:"requestheader-client-ca-file" help:"CA of the certificates that API servers present to aggregated servers; only API servers can read metrics of nodes and pods"`
	RequestheaderAllowedNames []string      `flag:"requestheader-allowed-names" help:"common names of these certificates; any when empty"`
	NodeName                  string        `flag:"node-name" help:"name of the machine, which names its endpoint of the service; the host name when empty"`
	NodeIP                    string        `flag:"node-ip" help:"address at which API servers reach this server"`
	MetricResolution          time.Duration `flag:"metric-resolution" help:"interval at which metrics of every kubelet are collected"`
	KubeletRequestTimeout     time.Duration `flag:"kubelet-request-timeout" help:"timeout of a request to a kubelet"`
	Profiling                 bool          `written:"always" flag:"profiling" help:"serve /debug/pprof"`
}

// DefaultMetricsServer returns the documented defaults.
func DefaultMetricsServer() MetricsServer {
	return MetricsServer{
		Serving:          Serving{BindAddress: "0.0.0.0", SecurePort: 10261},
		MetricResolution: 15 * time.Second, KubeletRequestTimeout: 10 * time.Second,
	}
}

// DNS configures the cluster's name server.
type DNS struct {
	Connection
	BindAddress           string            `flag:"bind-address" help:"address to serve queries on; port 53 by default"`
	NodeName              string            `flag:"node-name" help:"name of the machine, which names its endpoint of the service; the host name when empty"`
	NodeIP                string            `flag:"node-ip" help:"address at which pods reach this server; when empty, --bind-address if it is one address, or else detected"`
	NodeLocal             bool              `flag:"node-local" setting:"node_local" doc:"run a name server on every machine, which the pods of that machine ask at the same address as before; while it does not answer, they ask those of other machines" help:"serve the pods of this machine as long as every machine has a server"`
	ServiceName           string            `flag:"service-name" help:"namespace/name of the service that this server is an endpoint of; empty publishes none"`
	ClusterDomain         string            `flag:"cluster-domain" help:"domain of the cluster's names"`
	ClusterCIDR           []string          `flag:"cluster-cidr" help:"networks of pod addresses; queries for their names are not forwarded"`
	ServiceClusterIPRange []string          `flag:"service-cluster-ip-range" help:"networks of service addresses; queries for their names are not forwarded"`
	AllowedClients        []string          `flag:"allowed-clients" setting:"allowed_clients" help:"networks of clients that are served besides the cluster's pods, services and machines, as [\"10.0.0.0/8\"]; other clients are refused. [\"0.0.0.0/0\", \"::/0\"] serves every client"`
	TTL                   time.Duration     `flag:"ttl" setting:"ttl" range:"0s..1h" help:"how long clients may cache the cluster's names"`
	Upstream              []string          `flag:"upstream" setting:"upstream" help:"servers for all other names; when empty, those of /etc/resolv.conf, including later changes of the file"`
	ForwardZones          map[string]string `flag:"forward-zones" setting:"forward_zones" help:"servers for the names of single domains, as {\"corp.example\" = \"10.0.0.53 10.0.1.53\"}"`
	Policy                string            `flag:"policy" setting:"policy" help:"which of several servers gets a query first: random, round_robin or sequential"`
	Hosts                 map[string]string `flag:"hosts" setting:"hosts" help:"addresses of further names, as {\"db.corp.example\" = \"10.0.0.7 fd00::7\"}"`
	CacheTTL              time.Duration     `flag:"cache-ttl" setting:"cache_ttl" range:"1s..1h" help:"longest time for which responses of other servers are cached; a response may set less"`
	DenialTTL             time.Duration     `flag:"denial-ttl" setting:"denial_ttl" range:"1s..1h" help:"longest time for which it is cached that a name does not exist"`
	ServeStale            time.Duration     `flag:"serve-stale" setting:"serve_stale" range:"0s..168h" help:"how long an expired response is still served while no server responds"`
	LogQueries            bool              `flag:"log-queries" setting:"log_queries" help:"log every query and its result"`
	HealthAddress         string            `flag:"health-address" setting:"health_address" help:"host:port to serve health and metrics on"`
}

// DefaultDNS returns the documented defaults.
func DefaultDNS() DNS {
	return DNS{
		BindAddress:   "0.0.0.0:53",
		ServiceName:   "kube-system/kube-dns",
		ClusterDomain: "cluster.local",
		HealthAddress: "127.0.0.1:9153",
		TTL:           30 * time.Second,
		Policy:        "random",
		CacheTTL:      30 * time.Second,
		DenialTTL:     10 * time.Second,
		ServeStale:    time.Hour,
	}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
