// Package run brings machines to what is declared: it connects to all of them at once,
// has their agents check everything, shows that as a plan, and walks it: in parallel
// where that is safe, one after the other where it is not. It decides nothing about
// single files; those are provision/role's.
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

// Agent is a machine's agent.
type Agent interface {
	Facts(ctx context.Context) (host.Facts, error)
	Check(ctx context.Context, steps []step.Step) ([]step.Change, error)
	Apply(ctx context.Context, steps []step.Step, progress func(agent.Progress)) error
	Collect(ctx context.Context) ([]support.File, error)
	// Trace has the machine watch for a packet, and send it when it is to; begun is called when it watches.
	Trace(ctx context.Context, q host.Trace, begun func()) (host.Traced, error)
	Look(ctx context.Context) (role.Remains, error)
	// Take says whose turn it is to apply; without it nobody's is asked for.
	Take(t agent.Turn)
	Send(ctx context.Context, digest, name string, compressed io.Reader) error
	SendPrivate(ctx context.Context, digest, name string, compressed io.Reader) error
	// Read writes a file of the machine to w, and is an error when it is larger than size.
	Read(ctx context.Context, path string, size int64, w io.Writer) error
	// Store has the program etcd of that digest, which has been sent, do something with the store.
	Store(ctx context.Context, digest string, q store.Request) (store.Answer, error)
	Close() error
}

// bringer is implemented by agents whose program may have to be sent first.
type bringer interface {
	Brought() int64 // size of the program on the machine in bytes; zero if it was not sent
}

// Cluster is the live cluster, as far as a run needs it.
type Cluster interface {
	// Plan compares what is declared with what is there. prune are objects applied before.
	Plan(
		ctx context.Context,
		c *config.Cluster,
		before []state.Object,
	) (entries []plan.Object, ended []state.Object, err error)
	// Apply brings it in and prunes. It returns what is now applied.
	Apply(ctx context.Context, c *config.Cluster, before []state.Object, say func(plan.Object)) ([]state.Object, error)
	// Wait waits until what was applied works.
	Wait(ctx context.Context, c *config.Cluster, say func(plan.Object)) error
	// Nodes says for every node whether it is ready: True, False or Unknown.
	Nodes(ctx context.Context) (map[string]string, error)
	// Node says whether a node is ready, and the version of Kubernetes that its kubelet has; that is empty when there
	// is no such node.
	Node(ctx context.Context, name string) (ready, kubelet string, err error)
	// Cordoned reports whether a node takes no new pods; Cordon has it take none, Uncordon has it take them again.
	Cordoned(ctx context.Context, node string) (bool, error)
	Cordon(ctx context.Context, node string) error
	Uncordon(ctx context.Context, node string) error
	// Drain cordons a node and moves its pods away; say is told how that goes on.
	Drain(ctx context.Context, node string, say func(string)) error
	// References are the objects that Apply would have applied.
	References(c *config.Cluster) ([]state.Object, error)
	// Gone returns the objects that are not there, and Delete removes objects and waits until they are gone.
	Gone(ctx context.Context, list []state.Object) ([]state.Object, error)
	Delete(ctx context.Context, list []state.Object) error
	// Applied finds the objects that were applied from here, for a state that was lost.
	Applied(ctx context.Context, c *config.Cluster) (list []state.Object, problems []string, err error)
	// Revision is where the store is, as the API says.
	Revision(ctx context.Context) (int64, error)
	// Forget removes a node's object.
	Forget(ctx context.Context, node string) error
	// ForgetFormer removes a node's object that is of another machine than the one that has its name now, which the
	// cluster is told of. It reports whether there was one.
	ForgetFormer(ctx context.Context, node string, now inventory.Machine) (bool, error)
	// AdmitReplicas gives the rights of former releases' users also to the users that daemons have on each machine,
	// until DropFormerRights: machines that were rolled back, or API servers of the former release, need them.
	AdmitReplicas(ctx context.Context) error
	// DropFormerRights deletes the role bindings of the users that daemons of former releases shared on all machines.
	DropFormerRights(ctx context.Context) error
}

// Engine runs. All fields but those marked are required.
type Engine struct {
	Config          *config.Cluster
	Store           state.Store
	Bundle          *bundle.Bundle
	Dial            func(ctx context.Context, m config.Machine) (Agent, error)
	Live            func(s *state.State, c *config.Cluster) (Cluster, error)
	Say             func(Event) // optional
	Parallelism     int         // machines at a time; zero means 32
	Destroy         bool        // take everything away
	Look            bool        // only to plan: machines that are not reached are part of the plan
	Targets         []string    // only these machines and workloads, when any
	Excludes        []string    // not these
	SkipUnreachable bool        // leave nodes that are not reached out of the run
	Replaces        []string    // machines, workloads and objects to be taken away and made anew
	Downgrade       string      // the version or build of an older release that machines may go to
	Losses          []string    // addresses of what may go although data goes with it
	// certificates to be renewed before their time, by the names that CertificateName gives; "all"
	Renews     []string
	RenewOn    []string // machines, by address or name, whose certificates are renewed; all when none
	Refresh    bool     // only hold the state against the world, and forget what is gone
	NoSnapshot bool     // take none of the store before a risky change
	// a name that no other run has: machines tell by it whether another one has changed them; empty: nobody asks
	Run string
	Who string           // who runs this, for others who do at the same time
	Now func() time.Time // nil means time.Now
}

// Kinds of events.
const (
	EventConnect = "connect" // a machine is reached
	EventBegin   = "begin"   // work on a machine begins: what is done to it
	EventSend    = "send"    // a file goes to a machine
	EventSending = "sending" // progress of a file that takes some seconds to send: Bytes of Size
	EventStep    = "step"    // a step was applied
	EventDone    = "done"    // a machine is as declared
	EventObject  = "object"  // an object was applied or works
	EventFailed  = "failed"
	EventNote    = "note"
	EventPhase   = "phase" // a part of the run that takes a while begins
)

// Event is something that a run did.
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

func (e *Engine) say(ev Event) {
	if e.Say != nil {
		ev.Time = e.now()
		e.Say(ev)
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

// authorities makes a new cluster's.
func (e *Engine) authorities() (map[string]certs.Pair, error) {
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
