package etcd

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd/rpc"
)

// A member that hangs or is unreachable is silent, and gRPC waits for it a quarter of a minute. So one member is used
// at a time. It is the first of the list as long as that works. Whenever the member was silent for a beat, it is
// checked. If it does not answer within patience, the first member that does replaces it.
const (
	beat     = 500 * time.Millisecond
	patience = time.Second
	homeward = 20 * time.Second // how often the first member of the list is tried while another one is used
	hopeless = 5 * time.Second  // how long all members must be silent before calls fail at once
)

// seat is one connection to one member.
type seat struct {
	member int // index in the list
	client *clientv3.Client
	calls  *rpc.Client     // a second connection, for frequent calls
	left   context.Context // ends when another seat replaces this one
	leave  context.CancelCauseFunc
	heard  atomic.Int64 // when it last answered a call that needs a majority, in Unix nanoseconds

	mu      sync.Mutex
	watches map[*rpc.Stream]struct{} // the open watches
}

// members holds the cluster's members.
type members struct {
	config    clientv3.Config
	roots     func() *x509.CertPool // authorities for a new connection; nil means those of config
	endpoints []string
	current   atomic.Pointer[seat]
	// silentAt is since when no member answers a call that needs a majority, in Unix nanoseconds; 0 if one does.
	silentAt atomic.Int64
	stop     context.CancelFunc
	tended   sync.WaitGroup
}

func (m *members) open(config clientv3.Config, endpoints []string) error {
	m.config, m.endpoints = config, endpoints
	first, err := m.seat(0)
	if err != nil {
		return err
	}
	m.current.Store(first)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if len(endpoints) > 1 {
		m.tended.Go(func() { m.tend(ctx) })
	}
	return nil
}

func (m *members) close() error {
	m.stop()
	m.tended.Wait()
	s := m.current.Load()
	s.leave(errors.New("the store is closed"))
	return s.close()
}

func (s *seat) close() error {
	s.calls.Close()
	return s.client.Close()
}

// at returns the seat to use. It returns an error if no member has answered for a while. Otherwise calls would wait
// until the caller's timeout, because a member without a majority does not answer.
func (m *members) at() (*seat, error) {
	if since := m.silentAt.Load(); since != 0 && time.Since(time.Unix(0, since)) > hopeless {
		return nil, fmt.Errorf(
			"%w: etcd has no leader, or its leader no majority of the members: none has answered since %s",
			store.ErrUnavailable,
			time.Unix(0, since).UTC().Format(time.TimeOnly),
		)
	}
	return m.current.Load(), nil
}

func (m *members) seat(member int) (*seat, error) {
	config := m.config
	config.Endpoints = m.endpoints[member : member+1]
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the store's member %s: %w", m.endpoints[member], err)
	}
	calls := rpc.New(rpc.Config{
		Endpoint: m.endpoints[member], TLS: config.TLS, Roots: m.roots, DialTimeout: config.DialTimeout,
		Headers: []rpc.Header{{Name: rpctypes.MetadataClientAPIVersionKey, Value: version.APIVersion}},
	})
	s := &seat{member: member, client: client, calls: calls, watches: map[*rpc.Stream]struct{}{}}
	s.left, s.leave = context.WithCancelCause(context.Background())
	return s, nil
}

// answered records that the member did its work, unless err is set.
func (s *seat) answered(err error) {
	if err == nil {
		s.heard.Store(time.Now().UnixNano())
	}
}

// fails returns the reason why a call failed. If the seat was replaced, that is the reason.
func (s *seat) fails(err error) error {
	if err != nil && s.left.Err() != nil {
		return context.Cause(s.left)
	}
	return err
}

// ask makes the smallest call that needs a majority.
func (s *seat) ask(ctx context.Context) (revision int64, err error) {
	r, err := s.askWho(ctx)
	if err != nil {
		return 0, err
	}
	return r.revision, nil
}

// askWho is like ask, and also returns the identity of the store's history.
func (s *seat) askWho(ctx context.Context) (*rangeReply, error) {
	r, err := s.read(ctx, "\x00", true)
	if err != nil {
		return nil, s.fails(err)
	}
	s.answered(nil)
	return r, nil
}

// answers is like ask, but without the revision. It needs a majority as a read does, but reads no keys. So the metrics
// of range requests count only real reads.
func (s *seat) answers(ctx context.Context) error {
	_, err := s.client.MemberList(ctx)
	s.answered(err)
	return s.fails(err)
}

func (m *members) tend(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	tried := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := m.current.Load()
		if time.Since(time.Unix(0, s.heard.Load())) > beat && m.silent(ctx, s) {
			var others []int
			for i := range m.endpoints {
				if i != s.member {
					others = append(others, i)
				}
			}
			m.move(ctx, s, others...)
			if m.current.Load() == s {
				m.silentAt.CompareAndSwap(0, time.Now().UnixNano())
				continue
			}
			tried = time.Now()
		} else if s.member != 0 && time.Since(tried) > homeward {
			m.move(ctx, s, 0)
			tried = time.Now()
		}
		m.silentAt.Store(0)
	}
}

func (m *members) silent(ctx context.Context, s *seat) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.answers(ctx) != nil
}

// move replaces the seat by the first candidate that answers. If none does, there is no majority, and the seat stays: a
// change would only interrupt calls that may still succeed.
func (m *members) move(ctx context.Context, from *seat, candidates ...int) {
	if ctx.Err() != nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan *seat, len(candidates))
	for _, i := range candidates {
		go func() {
			s, err := m.seat(i)
			if err == nil {
				if _, err = s.ask(asking); err != nil {
					_ = s.close()
					s = nil
				}
			}
			answers <- s
		}()
	}
	taken := false
	for range candidates {
		s := <-answers
		switch {
		case s == nil:
		case taken:
			_ = s.close()
		default:
			taken = true
			m.current.Store(s)
			from.leave(
				fmt.Errorf(
					"%w: its member %s was left for %s",
					store.ErrUnavailable,
					m.endpoints[from.member],
					m.endpoints[s.member],
				),
			)
			// Pending calls end here. Their outcome is unknown, as with any broken connection.
			_ = from.close()
			cancel() // the slower candidates are not needed
		}
	}
}
