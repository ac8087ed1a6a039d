package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
)

// Compact makes the store discard all revisions before revision, or all but the last keep, and returns the revision
// that it compacted to.
func (a *Access) Compact(ctx context.Context, revision, keep int64) (int64, error) {
	m, err := a.reachMachine(ctx, "")
	if err != nil {
		return 0, err
	}
	answer, err := a.callStore(
		ctx,
		m,
		databaseTimeout,
		store.Request{
			Op:       store.Compact,
			Client:   role.StoreClient(),
			Endpoint: role.MemberURL,
			Revision: revision,
			Keep:     keep,
		},
	)
	return answer.Revision, err
}

// Disarm clears all alarms of the store.
func (a *Access) Disarm(ctx context.Context) error {
	m, err := a.reachMachine(ctx, "")
	if err != nil {
		return err
	}
	_, err = a.callStore(ctx, m, requestTimeout,
		store.Request{Op: store.Disarm, Client: role.StoreClient(), Endpoint: role.MemberURL})
	return err
}

// Defrag has each member in turn release the disk space that it does not use, the leader last. A member does not answer
// meanwhile, so the others must be a majority before each step. A store of one or two members is unavailable for that
// time. Defrag calls done after each member.
func (a *Access) Defrag(ctx context.Context, done func(before, after store.Member)) error {
	list, err := a.Status(ctx)
	if err != nil {
		return err
	}
	order := DefragOrder(list)
	for _, name := range order {
		before, err := a.checkSparable(ctx, name)
		if err != nil {
			return err
		}
		var machine *session.Machine
		for _, m := range a.reached() {
			if machine == nil || m.Name == name {
				machine = m
			}
		}
		if _, err := a.callStore(ctx, machine, databaseTimeout,
			store.Request{Op: store.Defrag, Client: role.StoreClient(), Endpoint: before.Endpoint}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		after, err := a.awaitMember(ctx, name)
		if err != nil {
			return err
		}
		done(before, after)
	}
	return nil
}

// DefragOrder returns the members' names in the order to defragment them: the leader last, so that leadership changes
// at most once.
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

// checkSparable returns the member of a name, and an error if the others cannot do without it for a while.
func (a *Access) checkSparable(ctx context.Context, name string) (m store.Member, err error) {
	list, err := a.Status(ctx)
	if err != nil {
		return m, err
	}
	if i := slices.IndexFunc(list, func(m store.Member) bool { return m.Name == name }); i >= 0 {
		m = list[i]
	}
	return m, spareError(name, list)
}

// spareError returns why a member cannot be taken out of service for a while, or nil if it can.
func spareError(name string, list []store.Member) error {
	others, voters := 0, 0
	for _, m := range list {
		switch {
		case m.Name == name && m.Error != "":
			return fmt.Errorf("%s does not answer, so that it cannot be defragmented: %s", name, m.Error)
		case m.Name != name && m.Error == "" && !m.Learner:
			others++
		}
		if !m.Learner {
			voters++
		}
	}
	// A store of one or two members, all of them healthy, is unavailable meanwhile in any case.
	if others <= voters/2 && (others+1 < voters || voters > 2) {
		return fmt.Errorf("%s is not defragmented: the others that answer would be %d of %d, which is not a majority "+
			"(%s). Bring them back first", name, others, voters, failureReasons(list))
	}
	return nil
}

// awaitMember waits until a member answers again and the store has a majority.
func (a *Access) awaitMember(ctx context.Context, name string) (store.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := a.Status(ctx)
		i := slices.IndexFunc(list, func(m store.Member) bool { return m.Name == name })
		if err == nil && i >= 0 && list[i].Error == "" && HasMajority(list) {
			return list[i], nil
		}
		select {
		case <-ctx.Done():
			return store.Member{}, fmt.Errorf("%s is not back a minute after it was defragmented, so that the "+
				"others are left as they are: %s", name, failureReasons(list))
		case <-tick.C:
		}
	}
}
