package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// Access is a way to the store through the agents of the control plane's machines: nobody but them reaches its ports. What is done there,
// the program etcd does, of this release.
type Access struct {
	p *Prepared
}

// Times that the store is given.
const (
	lookTimeout = 30 * time.Second
	saveTimeout = 20 * time.Minute
	bigTimeout  = 10 * time.Minute // what goes through all of the database
)

// OpenStore connects to the machines of the control plane. One that does not answer is no reason to stop, as long as another does.
func (e *Engine) OpenStore(ctx context.Context) (*Access, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("there is no cluster yet: apply first")
	}
	p := &Prepared{engine: e, State: s, Plan: &plan.Plan{}, Secrets: union(e.Config.Secrets, s.Keys.Secrets)}
	for _, m := range e.Config.ControlPlane() {
		if s.Machines[m.Address].Joined {
			p.machines = append(p.machines, &machine{Machine: m, action: plan.Change})
		}
	}
	a := &Access{p}
	var mu sync.Mutex
	var errs []error
	if err := p.each(ctx, p.machines, func(ctx context.Context, m *machine) error {
		if m.dead = p.reach(ctx, m); m.dead != nil {
			mu.Lock()
			errs = append(errs, fmt.Errorf("%s: %w", m.Address, m.dead))
			mu.Unlock()
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if len(a.reached()) == 0 {
		return nil, fmt.Errorf("no machine of the control plane is reached: %w", errors.Join(errs...))
	}
	return a, nil
}

// Close ends all connections.
func (a *Access) Close() { a.p.Close() }

// Unreached says why machines of the control plane are not reached, by their names.
func (a *Access) Unreached() map[string]string {
	list := map[string]string{}
	for _, m := range a.p.machines {
		if m.dead != nil {
			list[m.Name] = m.dead.Error()
		}
	}
	return list
}

// Machines names the machines of the control plane that are reached.
func (a *Access) Machines() (names []string) {
	for _, m := range a.reached() {
		names = append(names, m.Name)
	}
	return names
}

func (a *Access) reached() (list []*machine) {
	for _, m := range a.p.machines {
		if m.dead == nil && m.agent != nil {
			list = append(list, m)
		}
	}
	return list
}

// members are the machines that hold a member, as the state has it.
func (a *Access) members() (list []config.Machine) {
	for _, m := range role.EtcdMachines(a.p.engine.Config, a.p.State) {
		if _, ok := a.p.State.Etcd[m.Name]; ok {
			list = append(list, m)
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

// ask has a machine do something with the store, once it has the program for that.
func (a *Access) ask(ctx context.Context, m *machine, timeout time.Duration, q store.Request) (store.Answer, error) {
	f, err := a.p.program(ctx, m)
	if err != nil {
		return store.Answer{}, err
	}
	q.Timeout = timeout
	ctx, cancel := context.WithTimeout(ctx, timeout+lookTimeout)
	defer cancel()
	return m.agent.Store(ctx, f.Digest, q)
}

// program sends the program etcd to a machine where it is not yet.
func (p *Prepared) program(ctx context.Context, m *machine) (bundle.File, error) {
	f, there, err := role.StoreProgram(p.engine.Bundle)
	if err != nil {
		return f, err
	}
	changes, err := m.agent.Check(ctx, []step.Step{there})
	if err != nil {
		return f, err
	}
	if changes[0].Action == "" {
		return f, nil
	}
	p.engine.say(Event{Kind: EventSend, Machine: m.Address, Message: fmt.Sprintf("%s, %d MB", f.Name, (f.Size+999_999)/1_000_000)})
	return f, p.sendOne(ctx, m, f.Digest, f.Name, func() (io.ReadCloser, error) { return p.engine.Bundle.Zstd(f) })
}

// Status asks one machine after the other how the members are, until one reaches a majority of them; or it is what reached the most.
func (a *Access) Status(ctx context.Context) (best []store.Member, err error) {
	var errs []error
	most := -1
	for _, m := range a.reached() {
		answer, err := a.ask(ctx, m, lookTimeout, store.Request{Op: store.Status, Client: role.StoreClient(), Endpoints: a.endpoints()})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Address, err))
			continue
		}
		up := Answering(answer.Members)
		if up > most {
			best, most = answer.Members, up
		}
		if Majority(answer.Members) {
			break
		}
	}
	if best == nil {
		return nil, errors.Join(errs...)
	}
	return best, nil
}

// Answering counts the members that work.
func Answering(list []store.Member) (n int) {
	for _, m := range list {
		if m.Error == "" && !m.Learner {
			n++
		}
	}
	return n
}

// Majority reports whether the store can write.
func Majority(list []store.Member) bool {
	voters := 0
	for _, m := range list {
		if !m.Learner {
			voters++
		}
	}
	return voters > 0 && Answering(list) > voters/2
}

// through is a machine that is reached and whose member works, the leader's first; or the machine that is named.
func (a *Access) through(ctx context.Context, name string) (*machine, error) {
	if name != "" {
		for _, m := range a.p.machines {
			if m.Name != name && m.Address != name && m.Address != "machine."+name {
				continue
			}
			return m, m.dead
		}
		return nil, fmt.Errorf("%s is no machine of the control plane; there are %s", name, strings.Join(a.Machines(), ", "))
	}
	list, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	var found *machine
	for _, s := range list {
		for _, m := range a.reached() {
			if m.Name == s.Name && s.Error == "" && !s.Learner && (found == nil || s.Leader) {
				found = m
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no member of the store answers: %s", why(list))
	}
	return found, nil
}

func why(list []store.Member) string {
	var texts []string
	for _, m := range list {
		if m.Error != "" {
			texts = append(texts, m.Name+": "+m.Error)
		}
	}
	return strings.Join(texts, "; ")
}

// Save has a machine take a snapshot of its member, the leader's when none is named.
func (a *Access) Save(ctx context.Context, name, reason string) (s store.Snapshot, notes []string, err error) {
	m, err := a.through(ctx, name)
	if err != nil {
		return s, nil, err
	}
	return a.save(ctx, m, reason)
}

func (a *Access) save(ctx context.Context, m *machine, reason string) (s store.Snapshot, notes []string, err error) {
	q := a.kept(m)
	q.Op, q.Reason = store.Save, reason
	answer, err := a.ask(ctx, m, saveTimeout, q)
	if err != nil {
		return s, nil, fmt.Errorf("%s: take a snapshot: %w", m.Address, err)
	}
	if len(answer.Snapshots) != 1 {
		return s, nil, fmt.Errorf("%s: it says nothing of the snapshot that it took", m.Address)
	}
	return located(answer.Snapshots, m.Name)[0], answer.Notes, nil
}

// kept is a request about the snapshots that a machine keeps.
func (a *Access) kept(m *machine) store.Request {
	return store.Request{Settings: role.SnapshotSettings, Directory: a.directory(), Member: m.Name, Endpoint: role.MemberURL, Client: role.StoreClient()}
}

func (a *Access) directory() string {
	if s := a.p.engine.Config.Etcd.Snapshot; s != nil {
		return s.Directory
	}
	return store.Directory
}

// Path is where a machine has a snapshot.
func (a *Access) Path(name string) string { return a.directory() + "/" + name + ".db" }

// located has snapshots say which machine has them.
func located(list []store.Snapshot, machine string) []store.Snapshot {
	for i := range list {
		for j, in := range list[i].In {
			if in == "local" {
				list[i].In[j] = machine
			}
		}
	}
	return list
}

// Snapshots lists those of all machines and of the bucket, the newest first.
func (a *Access) Snapshots(ctx context.Context) (all []store.Snapshot, notes []string, err error) {
	return a.everywhere(ctx, func(q *store.Request) { q.Op = store.List })
}

// Prune takes snapshots away: those beyond keep, or what is declared when that is zero; or the one that is named.
func (a *Access) Prune(ctx context.Context, keep int, name string) (gone []store.Snapshot, notes []string, err error) {
	return a.everywhere(ctx, func(q *store.Request) { q.Op, q.Keep, q.Name = store.Prune, int64(keep), name })
}

func (a *Access) everywhere(ctx context.Context, ask func(*store.Request)) (all []store.Snapshot, notes []string, err error) {
	var mu sync.Mutex
	found := map[string]store.Snapshot{}
	err = a.p.each(ctx, a.reached(), func(ctx context.Context, m *machine) error {
		q := a.kept(m)
		ask(&q)
		answer, err := a.ask(ctx, m, bigTimeout, q)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range answer.Notes {
			notes = append(notes, m.Name+": "+n)
		}
		for _, s := range located(answer.Snapshots, m.Name) {
			if had, ok := found[s.Name]; ok {
				s.In = append(s.In, had.In...)
			}
			slices.Sort(s.In)
			s.In = slices.Compact(s.In)
			found[s.Name] = s
		}
		return nil
	})
	all = slices.SortedFunc(maps.Values(found), func(a, b store.Snapshot) int {
		if c := b.Taken.Compare(a.Taken); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	slices.Sort(notes)
	return all, notes, err
}

// Read writes a machine's snapshot to w.
func (a *Access) Read(ctx context.Context, machine, name string, w io.Writer) error {
	m, err := a.through(ctx, machine)
	if err != nil {
		return err
	}
	return m.agent.Read(ctx, a.Path(name), w)
}

// Compact has the store forget what was before a revision, or all but the last keep, and returns the revision.
func (a *Access) Compact(ctx context.Context, revision, keep int64) (int64, error) {
	m, err := a.through(ctx, "")
	if err != nil {
		return 0, err
	}
	answer, err := a.ask(ctx, m, bigTimeout, store.Request{Op: store.Compact, Client: role.StoreClient(), Endpoint: role.MemberURL, Revision: revision, Keep: keep})
	return answer.Revision, err
}

// Disarm takes all alarms back.
func (a *Access) Disarm(ctx context.Context) error {
	m, err := a.through(ctx, "")
	if err != nil {
		return err
	}
	_, err = a.ask(ctx, m, lookTimeout, store.Request{Op: store.Disarm, Client: role.StoreClient(), Endpoint: role.MemberURL})
	return err
}

// Defrag has one member after the other give back what it does not use, the leader last. A member answers nobody meanwhile, so that the others must
// be a majority before each; a store that has one or two members stands still for as long as it takes. done is told of each.
func (a *Access) Defrag(ctx context.Context, done func(before, after store.Member)) error {
	list, err := a.Status(ctx)
	if err != nil {
		return err
	}
	order := DefragOrder(list)
	for _, name := range order {
		before, err := a.spared(ctx, name)
		if err != nil {
			return err
		}
		var asked *machine
		for _, m := range a.reached() {
			if asked == nil || m.Name == name {
				asked = m
			}
		}
		if _, err := a.ask(ctx, asked, bigTimeout, store.Request{Op: store.Defrag, Client: role.StoreClient(), Endpoint: before.Endpoint}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		after, err := a.back(ctx, name)
		if err != nil {
			return err
		}
		done(before, after)
	}
	return nil
}

// DefragOrder names the members in the order in which they may rest: the leader last, so that it changes once at most.
func DefragOrder(list []store.Member) (names []string) {
	leader := ""
	for _, m := range list {
		switch {
		case m.Unstarted:
		case m.Leader:
			leader = m.Name
		default:
			names = append(names, m.Name)
		}
	}
	if leader != "" {
		names = append(names, leader)
	}
	return names
}

// spared is a member that the others can do without for a while.
func (a *Access) spared(ctx context.Context, name string) (m store.Member, err error) {
	list, err := a.Status(ctx)
	if err != nil {
		return m, err
	}
	return m, MaySpare(name, list, &m)
}

// MaySpare says why a member may not rest, nil when it may, and finds it.
func MaySpare(name string, list []store.Member, found *store.Member) error {
	others, voters := 0, 0
	for _, m := range list {
		switch {
		case m.Name == name && m.Error != "":
			return fmt.Errorf("%s does not answer, so that it cannot be defragmented: %s", name, m.Error)
		case m.Name == name:
			*found = m
		case m.Error == "" && !m.Learner:
			others++
		}
		if !m.Learner {
			voters++
		}
	}
	// With every member well, one or two stand still in any case.
	if others <= voters/2 && (others+1 < voters || voters > 2) {
		return fmt.Errorf("%s is not defragmented: the others that answer would be %d of %d, and are no majority (%s). Bring them back first", name, others, voters, why(list))
	}
	return nil
}

// back waits until a member has what the others have.
func (a *Access) back(ctx context.Context, name string) (store.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := a.Status(ctx)
		i := slices.IndexFunc(list, func(m store.Member) bool { return m.Name == name })
		if err == nil && i >= 0 && list[i].Error == "" && Majority(list) {
			return list[i], nil
		}
		select {
		case <-ctx.Done():
			return store.Member{}, fmt.Errorf("%s is not back a minute after it was defragmented, so that the others are left as they are: %s", name, why(list))
		case <-tick.C:
		}
	}
}

// LastSnapshots says how the last snapshots went, by the names of the machines with a member that are reached.
func (a *Access) LastSnapshots() map[string]*store.Outcome {
	list := map[string]*store.Outcome{}
	for _, e := range a.members() {
		for _, m := range a.reached() {
			if m.Name == e.Name {
				list[m.Name] = m.facts.Snapshot
			}
		}
	}
	return list
}

// SnapshotTrouble says what is wrong with a machine's snapshots, "" when nothing is.
func SnapshotTrouble(declared *config.Snapshot, o *store.Outcome, now time.Time) string {
	switch {
	case o == nil:
		return ""
	case o.Error != "":
		return fmt.Sprintf("the snapshot of %s failed: %s", o.Tried.UTC().Format(time.RFC3339), o.Error)
	case declared != nil && o.Good != nil && declared.Schedule.Overdue(o.Good.Taken, now):
		return "the last good snapshot is " + Age(now.Sub(o.Good.Taken)) + " old, and two since were due: see journalctl -u etcd-snapshot there"
	}
	return ""
}

// Age says a duration in one unit that fits.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
