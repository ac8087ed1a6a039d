// Package host defines the operations on a machine that provisioning uses: files, units, facts and commands. Package
// local implements them on the machine itself, inside the agent. Package hostfake simulates a machine in memory, and
// package ssh reaches the agent. What should be on a machine is decided in package role.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"clusterctl/daemons/config/store"
)

// Host is a machine. Its methods are called on the machine itself.
type Host interface {
	Files
	Units
	// Facts collects facts about the machine.
	Facts(ctx context.Context) (Facts, error)
	// Lock takes an exclusive lock on the machine. It waits until no other process holds it. The lock is released by
	// end, or when the process ends.
	Lock(ctx context.Context) (end func(), err error)
	// Run runs a program and returns its output. If the program fails, the error contains the output.
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
	// RunStore runs the program etcd with a request about the store, in JSON, and returns its output. If it fails, the
	// error contains its message. A request can take minutes.
	RunStore(ctx context.Context, program, request string) ([]byte, error)
	// Open opens a file that is too large to be read into memory.
	Open(path string) (io.ReadCloser, error)
	// ImportImage imports an image from an OCI archive into the container runtime, under a name.
	ImportImage(ctx context.Context, name string, archive io.Reader) error
	// HasImage reports whether the container runtime has an image of this name.
	HasImage(ctx context.Context, name string) (bool, error)
	// Containers returns the number of running containers of the runtime. StopContainers stops and removes them all.
	Containers(ctx context.Context) (int, error)
	StopContainers(ctx context.Context) error
	// CheckURL checks that a URL, of this or another machine, answers with status 200. If no process listens there, the
	// error is ErrNothingListens.
	CheckURL(ctx context.Context, url string, as Client) error
	// Mounts returns the mount points whose paths start with one of the prefixes. Unmount unmounts them, even if they
	// are in use.
	Mounts(prefixes ...string) ([]string, error)
	Unmount(prefixes ...string) error
	// Network returns those of parts that exist. ClearNetwork removes them.
	Network(ctx context.Context, parts Network) ([]string, error)
	ClearNetwork(ctx context.Context, parts Network) error
	// Trace watches for a packet on all interfaces, and sends it if q says so. It calls started when it watches.
	Trace(ctx context.Context, q Trace, started func()) (Traced, error)
	// Etcd returns a client of the store, with credentials that are files on this machine.
	Etcd(ctx context.Context, endpoints []string, ca, cert, key string) (Etcd, error)
}

// Network names the parts of the pod network and of services that the kernel may contain.
type Network struct {
	Tables   []string `json:"tables"`   // of nftables, in any family
	Chains   []string `json:"chains"`   // prefixes of the names of iptables chains
	Links    []string `json:"links"`    // network interfaces
	Protocol int      `json:"protocol"` // marks routes and routing rules; zero means none
}

// Client holds the paths of the credentials on the machine that it uses towards other servers. A zero Client uses the
// machine's trusted CAs and no certificate.
type Client struct {
	CA   string `json:"ca,omitempty"`   // trusted CAs
	Cert string `json:"cert,omitempty"` // client certificate; a server that does not accept it is asked without it
	Key  string `json:"key,omitempty"`
}

// ErrNothingListens reports that no process listens on a port.
var ErrNothingListens = errors.New("nothing listens there")

// StatusError is the HTTP status of a server that answered with an error: it is unhealthy or rejects the client.
type StatusError int

func (e StatusError) Error() string {
	return fmt.Sprintf("it answers %d %s", int(e), http.StatusText(int(e)))
}

// Info describes a file.
type Info struct {
	Mode     fs.FileMode // type and permissions
	UID, GID int
	Size     int64
	Target   string // target of a symbolic link
}

// Files gives access to a machine's files. The error for a missing file is fs.ErrNotExist.
type Files interface {
	Stat(path string) (Info, error) // does not follow links
	ReadFile(path string) ([]byte, error)
	// WriteFile replaces a file atomically: a reader sees either the old or the new content.
	WriteFile(path string, content io.Reader, mode fs.FileMode, uid, gid int) error
	Chmod(path string, mode fs.FileMode, uid, gid int) error
	Mkdir(path string, mode fs.FileMode) error // with its parents
	Symlink(target, path string) error         // atomically replaces an existing link or file
	Rename(from, to string) error
	RemoveAll(path string) error
	List(dir string) ([]string, error) // sorted names
}

// Units gives access to systemd's units.
type Units interface {
	Unit(ctx context.Context, name string) (Unit, error) // zero if the unit does not exist
	Reload(ctx context.Context) error                    // daemon-reload
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	// Start, Restart and Stop return when the unit has reached the state. A unit of Type=notify has reported that it is
	// ready.
	Start(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	// JournalTail returns the last lines that a unit wrote, to explain why it does not work, or "" if there are none.
	JournalTail(ctx context.Context, name string) string
}

// Unit is the state of a systemd unit.
type Unit struct {
	Active      string // active, inactive, failed, activating…
	Enabled     bool
	NeedsReload bool   // its file has changed since systemd read it
	Fragment    string // path of its file
	Process     uint32 // process ID of its main process; 0 means none
	Program     string // executable of that process, links resolved
	Started     time.Time
}

// Facts are the properties of a machine that matter to what is installed on it.
type Facts struct {
	// Identity identifies the installation of the machine, by its machine-id and sshd's host keys. Empty means unknown.
	Identity string `json:"identity,omitempty"`
	Boot     string `json:"boot,omitempty"` // ID of the current boot
	// ClusterCA is the fingerprint of the authority of the cluster that the machine serves.
	ClusterCA     string        `json:"clusterCA,omitempty"`
	SecretDigests SecretDigests `json:"given,omitzero"` // cluster secrets on the machine
	Hostname      string        `json:"hostname"`
	OS            string        `json:"os"`
	Kernel        string        `json:"kernel"`
	Arch          string        `json:"arch"`
	CPUs          int           `json:"cpus"`
	Memory        int64         `json:"memory"` // bytes
	Systemd       string        `json:"systemd"`
	CgroupV2      bool          `json:"cgroupV2"`
	CanAdjustOOM  bool          `json:"oomAdjust"` // CAP_SYS_RESOURCE
	IsRoot        bool          `json:"root"`      // user id 0
	// the last run that changed the machine since it booted
	LastRun         string            `json:"lastRun,omitempty"`
	HasEtcdData     bool              `json:"etcdData"`     // an etcd member has run here
	EtcdCluster     string            `json:"etcdCluster"`  // the ID of its cluster in hex, as etcdctl shows it
	FrozenSysctls   []string          `json:"sysctlFrozen"` // settings that cannot be written
	Sysctl          map[string]string `json:"sysctl"`
	CertExpiry      time.Time         `json:"certExpiry"` // earliest expiry of a certificate in /etc/kubernetes/pki
	Addresses       []string          `json:"addresses"`
	MissingFeatures []string          `json:"missing"` // required kernel features that are absent
	// Snapshot is the outcome of the machine's last snapshot of the store; nil means that none was ever taken.
	Snapshot *store.Outcome `json:"snapshot,omitempty"`
	// Release is the machine's confirmed release. UnconfirmedRelease is a release whose update is not confirmed
	// yet. Nil means none.
	Release            *Release `json:"release,omitempty"`
	UnconfirmedRelease *Release `json:"tried,omitempty"`
	Survey
}

// Survey holds facts that are needed only to check whether a machine can become what is declared.
type Survey struct {
	MachineID string `json:"machineID,omitempty"` // digest of /etc/machine-id
	// OSLike are the distributions that this one derives from, as in ID_LIKE of /etc/os-release.
	OSLike string    `json:"osLike,omitempty"`
	Clock  time.Time `json:"clock"`          // the machine's time when it was asked
	Swap   int64     `json:"swap,omitempty"` // bytes
	// kernel features that nodes need and the kernel does not have
	MissingNodeFeatures []string `json:"lacking,omitempty"`
	// those of ExternalPrograms that are not installed
	MissingPrograms []string       `json:"absent,omitempty"`
	Controllers     []string       `json:"controllers,omitempty"` // cgroup controllers; empty means unknown
	MTU             map[string]int `json:"mtu,omitempty"`         // MTU of the interface, by address
	// FreeBytes is the number of bytes that root can write at each path, or where the path will be created.
	FreeBytes map[string]int64 `json:"free,omitempty"`
	Listening []Listener       `json:"listening,omitempty"` // other processes that use a port of DaemonPorts
	// SyncDuration is the duration of a small synchronous write, as all but the slowest of a few writes took at most; 0
	// means not measured.
	SyncDuration time.Duration `json:"sync,omitempty"`
	ReadOnly     []string      `json:"readOnly,omitempty"` // directories on read-only file systems
	// Proxies are the variables of ProxyVariables that systemd sets for all services, by name, without user and
	// password.
	Proxies map[string]string `json:"proxies,omitempty"`
}

// ProxyFile is the environment file with the proxy for connections to hosts outside the cluster. It may contain a
// password.
const ProxyFile = "/etc/kubernetes/proxy.env"

// ProxyVariables are the environment variables that configure the proxy of a program.
var ProxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
	"all_proxy", "no_proxy"}

// IsDebian reports whether a machine runs Debian, Ubuntu or a distribution derived from them.
func (f Facts) IsDebian() bool {
	name, _, _ := strings.Cut(f.OS, " ")
	for _, n := range append(strings.Fields(f.OSLike), name) {
		if n == "debian" || n == "ubuntu" {
			return true
		}
	}
	return false
}

// ExternalPrograms are the programs that daemons call in some configurations and that clusterctl does not install.
var ExternalPrograms = []string{
	"iptables",
	"iptables-restore",
	"iptables-save",
	"ip6tables",
	"ip6tables-restore",
	"ip6tables-save",
}

// Listener is a process that listens on a port.
type Listener struct {
	Port    int    `json:"port"`
	Network string `json:"network"` // tcp or udp
	Process string `json:"process"` // name and process ID; empty means unknown
}

// DaemonPorts maps the ports that a cluster's daemons listen on to the names of the daemons.
var DaemonPorts = map[int]string{
	53: "kube-dns", 80: "kube-ingress", 443: "kube-ingress", 2379: "etcd", 2380: "etcd", 2381: "etcd",
	6443: "kube-apiserver", 9153: "kube-dns", 10248: "kubelet", 10249: "kube-proxy", 10250: "kubelet",
	10255: "kube-network", 10256: "kube-proxy", 10257: "kube-controller-manager", 10259: "kube-scheduler",
	10261: "metrics-server", 10262: "kube-ingress", 10263: "gitops-controller",
	10264: "kube-dashboard", 10265: "kube-dashboard", 10266: "gitops-controller",
}

// SurveyedPaths are the paths whose free space is determined.
var SurveyedPaths = []string{LibraryDir, "/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet"}

// Etcd manages the store's members.
type Etcd interface {
	Members(ctx context.Context) ([]Member, error)
	AddLearner(ctx context.Context, peerURL string) error
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Close() error
}

// Member is a member of the store. Its name is empty until it has started.
type Member struct {
	ID      uint64
	Name    string
	PeerURL string
	Learner bool
}

// ErrUnsettled reports that the store refuses changes of its members until all present members have been connected for
// some seconds.
var ErrUnsettled = errors.New("etcd's members are not all connected yet")

// ErrUnit reports that a unit did not reach the requested state. The error's text contains the last lines of its
// journal.
var ErrUnit = errors.New("it does not come up")

// Sysctls are the kernel settings that nodes need, with their values.
var Sysctls = map[string]string{
	"net.ipv4.ip_forward":       "1",
	"vm.overcommit_memory":      "1",
	"kernel.panic":              "10",
	"kernel.panic_on_oops":      "1",
	"kernel.keys.root_maxkeys":  "1000000",
	"kernel.keys.root_maxbytes": "25000000",
}

// RouteProtocol marks the routes to other nodes' pods in the kernel's routing table.
const RouteProtocol = 99

// LibraryDir is the directory of the files that were sent to a machine, at LibraryDir/DIGEST/NAME.
const LibraryDir = "/usr/local/lib/clusterctl"

// RunDir is the directory, emptied by a reboot, in which a machine records which run may change it.
const RunDir = "/run/clusterctl"
