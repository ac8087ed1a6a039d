// Package host is what a machine can be asked while it is provisioned: files, units,
// facts and commands. local answers on the machine itself (inside the agent), hostfake
// behaves like a machine in memory, and ssh is how the agent is reached. What should
// be on a machine is provision/role's business.
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

// Host is a machine. Its methods are called on the machine.
type Host interface {
	Files
	Units
	// Facts looks at the machine.
	Facts(ctx context.Context) (Facts, error)
	// Alone waits until nobody else is alone with the machine, until end is called or the process that called it has
	// ended.
	Alone(ctx context.Context) (end func(), err error)
	// Run runs a program and returns what it wrote; on failure the error has it.
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
	// RunStore runs the program etcd for a request about the store, as JSON, and returns what it printed; on failure
	// the error is what it said. What it does may take long.
	RunStore(ctx context.Context, program, request string) ([]byte, error)
	// Open reads a file too large to be held.
	Open(path string) (io.ReadCloser, error)
	// ImportImage gives the container runtime an image from an OCI archive, under a name.
	ImportImage(ctx context.Context, name string, archive io.Reader) error
	// HasImage reports whether the container runtime has an image of that name.
	HasImage(ctx context.Context, name string) (bool, error)
	// Containers counts the runtime's running containers, StopContainers ends and removes them all.
	Containers(ctx context.Context) (int, error)
	StopContainers(ctx context.Context) error
	// Answers asks a URL, of the machine itself or of another, whether all is well.
	// When nobody listens there, the error is ErrNothingListens.
	Answers(ctx context.Context, url string, as Client) error
	// Mounts returns what is mounted at paths that start so; Unmount takes all of it off,
	// also what is still in use.
	Mounts(prefixes ...string) ([]string, error)
	Unmount(prefixes ...string) error
	// Network returns what of it is there, ClearNetwork removes that.
	Network(ctx context.Context, parts Network) ([]string, error)
	ClearNetwork(ctx context.Context, parts Network) error
	// Trace watches for a packet on all interfaces, and sends it when this machine is to. begun is called when it
	// watches.
	Trace(ctx context.Context, q Trace, begun func()) (Traced, error)
	// Etcd returns the store, as its clients on this machine reach it.
	Etcd(ctx context.Context, endpoints []string, ca, cert, key string) (Etcd, error)
}

// Network names what there may be in the kernel of the pod network and of services.
type Network struct {
	Tables   []string `json:"tables"`   // of nftables, in whatever family
	Chains   []string `json:"chains"`   // of iptables, by how their names begin
	Links    []string `json:"links"`    // network interfaces
	Protocol int      `json:"protocol"` // that marks routes and rules of routing; none when zero
}

// Client is as whom a machine asks others: paths of files on it. A zero one trusts what the machine does.
type Client struct {
	CA   string `json:"ca,omitempty"`   // whom it trusts
	Cert string `json:"cert,omitempty"` // who it is; a server that does not know it is asked as nobody
	Key  string `json:"key,omitempty"`
}

// ErrNothingListens is that a port of the machine is not served.
var ErrNothingListens = errors.New("nothing listens there")

// StatusError is the HTTP status of a server that answers with an error: it is unhealthy or rejects the client.
type StatusError int

func (e StatusError) Error() string {
	return fmt.Sprintf("it answers %d %s", int(e), http.StatusText(int(e)))
}

// Info is what is known of a file without reading it.
type Info struct {
	Mode     fs.FileMode // type and permissions
	UID, GID int
	Size     int64
	Target   string // of a symbolic link
}

// Files are a machine's files. A missing one is fs.ErrNotExist.
type Files interface {
	Stat(path string) (Info, error) // of the link itself
	ReadFile(path string) ([]byte, error)
	// WriteFile replaces a file in one move: a reader sees the old or the new content.
	WriteFile(path string, content io.Reader, mode fs.FileMode, uid, gid int) error
	Chmod(path string, mode fs.FileMode, uid, gid int) error
	Mkdir(path string, mode fs.FileMode) error // with parents
	Symlink(target, path string) error         // replaces what is there in one move
	Rename(from, to string) error
	RemoveAll(path string) error
	List(dir string) ([]string, error) // names, sorted
}

// Units are systemd's.
type Units interface {
	Unit(ctx context.Context, name string) (Unit, error) // zero when there is none
	Reload(ctx context.Context) error                    // reads unit files again
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	// Start, Restart and Stop return when the unit is there: a unit that says when it
	// is ready has said so.
	Start(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	// Said is what a unit wrote last, for whoever asks why it does not work; empty when nothing is known.
	Said(ctx context.Context, name string) string
}

// Unit is the state of a unit.
type Unit struct {
	Active      string // active, inactive, failed, activating…
	Enabled     bool
	NeedsReload bool   // its file changed since systemd read it
	Fragment    string // path of its file
	Process     uint32 // its main process; 0 when there is none
	Program     string // what that process runs, links resolved
	Started     time.Time
}

// Facts are what differs between machines and matters to what is put on them.
type Facts struct {
	// Identity is of the installation of the machine: its machine-id and sshd's host keys. Empty when it has none.
	Identity string `json:"identity,omitempty"`
	Boot     string `json:"boot,omitempty"` // its present run, which another boot ends
	// fingerprint of the authority of the cluster that it serves
	ClusterCA    string            `json:"clusterCA,omitempty"`
	Given        Given             `json:"given,omitzero"` // of the cluster's secrets
	Hostname     string            `json:"hostname"`
	OS           string            `json:"os"`
	Kernel       string            `json:"kernel"`
	Arch         string            `json:"arch"`
	CPUs         int               `json:"cpus"`
	Memory       int64             `json:"memory"` // bytes
	Systemd      string            `json:"systemd"`
	CgroupV2     bool              `json:"cgroupV2"`
	OOMAdjust    bool              `json:"oomAdjust"`         // CAP_SYS_RESOURCE
	Root         bool              `json:"root"`              // user id 0
	LastRun      string            `json:"lastRun,omitempty"` // the run that has changed it last since it booted
	EtcdData     bool              `json:"etcdData"`          // an etcd member has run here
	EtcdCluster  string            `json:"etcdCluster"`       // the id of its cluster, in hex, as etcdctl shows it
	SysctlFrozen []string          `json:"sysctlFrozen"`      // settings that cannot be written here
	Sysctl       map[string]string `json:"sysctl"`
	CertExpiry   time.Time         `json:"certExpiry"` // of the certificate in /etc/kubernetes/pki that ends first
	Addresses    []string          `json:"addresses"`
	Missing      []string          `json:"missing"` // kernel features that are needed and absent
	// Snapshot is how the last snapshot of the store went there; nil when none was ever taken.
	Snapshot *store.Outcome `json:"snapshot,omitempty"`
	// Release has held there, Tried is one that has been begun and has not; nil when there is none.
	Release *Release `json:"release,omitempty"`
	Tried   *Release `json:"tried,omitempty"`
	Survey
}

// Survey is what is only looked at to find out whether a machine can be what it is to be.
type Survey struct {
	MachineID string `json:"machineID,omitempty"` // digest of /etc/machine-id
	// the distributions that its own comes from, as /etc/os-release has them
	OSLike      string         `json:"osLike,omitempty"`
	Clock       time.Time      `json:"clock"`                 // its clock, when it was asked
	Swap        int64          `json:"swap,omitempty"`        // bytes
	Lacking     []string       `json:"lacking,omitempty"`     // what nodes need of the kernel and it does not have
	Absent      []string       `json:"absent,omitempty"`      // of Programs, those that are not there
	Controllers []string       `json:"controllers,omitempty"` // of control groups; none when that is not known
	MTU         map[string]int `json:"mtu,omitempty"`         // of the interface that has an address
	// bytes that root can write at a path, or where it will be made
	Free      map[string]int64 `json:"free,omitempty"`
	Listening []Listener       `json:"listening,omitempty"` // who has a port of Ports that is none of ours
	// how long most of a few small writes took until they were on the disk; 0: not measured
	Sync     time.Duration `json:"sync,omitempty"`
	ReadOnly []string      `json:"readOnly,omitempty"` // directories that cannot be written to
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

// Debian reports whether a machine runs Debian, Ubuntu or a distribution derived from them.
func (f Facts) Debian() bool {
	name, _, _ := strings.Cut(f.OS, " ")
	for _, n := range append(strings.Fields(f.OSLike), name) {
		if n == "debian" || n == "ubuntu" {
			return true
		}
	}
	return false
}

// Programs are those that daemons call in some configurations, and that do not come with clusterctl.
var Programs = []string{
	"iptables",
	"iptables-restore",
	"iptables-save",
	"ip6tables",
	"ip6tables-restore",
	"ip6tables-save",
}

// Listener has a port.
type Listener struct {
	Port    int    `json:"port"`
	Network string `json:"network"` // tcp or udp
	Process string `json:"process"` // its name and number, empty when it is not known
}

// Ports are those that a cluster's daemons listen on, by what they are for.
var Ports = map[int]string{
	53: "kube-dns", 80: "kube-ingress", 443: "kube-ingress", 2379: "etcd", 2380: "etcd", 2381: "etcd",
	6443: "kube-apiserver", 9153: "kube-dns", 10248: "kubelet", 10249: "kube-proxy", 10250: "kubelet",
	10255: "kube-network", 10256: "kube-proxy", 10257: "kube-controller-manager", 10259: "kube-scheduler",
	10261: "metrics-server", 10262: "kube-ingress",
}

// Surveyed are the paths whose room is looked at.
var Surveyed = []string{Library, "/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet"}

// Etcd is the store's membership.
type Etcd interface {
	Members(ctx context.Context) ([]Member, error)
	AddLearner(ctx context.Context, peerURL string) error
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Close() error
}

// Member is a member of the store. One that has not started yet has no name.
type Member struct {
	ID      uint64
	Name    string
	PeerURL string
	Learner bool
}

// ErrUnsettled is that the store takes no other member, and lets none go, until those
// that it has have been connected for some seconds.
var ErrUnsettled = errors.New("etcd's members are not all connected yet")

// ErrUnit is that a unit did not become what was asked; the error's text has the journal's last lines.
var ErrUnit = errors.New("it does not come up")

// Sysctls are the kernel settings that nodes need, with the values that they need.
var Sysctls = map[string]string{
	"net.ipv4.ip_forward":       "1",
	"vm.overcommit_memory":      "1",
	"kernel.panic":              "10",
	"kernel.panic_on_oops":      "1",
	"kernel.keys.root_maxkeys":  "1000000",
	"kernel.keys.root_maxbytes": "25000000",
}

// RouteProtocol marks the routes to other nodes' pods in the kernel's table.
const RouteProtocol = 99

// Library is where sent files are kept: Library/DIGEST/NAME.
const Library = "/usr/local/lib/clusterctl"

// Turns is where a machine keeps, until it is booted anew, whose turn it is to change it.
const Turns = "/run/clusterctl"
