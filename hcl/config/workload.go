package config

// Kinds of workloads.
const (
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
	KindJob         = "Job"
	KindCronJob     = "CronJob"
)

// WorkloadKinds are the kinds of workloads, the default first.
var WorkloadKinds = []string{KindDeployment, KindStatefulSet, KindDaemonSet, KindJob, KindCronJob}

// Workload is the short form of a Deployment, or of an object of another of WorkloadKinds, with what belongs to it.
type Workload struct {
	Kind           string   // one of WorkloadKinds; "" is a Deployment
	Address        string   // address in the configuration, such as workload.web["a"]
	DependsOn      []string // addresses of what must exist before
	Name           string
	Namespace      string
	Replicas       int
	Labels         map[string]string
	Annotations    map[string]string
	NodeSelector   map[string]string
	ServiceAccount string
	HostNetwork    bool
	Config         map[string]string // content of a ConfigMap with the workload's name, mounted as volume "config"
	Secrets        map[string]string // content of a Secret with the workload's name, mounted as volume "secrets"
	Containers     []Container
	Volumes        []Volume
	Storage        []Claim // claims of the workload itself; their names are those of volumes
	Service        *Service
	Rollout        Rollout
	StatefulSet    StatefulSet
	Job            Job  // of a Job, and of the Jobs of a CronJob
	Cron           Cron // of a CronJob
	Ingress        *WorkloadIngress
	Autoscaling    *Autoscaling
	Budget         *Budget
	NetworkPolicy  *NetworkPolicy
	Ignored        Ignored // paths are those of the workload block, such as {"container", NAME, "image"}
	PreventDestroy bool    // its objects may not be deleted or replaced
	Source         Source
}

// ClaimName returns the name of the PersistentVolumeClaim of one of the workload's storage blocks.
func (w Workload) ClaimName(c Claim) string { return w.Name + "-" + c.Name }

// GoverningService returns the name of the Service that gives each pod of a StatefulSet a name, and reports whether it
// is neither a named one nor the workload's own.
func (w Workload) GoverningService() (name string, isAdded bool) {
	switch {
	case w.StatefulSet.ServiceName != "":
		return w.StatefulSet.ServiceName, false
	case w.Service != nil && w.Service.Headless:
		return w.Name, false
	}
	return w.Name + "-headless", true
}

// ObjectKey identifies an object of a workload in the workload's namespace.
type ObjectKey struct{ APIVersion, Kind, Name string }

// ObjectKeys returns the keys of the workload's objects.
func (w Workload) ObjectKeys() (list []ObjectKey) {
	add := func(exists bool, apiVersion, kind, name string) {
		if exists {
			list = append(list, ObjectKey{apiVersion, kind, name})
		}
	}
	version, kind := "apps/v1", w.Kind
	switch kind {
	case "":
		kind = KindDeployment
	case KindJob, KindCronJob:
		version = "batch/v1"
	}
	add(true, version, kind, w.Name)
	add(w.Service != nil, "v1", "Service", w.Name)
	add(len(w.Config) > 0, "v1", "ConfigMap", w.Name)
	add(len(w.Secrets) > 0, "v1", "Secret", w.Name)
	for _, c := range w.Storage {
		add(true, "v1", "PersistentVolumeClaim", w.ClaimName(c))
	}
	if kind == KindStatefulSet {
		name, isAdded := w.GoverningService()
		add(isAdded, "v1", "Service", name)
	}
	add(w.Ingress != nil, "networking.k8s.io/v1", "Ingress", w.Name)
	add(w.Autoscaling != nil, "autoscaling/v2", "HorizontalPodAutoscaler", w.Name)
	add(w.Budget != nil, "policy/v1", "PodDisruptionBudget", w.Name)
	add(w.NetworkPolicy != nil, "networking.k8s.io/v1", "NetworkPolicy", w.Name)
	return list
}

// Container is a container of a workload's pods.
type Container struct {
	Name       string
	Init       bool
	Image      string
	PullPolicy string
	Command    []string
	Args       []string
	WorkingDir string
	Env        map[string]string
	SecretEnv  map[string]SecretKey // by the variable's name
	Ports      map[string]int       // numbers by name
	Requests   map[string]string
	Limits     map[string]string
	Mounts     map[string]string // volume names by path
	Readiness  *Probe
	Liveness   *Probe
	Startup    *Probe
}

// SecretKey is a key of a Secret. Secret is "" for the workload's own.
type SecretKey struct{ Secret, Key string }

// Probe checks whether a container works. One of HTTP, TCP and Command is set.
type Probe struct {
	HTTP     string // path of an HTTP request
	TCP      bool
	Command  []string
	Port     string // name or number
	Delay    int    // in seconds
	Period   int    // in seconds
	Timeout  int    // in seconds
	Failures int
}

// Volume is a directory that containers may mount. One of the sources is set.
type Volume struct {
	Name      string
	EmptyDir  bool
	HostPath  string
	ConfigMap string
	Secret    string
	Claim     string
}

// Service makes a workload reachable under a name and an address.
type Service struct {
	Type      string         // ClusterIP, NodePort or LoadBalancer
	Ports     map[string]int // service port numbers by the name of the container's port
	NodePorts map[string]int
	Headless  bool
}

// Claim is a claim of a volume, or a template of such claims.
type Claim struct {
	Name        string
	Size        string
	Class       string // "" is the default class
	AccessModes []string
}

// Rollout is how pods are replaced. Empty fields have the API's defaults.
type Rollout struct {
	Strategy       string // RollingUpdate, Recreate or OnDelete
	MaxSurge       string // a number or a percentage
	MaxUnavailable string // a number or a percentage
	MinReady       int    // in seconds
}

// StatefulSet holds what only StatefulSets have.
type StatefulSet struct {
	PodManagement string // OrderedReady or Parallel
	ServiceName   string // governing service; "" if it is one of the workload itself
	Claims        []Claim
}

// Job holds what only Jobs have. Nil fields have the API's defaults. Times are in seconds.
type Job struct {
	Completions      *int
	Parallelism      *int
	BackoffLimit     *int
	ActiveDeadline   *int
	TTLAfterFinished *int
	Indexed          bool
	RestartPolicy    string // OnFailure or Never
}

// Cron holds what only CronJobs have. Nil and empty fields have the API's defaults.
type Cron struct {
	Schedule          string
	TimeZone          string
	Concurrency       string // Allow, Forbid or Replace
	SuccessfulHistory *int
	FailedHistory     *int
	Suspend           bool
	StartingDeadline  *int // in seconds
}

// WorkloadIngress makes a workload's service reachable by HTTP from outside.
type WorkloadIngress struct {
	Host        string // "" is every host
	Class       string
	TLSSecret   string            // Secret with a certificate; "" means no TLS
	Paths       map[string]string // names of the service's ports by path
	PathType    string            // Prefix, Exact or ImplementationSpecific
	Annotations map[string]string
}

// Autoscaling changes the number of pods by their use of resources. Percentages are of requests; 0 means not measured.
type Autoscaling struct{ Min, Max, CPU, Memory int }

// Budget limits evictions. Exactly one field is set: a number or a percentage of pods.
type Budget struct{ MinAvailable, MaxUnavailable string }

// NetworkPolicy restricts the traffic of a workload's pods.
type NetworkPolicy struct {
	RestrictsIngress bool
	RestrictsEgress  bool
	AllowsDNS        bool // outgoing traffic to port 53
	Ingress          []NetworkRule
	Egress           []NetworkRule
}

// NetworkRule allows traffic with any of the peers at any of the ports.
type NetworkRule struct {
	Peers []Peer        // none means all
	Ports []NetworkPort // none means all
}

// Peer is one side of allowed traffic: a network, or pods.
type Peer struct {
	CIDR      string // a network; the other fields are empty
	Namespace string // "" is the workload's own, "*" every one
	Workload  string // workload of the pods; "" is all pods of the namespace
}

// NetworkPort is a port of a protocol.
type NetworkPort struct {
	Port     string // name or number
	End      int    // last port of a range that begins with Port; 0 means no range
	Protocol string // TCP, UDP or SCTP
}
