// Package upkeep inspects and maintains the store's members: status, defragmentation, compaction and alarms. Users
// decide when to run what. Snapshots are in daemons/store/snapshot.
package upkeep

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"clusterctl/daemons/config/store"
)

// Connect returns a client of the store, with the certificate that c names.
func Connect(ctx context.Context, c store.Client, endpoints ...string) (*clientv3.Client, error) {
	o := clientv3.Config{
		Context: ctx, Endpoints: endpoints, DialTimeout: dialTimeout, Logger: zap.NewNop(),
		MaxCallRecvMsgSize: 64 << 20,
		// Proxies in the environment are for connections outside the cluster.
		DialOptions: []grpc.DialOption{grpc.WithNoProxy()},
	}
	if c.CA != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate towards etcd: %w", err)
		}
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read etcd's CA: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client, err := clientv3.New(o)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", endpoints, err)
	}
	return client, nil
}

const (
	dialTimeout   = 5 * time.Second
	statusTimeout = 5 * time.Second // for one member
)

// Status returns the status of every member. It asks all members concurrently, and takes the list of members from one
// that answers. endpoints maps members' names to URLs.
func Status(ctx context.Context, c store.Client, endpoints map[string]string) ([]store.Member, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var found []*etcdserverpb.Member
	var alarms []*etcdserverpb.AlarmMember
	list := make([]store.Member, 0, len(endpoints))
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			m, members, raised, err := memberStatus(ctx, c, name, endpoints[name])
			if err != nil {
				m.Error = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			list = append(list, m)
			if members != nil {
				found, alarms = members, raised
			}
		})
	}
	wg.Wait()
	for _, k := range found {
		id := strconv.FormatUint(k.ID, 16)
		if i := slices.IndexFunc(list,
			func(m store.Member) bool { return m.ID == id || m.ID == "" && m.Name == k.Name }); i >= 0 {
			list[i].ID, list[i].Learner = id, k.IsLearner
			continue
		}
		m := store.Member{
			ID:        id,
			Name:      k.Name,
			Learner:   k.IsLearner,
			Unstarted: k.Name == "",
			Error:     "it is on none of the cluster's machines",
		}
		if len(k.ClientURLs) > 0 {
			m.Endpoint = k.ClientURLs[0]
		}
		list = append(list, m)
	}
	// A member that is declared but has not joined yet is left out.
	if found != nil {
		list = slices.DeleteFunc(list, func(m store.Member) bool {
			return m.Error != "" &&
				!slices.ContainsFunc(found,
					func(k *etcdserverpb.Member) bool { return strconv.FormatUint(k.ID, 16) == m.ID })
		})
	}
	for _, a := range alarms {
		for i := range list {
			if list[i].ID == strconv.FormatUint(a.MemberID, 16) {
				list[i].Alarms = append(list[i].Alarms, a.Alarm.String())
			}
		}
	}
	slices.SortFunc(list,
		func(a, b store.Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// memberStatus asks one member. members and alarms are nil if the store has no majority to confirm them.
func memberStatus(
	ctx context.Context,
	c store.Client,
	name, endpoint string,
) (m store.Member, members []*etcdserverpb.Member, alarms []*etcdserverpb.AlarmMember, err error) {
	m = store.Member{Name: name, Endpoint: endpoint}
	if err := checkListening(ctx, endpoint); err != nil {
		return m, nil, nil, err
	}
	client, err := Connect(ctx, c, endpoint)
	if err != nil {
		return m, nil, nil, err
	}
	defer func() { _ = client.Close() }()
	s, err := client.Status(ctx, endpoint)
	if err != nil {
		return m, nil, nil, err
	}
	m.ID, m.Cluster, m.Version = strconv.FormatUint(s.Header.MemberId, 16), strconv.FormatUint(s.Header.ClusterId,
		16), s.Version
	m.Leader, m.Learner = s.Leader == s.Header.MemberId, s.IsLearner
	m.Size, m.Used, m.Quota, m.Revision, m.Index = s.DbSize, s.DbSizeInUse, s.DbSizeQuota, s.Header.Revision,
		s.RaftIndex
	if s.Leader == 0 {
		return m, nil, nil, errors.New("it has no leader: the members that it reaches are not a majority")
	}
	answer, err := client.MemberList(ctx)
	if err != nil {
		return m, nil, nil, fmt.Errorf("it runs, and the store does not answer through it: %w", err)
	}
	if m.Learner { // a learner does not report alarms
		return m, answer.Members, nil, nil
	}
	raised, err := client.AlarmList(ctx)
	if err != nil {
		return m, nil, nil, fmt.Errorf("list alarms: %w", err)
	}
	return m, answer.Members, raised.Alarms, nil
}

// checkListening returns an error at once if nothing listens at an endpoint. etcd's client would wait instead.
func checkListening(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Defrag makes one member free the disk space that it does not use. The member does not answer requests meanwhile.
func Defrag(ctx context.Context, client *clientv3.Client, endpoint string) error {
	if _, err := client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragment the member at %s: %w", endpoint, err)
	}
	return nil
}

// Compact compacts the store at a revision, and frees the space inside the database file as well. With a revision of 0,
// it retains the last keep revisions. It returns the revision of the compaction.
func Compact(ctx context.Context, client *clientv3.Client, revision, keep int64) (int64, error) {
	if revision == 0 {
		now, err := client.Get(ctx, "compact", clientv3.WithCountOnly())
		if err != nil {
			return 0, fmt.Errorf("ask for the revision: %w", err)
		}
		revision = now.Header.Revision - keep
	}
	if revision <= 0 {
		return 0, nil
	}
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return 0, fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return revision, nil
}

// ClearAlarms clears all alarms. The store raises them again if their cause remains.
func ClearAlarms(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("disarm the alarms: %w", err)
	}
	return nil
}
