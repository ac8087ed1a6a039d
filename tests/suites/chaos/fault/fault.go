// Package fault makes a lab's machines fail as real machines do, and repairs them: every fault undoes itself. It knows
// only the names of the cluster's units.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clusterctl/tests/lab/machines"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Kill   Kind = "kill"   // SIGKILL to a unit's process
	Stop   Kind = "stop"   // SIGSTOP to a unit's process, until its watchdog acts or the fault ends
	Power  Kind = "power"  // a power cut; at the end, power again
	Cut    Kind = "cut"    // the link is down; at the end, up again
	Slow   Kind = "slow"   // the link is slow
	Fill   Kind = "fill"   // the disk has no space left
	Leader Kind = "leader" // SIGKILL to the leader of etcd; the leader is found when the fault begins
	Expire Kind = "expire" // a unit's certificate expires after ten seconds, until the end of the fault
	Lose   Kind = "lose"   // a control-plane machine returns from a power cut without its etcd member's data
)

// IsOfUnit reports whether the fault affects one unit of a machine.
func (k Kind) IsOfUnit() bool { return k == Kill || k == Stop || k == Expire }

// Fault is one fault for a time.
type Fault struct {
	Kind     Kind
	Machines []string // all at the same time
	Unit     string   // only if Kind.IsOfUnit
	Duration time.Duration
}

func (f Fault) String() string {
	words := []string{string(f.Kind), strings.Join(f.Machines, ",")}
	if f.Unit != "" {
		words = append(words, f.Unit)
	}
	if f.Duration > 0 {
		words = append(words, "for "+f.Duration.String())
	}
	return strings.Join(words, " ")
}

// DisconnectsMachines reports whether the fault disconnects its machines from the others, so that what they serve is
// unreachable.
func (f Fault) DisconnectsMachines() bool { return f.Kind == Power || f.Kind == Cut || f.Kind == Lose }

// slowKbit is the rate of a slow link, in kilobits a second.
const slowKbit = 1000

// Run begins the fault, waits, and undoes it, also if ctx ends earlier. mend applies the configuration, for faults that
// only an administrator can repair.
func (f Fault) Run(ctx context.Context, lab *machines.Lab, mend func(context.Context) error) error {
	var list []*machines.Machine
	for _, name := range f.Machines {
		m := lab.Machine(name)
		if m == nil {
			return fmt.Errorf("%s: the lab has no machine %q", f, name)
		}
		list = append(list, m)
	}
	if f.Kind == Leader {
		m, err := etcdLeader(ctx, list)
		if err != nil {
			return err
		}
		list, f.Unit = []*machines.Machine{m}, "etcd"
	}
	var errs []error
	var undo []func(context.Context) error
	for _, m := range list {
		back, err := f.startFault(ctx, lab, m, mend)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f, err))
		}
		if back != nil {
			undo = append(undo, back)
		}
	}
	if f.Duration > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(f.Duration):
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	for _, back := range undo {
		if err := back(after); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", f, err))
		}
	}
	return errors.Join(errs...)
}

// startTime is the longest time to wait for a unit's process, which an earlier fault may have killed.
const startTime = 30 * time.Second

// awaitProcess returns the process id of a unit, once it has one.
func awaitProcess(ctx context.Context, m *machines.Machine, unit string) (pid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		pid, err = m.Run(ctx, "systemctl show -P MainPID "+unit)
		if pid = strings.TrimSpace(pid); err == nil && pid != "0" {
			return pid, nil
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(err, fmt.Errorf("%s has not run on %s for %s", unit, m.Name, startTime))
		case <-tick.C:
		}
	}
}

// startFault begins the fault on one machine and returns how to undo it.
func (f Fault) startFault(
	ctx context.Context,
	lab *machines.Lab,
	m *machines.Machine,
	mend func(context.Context) error,
) (undo func(context.Context) error, err error) {
	switch f.Kind {
	case Kill, Leader:
		pid, err := awaitProcess(ctx, m, f.Unit)
		if err != nil {
			return nil, err
		}
		_, err = m.Run(ctx, "kill -KILL "+pid)
		return nil, err
	case Stop:
		pid, err := awaitProcess(ctx, m, f.Unit)
		if err != nil {
			return nil, err
		}
		_, err = m.Run(ctx, "kill -STOP "+pid)
		return func(ctx context.Context) error {
			_, err := m.Run(ctx, "kill -CONT "+pid+" 2>/dev/null || true") // the watchdog may already have killed it
			return err
		}, err
	case Power:
		return m.Start, m.PowerCut(ctx)
	case Cut:
		return m.Reconnect, m.Disconnect(ctx)
	case Slow:
		return m.ResetSlow, m.Slow(ctx, slowKbit)
	case Expire:
		return expireCertificate(ctx, lab, m, f.Unit)
	case Lose:
		return func(ctx context.Context) error {
			if err := m.Start(ctx); err != nil {
				return err
			}
			return mend(ctx)
		}, loseData(ctx, m)
	case Fill:
		return func(context.Context) error { return m.Free() }, m.Fill()
	}
	return nil, fmt.Errorf("no fault is called %q", f.Kind)
}

// loseData cuts a machine's power and deletes its etcd member's data, as when a disk is replaced.
func loseData(ctx context.Context, m *machines.Machine) error {
	if _, err := m.Run(ctx, "systemctl disable -q etcd && systemctl kill -s KILL etcd && rm -rf "+
		"/var/lib/etcd/member"); err != nil {
		return err
	}
	return m.PowerCut(ctx)
}

// etcdLeader returns the machine whose etcd member is the leader.
func etcdLeader(ctx context.Context, list []*machines.Machine) (*machines.Machine, error) {
	var errs []error
	for _, m := range list {
		out, err := m.Run(ctx, "curl -sf -m 2 http://127.0.0.1:2381/metrics | grep '^etcd_server_is_leader '")
		if err != nil {
			errs = append(errs, err)
		} else if strings.HasSuffix(strings.TrimSpace(out), " 1") {
			return m, nil
		}
	}
	return nil, errors.Join(append(errs, errors.New("no member of etcd says that it leads"))...)
}
