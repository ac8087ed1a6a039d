// Package etcd works on the store through the agents on the control plane: its members, snapshots and restores.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/role"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Access is access to the store through the agents on the control plane's machines, because its ports are open to those
// machines only. The agents run this release's program etcd for each request.
type Access struct {
	Session *session.Session // with the machines of the control plane
	Ledger  *ledger.Ledger
	State   *state.State // of the ledger; nothing else changes it meanwhile
	Config  *config.Cluster
}

// Timeouts of requests about the store.
const (
	requestTimeout  = 30 * time.Second
	saveTimeout     = 20 * time.Minute
	databaseTimeout = 10 * time.Minute // for requests that read or write the whole database
)

// Open connects to the machines of the session. It succeeds if at least one of them is reached.
func (a *Access) Open(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	if err := a.Session.ForEach(ctx, a.Session.Machines, func(ctx context.Context, m *session.Machine) error {
		if m.UnreachedReason = a.Session.Connect(ctx, m); m.UnreachedReason != nil {
			mu.Lock()
			errs = append(errs, fmt.Errorf("%s: %w", m.Address, m.UnreachedReason))
			mu.Unlock()
		}
		return nil
	}); err != nil {
		return err
	}
	if len(a.reached()) == 0 {
		return fmt.Errorf("no machine of the control plane is reached: %w", errors.Join(errs...))
	}
	return nil
}

// Close closes all connections.
func (a *Access) Close() { a.Session.Close() }

// Unreached returns why machines of the control plane are not reached, by machine name.
func (a *Access) Unreached() map[string]string {
	list := map[string]string{}
	for _, m := range a.Session.Machines {
		if m.UnreachedReason != nil {
			list[m.Name] = m.UnreachedReason.Error()
		}
	}
	return list
}

// Machines returns the names of the reached machines of the control plane.
func (a *Access) Machines() (names []string) {
	for _, m := range a.reached() {
		names = append(names, m.Name)
	}
	return names
}

func (a *Access) reached() []*session.Machine {
	return session.Filter(a.Session.Machines, (*session.Machine).IsConnected)
}

// members returns the machines that hold a member according to the state. That includes machines that are about to
// leave the control plane, because their members count until then.
func (a *Access) members() (list []config.Machine) {
	add := func(m config.Machine) {
		_, has := a.State.Etcd[m.Name]
		if has && !slices.ContainsFunc(list, func(other config.Machine) bool { return other.Name == m.Name }) {
			list = append(list, m)
		}
	}
	for _, m := range role.EtcdMachines(a.Config, a.State) {
		add(m)
	}
	for _, address := range slices.Sorted(maps.Keys(a.State.Machines)) {
		if m := a.State.Machines[address].Machine; m.HasRole(config.RoleControlPlane) {
			add(m)
		}
	}
	return list
}

func (a *Access) endpoints() map[string]string {
	list := map[string]string{}
	for _, m := range a.members() {
		list[m.Name] = role.Member(m).Endpoints[0]
	}
	return list
}

// callStore sends the program etcd to a machine if it is missing, and runs it there with a request.
func (a *Access) callStore(ctx context.Context, m *session.Machine, timeout time.Duration,
	q store.Request) (store.Answer, error) {
	f, err := a.program(ctx, m)
	if err != nil {
		return store.Answer{}, err
	}
	q.Timeout = timeout
	ctx, cancel := context.WithTimeout(ctx, timeout+requestTimeout)
	defer cancel()
	return m.Agent.Store(ctx, f.Digest, q)
}

// program sends the program etcd to a machine if it is missing there.
func (a *Access) program(ctx context.Context, m *session.Machine) (bundle.File, error) {
	f, exists, err := role.StoreProgram(a.Session.Files)
	if err != nil {
		return f, err
	}
	changes, err := m.Agent.Check(ctx, []step.Step{exists})
	if err != nil {
		return f, err
	}
	if changes[0].Action == "" {
		return f, nil
	}
	return f, a.Session.SendProgram(ctx, m, f)
}

// Status returns the status of the members. It asks one machine after another until one of them reaches a majority. If
// none does, it returns the result with the most members that answer.
func (a *Access) Status(ctx context.Context) (best []store.Member, err error) {
	var errs []error
	maximum := -1
	for _, m := range a.reached() {
		answer, err := a.callStore(ctx, m, requestTimeout,
			store.Request{Op: store.Status, Client: role.StoreClient(), Endpoints: a.endpoints()})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Address, err))
			continue
		}
		up := CountAnswering(answer.Members)
		if up > maximum {
			best, maximum = answer.Members, up
		}
		if HasMajority(answer.Members) {
			break
		}
	}
	if best == nil {
		return nil, errors.Join(errs...)
	}
	return best, nil
}

// CountAnswering returns the number of voting members that answer.
func CountAnswering(list []store.Member) (n int) {
	for _, m := range list {
		if m.Error == "" && !m.Learner {
			n++
		}
	}
	return n
}

// HasMajority reports whether the members that answer are a majority, so that the store can write.
func HasMajority(list []store.Member) bool {
	voters := 0
	for _, m := range list {
		if !m.Learner {
			voters++
		}
	}
	return voters > 0 && CountAnswering(list) > voters/2
}

// reachMachine returns the named machine, or, if name is empty, a reached machine whose member works, preferably the
// leader's.
func (a *Access) reachMachine(ctx context.Context, name string) (*session.Machine, error) {
	if name != "" {
		for _, m := range a.Session.Machines {
			if m.Name != name && m.Address != name && m.Address != "machine."+name {
				continue
			}
			return m, m.UnreachedReason
		}
		return nil, fmt.Errorf("%s is not a machine of the control plane; there are %s", name,
			strings.Join(a.Machines(), ", "))
	}
	list, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	var found *session.Machine
	for _, s := range list {
		for _, m := range a.reached() {
			if m.Name == s.Name && s.Error == "" && !s.Learner && (found == nil || s.Leader) {
				found = m
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no member of the store answers: %s", failureReasons(list))
	}
	return found, nil
}

func failureReasons(list []store.Member) string {
	var texts []string
	for _, m := range list {
		if m.Error != "" {
			texts = append(texts, m.Name+": "+m.Error)
		}
	}
	return strings.Join(texts, "; ")
}
