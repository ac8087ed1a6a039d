// Package step has the primitives of provisioning. A step's Check returns what differs and changes nothing. Its Apply
// removes the difference and can be repeated. Steps are plain values that are sent to the machine and applied there.
// Package role decides which steps a machine has.
package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

// Step is one property that a machine should have.
type Step interface {
	// Label returns a short name for messages, such as "file /etc/hosts".
	Label() string
	// Check returns what differs, or the zero Change if nothing does.
	Check(ctx context.Context, h host.Host, w *Walk) (Change, error)
	// Apply removes the difference. It is called only if Check has found one.
	Apply(ctx context.Context, h host.Host, w *Walk) error
}

// Change describes what a step would do, for plans and messages.
type Change struct {
	Action string   `json:"action,omitempty"` // Create, Update or Delete; empty if nothing differs
	Kind   string   `json:"kind,omitempty"`
	Name   string   `json:"name,omitempty"`
	Note   string   `json:"note,omitempty"`
	Diff   []string `json:"diff,omitempty"`
	Needs  string   `json:"needs,omitempty"` // digest of a file that must be sent first
	Bytes  int64    `json:"bytes,omitempty"` // size of that file
	// IsBroken means that the present state does not work, so that changing it costs nothing: an invalid certificate or
	// a dead unit.
	IsBroken bool `json:"broken,omitempty"`
}

// Actions of changes.
const (
	Create = "+"
	Update = "~"
	Delete = "-"
)

// Walk is shared by the steps of one walk.
type Walk struct {
	changed map[string]bool   // paths that differ, or that differed before they were applied
	links   map[string]string // targets of links that were missing
}

// Restore records that a missing link is created again.
func (w *Walk) Restore(path, target string) {
	if w.links == nil {
		w.links = map[string]string{}
	}
	w.links[path] = target
}

// Touch records that a path's content changes in this walk.
func (w *Walk) Touch(path string) {
	if w.changed == nil {
		w.changed = map[string]bool{}
	}
	w.changed[path] = true
}

// Touched returns the paths among those given that change in this walk.
func (w *Walk) Touched(paths []string) (list []string) {
	for _, p := range paths {
		if w.changed[p] {
			list = append(list, p)
		}
	}
	return list
}

// Kinds has every kind of step, by its name in the protocol.
var Kinds = map[string]func() Step{
	"file":         func() Step { return &File{} },
	"directory":    func() Step { return &Directory{} },
	"symlink":      func() Step { return &Symlink{} },
	"foreign":      func() Step { return &Foreign{} },
	"pruned":       func() Step { return &PruneDirs{} },
	"program":      func() Step { return &Program{} },
	"absent":       func() Step { return &Absent{} },
	"empty":        func() Step { return &Empty{} },
	"binary":       func() Step { return &Binary{} },
	"certificate":  func() Step { return &Certificate{} },
	"kubeconfig":   func() Step { return &Kubeconfig{} },
	"lifetime":     func() Step { return &Lifetime{} },
	"unit":         func() Step { return &Unit{} },
	"no-unit":      func() Step { return &RemoveUnit{} },
	"drop-ins":     func() Step { return &DropIns{} },
	"static-pod":   func() Step { return &StaticPod{} },
	"no-static":    func() Step { return &RemoveStaticPod{} },
	"sysctl":       func() Step { return &Sysctl{} },
	"sysctl-was":   func() Step { return &SavedSysctl{} },
	"sysctls":      func() Step { return &RestoreSysctls{} },
	"no-cgroups":   func() Step { return &RemoveCgroups{} },
	"no-files":     func() Step { return &RemoveFiles{} },
	"unused":       func() Step { return &RemoveEmpty{} },
	"image":        func() Step { return &Image{} },
	"package":      func() Step { return &Package{} },
	"lists":        func() Step { return &PackageLists{} },
	"upgrade":      func() Step { return &Upgrade{} },
	"reboot":       func() Step { return &Reboot{} },
	"no-network":   func() Step { return &ClearNetwork{} },
	"keep":         func() Step { return &KeepRelease{} },
	"hold":         func() Step { return &HoldRelease{} },
	"roll-back":    func() Step { return &RollBack{} },
	"sweep":        func() Step { return &Sweep{} },
	"no-pods":      func() Step { return &StopPods{} },
	"no-mounts":    func() Step { return &Unmount{} },
	"etcd-former":  func() Step { return &RemoveFormerEtcd{} },
	"etcd-join":    func() Step { return &EtcdJoin{} },
	"etcd-vote":    func() Step { return &EtcdVote{} },
	"etcd-leave":   func() Step { return &EtcdLeave{} },
	"etcd-members": func() Step { return &Membership{} },
	"etcd-health":  func() Step { return &MemberHealth{} },
	"api-health":   func() Step { return &ServerHealth{} },
	"api-reach":    func() Step { return &APIReach{} },
	"rotation":     func() Step { return &ShowRotation{} },
	"answer":       func() Step { return &AwaitAnswer{} },
	"present":      func() Step { return &CheckSent{} },
	"stopped":      func() Step { return &StopUnit{} },
	"aside":        func() Step { return &MoveAside{} },
	"reread":       func() Step { return &AwaitReload{} },
}

// kindNames maps types of steps to their names in Kinds.
var kindNames = func() map[reflect.Type]string {
	all := map[reflect.Type]string{}
	for name, make := range Kinds {
		all[reflect.TypeOf(make())] = name
	}
	return all
}()

// Pack encodes steps one after another: the kind's name, and then the step. A flat stream is parsed once, while nested
// JSON values would be parsed again at each level.
func Pack(to *json.Encoder, steps []Step) error {
	for _, s := range steps {
		kind, ok := kindNames[reflect.TypeOf(s)]
		if !ok {
			return fmt.Errorf("step %s is of a kind that cannot travel", s.Label())
		}
		if err := to.Encode(kind); err != nil {
			return err
		}
		if err := to.Encode(s); err != nil {
			return fmt.Errorf("pack step %s: %w", s.Label(), err)
		}
	}
	return nil
}

// Unpack decodes steps that Pack has encoded. It reads to the end.
func Unpack(from *json.Decoder) (steps []Step, err error) {
	for {
		var kind string
		if err := from.Decode(&kind); errors.Is(err, io.EOF) {
			return steps, nil
		} else if err != nil {
			return nil, fmt.Errorf("unpack the kind of a step: %w", err)
		}
		make, ok := Kinds[kind]
		if !ok {
			return nil, fmt.Errorf("unknown kind of step %q", kind)
		}
		s := make()
		if err := from.Decode(s); err != nil {
			return nil, fmt.Errorf("unpack a step of kind %s: %w", kind, err)
		}
		steps = append(steps, s)
	}
}

// Issuer is a step that needs a certificate before it can be applied.
type Issuer interface {
	// CertificateRequest returns the authority's name and the certificate request.
	CertificateRequest() (ca string, r certs.Request)
	// SetPair sets the issued certificate.
	SetPair(certs.Pair)
}
