package config

// Workload is the short form of a Deployment with what belongs to it.
type Workload struct {
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
	Containers     []Container
	Volumes        []Volume
	Service        *Service
	Ignored        Ignored // paths are those of the workload block, such as {"container", NAME, "image"}
	PreventDestroy bool    // its objects may not be deleted or replaced
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
	Ports      map[string]int // numbers by name
	Requests   map[string]string
	Limits     map[string]string
	Mounts     map[string]string // volume names by path
	Readiness  *Probe
	Liveness   *Probe
	Startup    *Probe
}

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
