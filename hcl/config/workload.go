package config

// Workload is the short form of a Deployment with what belongs to it.
type Workload struct {
	Address        string   // in the configuration: workload.web["a"]
	DependsOn      []string // addresses of what is to be there before
	Name           string
	Namespace      string
	Replicas       int
	Labels         map[string]string
	Annotations    map[string]string
	NodeSelector   map[string]string
	ServiceAccount string
	HostNetwork    bool
	Config         map[string]string // a ConfigMap of the workload's name, also the volume "config"
	Containers     []Container
	Volumes        []Volume
	Service        *Service
	Ignored        Ignored // paths are those of the workload block, such as {"container", NAME, "image"}
	PreventDestroy bool    // its objects are neither removed nor replaced
	Source         Source
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
	Ports      map[string]int // name to number
	Requests   map[string]string
	Limits     map[string]string
	Mounts     map[string]string // path to volume name
	Readiness  *Probe
	Liveness   *Probe
	Startup    *Probe
}

// Probe is a question whether a container works. One of HTTP, TCP and Command is set.
type Probe struct {
	HTTP     string // path
	TCP      bool
	Command  []string
	Port     string // name or number
	Delay    int    // seconds
	Period   int    // seconds
	Timeout  int    // seconds
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

// Service makes a workload reachable under one name and address.
type Service struct {
	Type      string         // ClusterIP, NodePort or LoadBalancer
	Ports     map[string]int // name of a container's port to the service's number
	NodePorts map[string]int
	Headless  bool
}
