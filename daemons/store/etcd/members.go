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

// A member that hangs or is off the network says nothing, and grpc waits for it a quarter of a minute. So one member is
// used at a time, the first of the list as long as it does its work, and whether it does is asked whenever nothing was
// heard from it for a beat. One that does not answer within its patience is left for the first that does.
const (
	beat     = 500 * time.Millisecond
	patience = time.Second
	homeward = 20 * time.Second // how often the first of the list is tried while another one is used
	hopeless = 5 * time.Second  // of silence of all members, after which it is not asked of them what would only wait
)

// seat is one connection to one member.
type seat struct {
	member int // its place in the list
	client *clientv3.Client
	calls  *rpc.Client     // beside the client's connection: for what there is much of
	left   context.Context // ends when another seat is taken
	leave  context.CancelCauseFunc
	heard  atomic.Int64 // when it last answered what needs a majority, in nanoseconds of the clock

	mu      sync.Mutex
	watches map[*rpc.Stream]struct{} // that are open
}

// members are those of the cluster.
type members struct {
	config    clientv3.Config
	roots     func() *x509.CertPool // by which a new connection is judged; nil: by those of config
	endpoints []string
	current   atomic.Pointer[seat]
	// since when no member answers what needs a majority, in nanoseconds of the clock; 0: one does
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

// at is the seat to ask, or why there is no use in asking: without a majority a member keeps what it is asked until
// the caller's time is up, and one that is off keeps it longer.
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

// answered notes that the member did its work.
func (s *seat) answered(err error) {
	if err == nil {
		s.heard.Store(time.Now().UnixNano())
	}
}

// fails says why a call failed: because the seat was left, when that is so.
func (s *seat) fails(err error) error {
	if err != nil && s.left.Err() != nil {
		return context.Cause(s.left)
	}
	return err
}

// ask is the least that needs a majority.
func (s *seat) ask(ctx context.Context) (revision int64, err error) {
	r, err := s.askWho(ctx)
	if err != nil {
		return 0, err
	}
	return r.revision, nil
}

// askWho is ask, and tells in addition which history of the store it is that answers.
func (s *seat) askWho(ctx context.Context) (*rangeReply, error) {
	r, err := s.read(ctx, "\x00", true)
	if err != nil {
		return nil, s.fails(err)
	}
	s.answered(nil)
	return r, nil
}

// answers is ask for who does not want to know the revision. It needs a majority as a read does, and leaves the keys
// alone: ranges are there for those who want some.
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

// move takes the first of the members that answers, and stays when none does: then there is no majority,
// and a change would only break what may go on.
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
			// What still waits for it ends here; whether it was done is unknown, as with any broken connection.
			_ = from.close()
			cancel() // the slower ones need not be heard
		}
	}
}
