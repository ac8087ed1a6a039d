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

// A member that hangs or is unreachable is silent, and gRPC waits 15 seconds for it. Therefore one member is used at a
// time. It is the first member of the list, as long as that member works. A member that was silent for
// heartbeatInterval is checked. If it does not answer within silenceTimeout, the first member that answers replaces it.
const (
	heartbeatInterval = 500 * time.Millisecond
	silenceTimeout    = time.Second
	preferredRetry    = 20 * time.Second // how often the first member of the list is tried while another one is used
	failFastAfter     = 5 * time.Second  // how long all members must be silent before calls fail at once
)

// memberConn is one connection to one member.
type memberConn struct {
	member          int // index in the list
	etcdClient      *clientv3.Client
	fastClient      *rpc.Client     // a second connection, for frequent calls
	replacedContext context.Context // ends when another seat replaces this one
	replace         context.CancelCauseFunc
	lastAnswer      atomic.Int64 // when it last answered a call that needs a majority, in Unix nanoseconds

	mu      sync.Mutex
	watches map[*rpc.Stream]struct{} // the open watches
}

// memberSet holds the cluster's members.
type memberSet struct {
	config    clientv3.Config
	roots     func() *x509.CertPool // authorities for a new connection; nil means those of config
	endpoints []string
	current   atomic.Pointer[memberConn]
	// silentSince is since when no member answers a call that needs a majority, in Unix nanoseconds; 0 if one does.
	silentSince atomic.Int64
	stop        context.CancelFunc
	monitoring  sync.WaitGroup
}

func (m *memberSet) open(config clientv3.Config, endpoints []string) error {
	m.config, m.endpoints = config, endpoints
	first, err := m.connect(0)
	if err != nil {
		return err
	}
	m.current.Store(first)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if len(endpoints) > 1 {
		m.monitoring.Go(func() { m.monitor(ctx) })
	}
	return nil
}

func (m *memberSet) close() error {
	m.stop()
	m.monitoring.Wait()
	s := m.current.Load()
	s.replace(errors.New("the store is closed"))
	return s.close()
}

func (s *memberConn) close() error {
	s.fastClient.Close()
	return s.etcdClient.Close()
}

// active returns the seat to use. It returns an error if no member has answered for a while. Otherwise calls would wait
// until the caller's timeout, because a member without a majority does not answer.
func (m *memberSet) active() (*memberConn, error) {
	if since := m.silentSince.Load(); since != 0 && time.Since(time.Unix(0, since)) > failFastAfter {
		return nil, fmt.Errorf(
			"%w: etcd has no leader, or its leader no majority of the members: none has answered since %s",
			store.ErrUnavailable, time.Unix(0, since).UTC().Format(time.TimeOnly))
	}
	return m.current.Load(), nil
}

func (m *memberSet) connect(member int) (*memberConn, error) {
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
	s := &memberConn{member: member, etcdClient: client, fastClient: calls, watches: map[*rpc.Stream]struct{}{}}
	s.replacedContext, s.replace = context.WithCancelCause(context.Background())
	return s, nil
}

// recordAnswer records that the member did its work, unless err is set.
func (s *memberConn) recordAnswer(err error) {
	if err == nil {
		s.lastAnswer.Store(time.Now().UnixNano())
	}
}

// replaceError returns the reason why a call failed. If the seat was replaced, that is the reason.
func (s *memberConn) replaceError(err error) error {
	if err != nil && s.replacedContext.Err() != nil {
		return context.Cause(s.replacedContext)
	}
	return err
}

// readRevision makes the smallest call that needs a majority.
func (s *memberConn) readRevision(ctx context.Context) (revision int64, err error) {
	r, err := s.readIdentity(ctx)
	if err != nil {
		return 0, err
	}
	return r.revision, nil
}

// readIdentity is like readRevision, and also returns the identity of the store's history.
func (s *memberConn) readIdentity(ctx context.Context) (*rangeReply, error) {
	r, err := s.read(ctx, "\x00", true)
	if err != nil {
		return nil, s.replaceError(err)
	}
	s.recordAnswer(nil)
	return r, nil
}

// checkMajority is like readRevision, but without the revision. It needs a majority like a read, but reads no keys.
// Therefore the metrics of range requests count only reads of clients.
func (s *memberConn) checkMajority(ctx context.Context) error {
	_, err := s.etcdClient.MemberList(ctx)
	s.recordAnswer(err)
	return s.replaceError(err)
}

func (m *memberSet) monitor(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	tried := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := m.current.Load()
		if time.Since(time.Unix(0, s.lastAnswer.Load())) > heartbeatInterval && m.isSilent(ctx, s) {
			var others []int
			for i := range m.endpoints {
				if i != s.member {
					others = append(others, i)
				}
			}
			m.switchTo(ctx, s, others...)
			if m.current.Load() == s {
				m.silentSince.CompareAndSwap(0, time.Now().UnixNano())
				continue
			}
			tried = time.Now()
		} else if s.member != 0 && time.Since(tried) > preferredRetry {
			m.switchTo(ctx, s, 0)
			tried = time.Now()
		}
		m.silentSince.Store(0)
	}
}

func (m *memberSet) isSilent(ctx context.Context, s *memberConn) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceTimeout)
	defer cancel()
	return s.checkMajority(ctx) != nil
}

// switchTo replaces the seat by the first candidate that answers. If none does, there is no majority, and the seat
// stays: a change would only interrupt calls that may still succeed.
func (m *memberSet) switchTo(ctx context.Context, from *memberConn, candidates ...int) {
	if ctx.Err() != nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, silenceTimeout)
	defer cancel()
	answers := make(chan *memberConn, len(candidates))
	for _, i := range candidates {
		go func() {
			s, err := m.connect(i)
			if err == nil {
				if _, err = s.readRevision(asking); err != nil {
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
			from.replace(fmt.Errorf("%w: its member %s was left for %s", store.ErrUnavailable, m.endpoints[from.member],
				m.endpoints[s.member]))
			// Pending calls end here. Their outcome is unknown, as with any broken connection.
			_ = from.close()
			cancel() // the slower candidates are not needed
		}
	}
}
