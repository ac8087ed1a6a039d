// Package run changes machines to what is declared. It connects to all of them at once, has their agents check
// everything, shows the result as a plan, and applies it: in parallel where that is safe, one after another where it is
// not. Decisions about single files are made in package role.
package run

import (
	"context"
	"io"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Agent is the client of a machine's agent.
type Agent interface {
	Facts(ctx context.Context) (host.Facts, error)
	Check(ctx context.Context, steps []step.Step) ([]step.Change, error)
	Apply(ctx context.Context, steps []step.Step, progress func(agent.Progress)) error
	Collect(ctx context.Context) ([]support.File, error)
	// Trace makes the machine watch for a packet, and send it if q says so. It calls begun when the machine watches.
	Trace(ctx context.Context, q host.Trace, begun func()) (host.Traced, error)
	Remains(ctx context.Context) (role.Remains, error)
	// SetTurn sets the turn for later calls of Apply. Without it, Apply does not check the turn.
	SetTurn(t agent.Turn)
	Send(ctx context.Context, digest, name string, compressed io.Reader) error
	SendPrivate(ctx context.Context, digest, name string, compressed io.Reader) error
	// Read writes a file of the machine to w. It fails if the file is larger than size bytes.
	Read(ctx context.Context, path string, size int64, w io.Writer) error
	// Store runs the program etcd of this digest, which must have been sent, with a request about the store.
	Store(ctx context.Context, digest string, q store.Request) (store.Answer, error)
	Close() error
}

// programSender is implemented by agents whose program may have to be sent first.
type programSender interface {
	SentBytes() int64 // size of the program on the machine in bytes; zero if it was not sent
}

// Cluster is the part of the live cluster that a run needs.
type Cluster interface {
	// Plan compares the declared objects with those in the cluster. before are the objects applied earlier.
	Plan(
		ctx context.Context,
		c *config.Cluster,
		before []state.Object,
	) (entries []plan.Object, ended []state.Object, err error)
	// Apply applies the declared objects and prunes. It returns the objects that are now applied.
	Apply(ctx context.Context, c *config.Cluster, before []state.Object, say func(plan.Object)) ([]state.Object, error)
	// Wait waits until the applied objects are healthy.
	Wait(ctx context.Context, c *config.Cluster, say func(plan.Object)) error
	// Nodes returns for every node whether it is ready: True, False or Unknown.
	Nodes(ctx context.Context) (map[string]string, error)
	// Node returns whether a node is ready and the Kubernetes version of its kubelet, which is empty if the node does
	// not exist.
	Node(ctx context.Context, name string) (ready, kubelet string, err error)
	// IsCordoned reports whether a node is unschedulable. Cordon and Uncordon change that.
	IsCordoned(ctx context.Context, node string) (bool, error)
	Cordon(ctx context.Context, node string) error
	Uncordon(ctx context.Context, node string) error
	// Drain cordons a node and evicts its pods. It calls say with its progress.
	Drain(ctx context.Context, node string, say func(string)) error
	// References returns the objects that Apply would apply.
	References(c *config.Cluster) ([]state.Object, error)
	// Missing returns the objects of list that do not exist. Delete deletes objects and waits until they are gone.
	Missing(ctx context.Context, list []state.Object) ([]state.Object, error)
	Delete(ctx context.Context, list []state.Object) error
	// Applied finds the objects that clusterctl applied, to rebuild a lost state.
	Applied(ctx context.Context, c *config.Cluster) (list []state.Object, problems []string, err error)
	// Revision returns the store's current revision, as reported by the API.
	Revision(ctx context.Context) (int64, error)
	// DeleteNode deletes a Node object.
	DeleteNode(ctx context.Context, node string) error
	// DeleteFormerNode deletes a Node object that belongs to another machine than now, which has its name today. It
	// reports whether there was one.
	DeleteFormerNode(ctx context.Context, node string, now inventory.Machine) (bool, error)
	// AdmitReplicas gives the rights of former releases' users also to the users that daemons have on each machine,
	// until DropFormerRights: machines that were rolled back, or API servers of the former release, need them.
	AdmitReplicas(ctx context.Context) error
	// DropFormerRights deletes the role bindings of the users that daemons of former releases shared on all machines.
	DropFormerRights(ctx context.Context) error
}

// Engine carries out runs. All fields are required except those marked.
type Engine struct {
	Config           *config.Cluster
	Store            state.Store
	Bundle           *bundle.Bundle
	Dial             func(ctx context.Context, m config.Machine) (Agent, error)
	ConnectCluster   func(s *state.State, c *config.Cluster) (Cluster, error)
	Report           func(Event) // optional
	Parallelism      int         // machines at a time; zero means 32
	IsDestroy        bool        // remove the whole cluster
	IsPlanOnly       bool        // plan only: machines that are not reached become part of the plan
	Targets          []string    // only these addresses, if any
	Excludes         []string    // not these addresses
	SkipsUnreachable bool        // leave nodes that are not reached out of the run
	Replaces         []string    // machines, workloads and objects to be deleted and created again
	Downgrade        string      // the version or build of an older release that machines may go to
	AllowedLosses    []string    // addresses of objects that may be deleted although data is lost with them
	// Renews names certificates to be renewed early, as CertificateName names them; "all" means all.
	Renews        []string
	RenewOn       []string // machines, by address or name, whose certificates are renewed; empty means all
	IsRefreshOnly bool     // only compare the state with the machines and the API, and forget what is gone
	SkipsSnapshot bool     // take no snapshot of the store before a risky change
	// Run is a unique name of this run. Machines use it to detect changes by another run; empty disables that check.
	Run      string
	Operator string           // who runs this, shown to users of other runs at the same time
	Now      func() time.Time // nil means time.Now
}

// Kinds of events.
const (
	EventConnect = "connect" // a machine is reached
	EventBegin   = "begin"   // work on a machine begins; Message says what is done
	EventSend    = "send"    // a file goes to a machine
	EventSending = "sending" // progress of a file that takes some seconds to send: Bytes of Size
	EventStep    = "step"    // a step was applied
	EventDone    = "done"    // a machine is as declared
	EventObject  = "object"  // an object was applied or is healthy
	EventFailed  = "failed"
	EventNote    = "note"
	EventPhase   = "phase" // a phase of the run that takes some time begins
)

// Event is something that happened in a run.
type Event struct {
	Time    time.Time    `json:"time"`
	Kind    string       `json:"kind"`
	Machine string       `json:"machine,omitempty"` // address
	Change  *step.Change `json:"change,omitempty"`
	Object  *plan.Object `json:"object,omitempty"`
	Message string       `json:"message,omitempty"`
	Bytes   int64        `json:"bytes,omitempty"` // bytes sent so far
	Size    int64        `json:"size,omitempty"`  // bytes to compress, or compressed bytes to send
}

func (e *Engine) report(ev Event) {
	if e.Report != nil {
		ev.Time = e.now()
		e.Report(ev)
	}
}

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

func (e *Engine) parallelism() int {
	if e.Parallelism > 0 {
		return e.Parallelism
	}
	return 32
}

// newAuthorities makes the authorities of a new cluster.
func (e *Engine) newAuthorities() (map[string]certs.Pair, error) {
	pairs := map[string]certs.Pair{}
	for name, commonName := range certs.CommonNames {
		p, err := certs.NewCA(commonName, 0, e.now())
		if err != nil {
			return nil, err
		}
		pairs[name] = p
	}
	return pairs, nil
}
