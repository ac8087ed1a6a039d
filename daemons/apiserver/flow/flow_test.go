package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run"
)

// storedObjects holds the stored objects.
type storedObjects struct {
	mu       sync.Mutex
	list     map[schema.GroupResource][]runtime.Object
	revision int64
}

func (o *storedObjects) Get(schema.GroupResource, string, string) (runtime.Object, bool) {
	return nil, false
}

func (o *storedObjects) List(gr schema.GroupResource, _ string) []runtime.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list[gr]
}

func (o *storedObjects) Revision(schema.GroupResource) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

func (o *storedObjects) set(schemas, levels []runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = map[schema.GroupResource][]runtime.Object{schemasGR: schemas, levelsGR: levels}
	o.revision++
}

func newTestController(t testing.TB, o *storedObjects, seats int) *Controller {
	t.Helper()
	c, err := New(
		Config{
			Objects: o,
			Seats:   seats,
			Bytes:   1000,
			Wait:    10 * time.Second,
			Env:     run.NewEnv(slog.New(slog.DiscardHandler)),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func requestFor(verb, group, name, namespace string) api.Request {
	return api.Request{
		Verb:                 verb,
		Resource:             true,
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name},
		Namespace:            namespace,
	}
}

func TestRequestsAreClassifiedAsUpstreamDoes(t *testing.T) {
	c := newTestController(t, &storedObjects{}, 600)
	authenticated := func(name string, groups ...string) api.User {
		return api.User{Name: name, Groups: append(groups, api.GroupAuthenticated)}
	}
	kubelet := authenticated("system:node:a", api.GroupNodes)
	for name, k := range map[string]struct {
		user   api.User
		r      api.Request
		schema string
		level  string
	}{
		"an administrator": {authenticated("admin", api.GroupMasters), requestFor("list", "", "pods", ""), "exempt",
			"exempt"},
		"a probe": {api.User{Name: api.Anonymous, Groups: []string{api.GroupUnauthenticated}},
			api.Request{Verb: "get", Path: "/readyz"}, "probes", "exempt"},
		"a node's heartbeat": {kubelet, requestFor("update", "coordination.k8s.io", "leases", "kube-node-lease"),
			"system-node-high", "node-high"},
		"a node's other requests": {kubelet, requestFor("list", "", "pods", ""), "system-nodes", "system"},
		"a leader's lease": {authenticated("system:kube-scheduler"),
			requestFor("update", "coordination.k8s.io", "leases", "kube-system"), "system-leader-election",
			"leader-election"},
		"the scheduler": {authenticated("system:kube-scheduler"), requestFor("create", "", "pods", "shop"),
			"kube-scheduler", "workload-high"},
		"an account of the system": {authenticated("system:serviceaccount:kube-system:x", "system:serviceaccounts"),
			requestFor("get", "", "pods", "shop"), "kube-system-service-accounts", "workload-high"},
		"another account": {authenticated("system:serviceaccount:shop:x", "system:serviceaccounts"),
			requestFor("get", "", "pods", "shop"), "service-accounts", "workload-low"},
		"a person": {authenticated("ann"), requestFor("get", "", "pods", "shop"), "global-default", "global-default"},
		"nobody":   {api.User{Name: "none"}, requestFor("get", "", "pods", "shop"), "catch-all", "catch-all"},
	} {
		if s := c.Classify(&k.user, &k.r); s.Name != k.schema || s.level.name != k.level {
			t.Errorf("%s: schema %s of level %s, want %s of %s", name, s.Name, s.level.name, k.schema, k.level)
		}
	}
}

// customLevels returns levels, each with a schema for the user with the level's name.
func customLevels(levels ...*flowcontrolv1.PriorityLevelConfiguration) *storedObjects {
	o := &storedObjects{}
	var schemas, list []runtime.Object
	for i, l := range levels {
		list = append(list, l)
		schemas = append(schemas, &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: "s"},
			Spec: flowcontrolv1.FlowSchemaSpec{
				MatchingPrecedence: int32(
					100 + i,
				), PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: l.Name},
				DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
					Type: flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
				},
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{
						{Kind: "User", User: &flowcontrolv1.UserSubject{Name: l.Name}},
					},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{
						{
							Verbs:        []string{"*"},
							APIGroups:    []string{"*"},
							Resources:    []string{"*"},
							ClusterScope: true,
							Namespaces:   []string{"*"},
						},
					},
				}},
			},
		})
	}
	o.set(schemas, list)
	return o
}

func limitedLevel(
	name string,
	shares, lendable int32,
	borrowing *int32,
	queuing *flowcontrolv1.QueuingConfiguration,
) *flowcontrolv1.PriorityLevelConfiguration {
	l := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "l"}}
	l.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	l.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: &shares,
		LendablePercent:          &lendable,
		BorrowingLimitPercent:    borrowing,
	}
	l.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject
	if queuing != nil {
		l.Spec.Limited.LimitResponse = flowcontrolv1.LimitResponse{
			Type:    flowcontrolv1.LimitResponseTypeQueue,
			Queuing: queuing,
		}
	}
	return l
}

// enterAs requests seats as a user in a namespace.
func enterAs(ctx context.Context, c *Controller, user, namespace string, work Work) (Ticket, error) {
	u, r := api.User{Name: user}, requestFor("get", "", "pods", namespace)
	return c.Enter(ctx, c.Classify(&u, &r), &u, &r, work)
}

func mustEnter(t *testing.T, c *Controller, user string, n int) (tickets []Ticket) {
	t.Helper()
	for range n {
		ticket, err := enterAs(t.Context(), c, user, "", Work{Seats: 1})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	return tickets
}

func mustBeRefused(t *testing.T, c *Controller, user string) {
	t.Helper()
	if _, err := enterAs(t.Context(), c, user, "", Work{Seats: 1}); !errors.Is(err, ErrRefused) {
		t.Fatalf("%s gets a further seat: %v", user, err)
	}
}

// A level borrows lendable seats of other levels and keeps its own that it does not lend. 100 seats for 45 + 45 + 5
// (catch-all) shares give 48, 48 and 6 seats.
func TestLevelsBorrowLendableSeats(t *testing.T) {
	c := newTestController(t, customLevels(limitedLevel("a", 45, 50, nil, nil), limitedLevel("b", 45, 0, nil, nil)),
		100)
	borrowed := mustEnter(t, c, "b", 70) // its own 48, and the 24 that a lends of its 48, less rounding
	mustBeRefused(t, c, "b")
	own := mustEnter(t, c, "a", 24) // never lent
	mustBeRefused(t, c, "a")
	for _, ticket := range borrowed[:10] {
		ticket.Release()
	}
	mustEnter(t, c, "a", 10)
	mustBeRefused(t, c, "a")
	for _, ticket := range own {
		ticket.Release()
	}
	mustEnter(t, c, "a", 24)
	mustBeRefused(t, c, "a")
}

func TestTryReturnsWithoutWaiting(t *testing.T) {
	c := newTestController(t, customLevels(limitedLevel("a", 50, 0, nil, nil)), 100)
	schema := (*c.schemas.Load())[0]
	for _, s := range *c.schemas.Load() {
		if s.Name == "a" {
			schema = s
		}
	}
	var taken []Ticket
	for {
		ticket, ok := c.Try(schema, Work{Seats: 1})
		if !ok {
			break
		}
		taken = append(taken, ticket)
	}
	if len(taken) != c.SeatsInUse() || len(taken) == 0 {
		t.Fatalf("%d seats were given, %d are used", len(taken), c.SeatsInUse())
	}
	mustBeRefused(t, c, "a")
	taken[0].Release()
	mustEnter(t, c, "a", 1)
	if _, ok := c.Try(schema, Work{Seats: 1}); ok {
		t.Error("there is a seat too many")
	}
}

func TestBorrowingLimitHolds(t *testing.T) {
	ten := int32(25)
	c := newTestController(t, customLevels(limitedLevel("a", 45, 100, nil, nil), limitedLevel("b", 45, 0, &ten, nil)),
		100)
	mustEnter(t, c, "b", 60) // 48, and a quarter more
	mustBeRefused(t, c, "b")
}

func TestWideRequestsTakeSeveralSeats(t *testing.T) {
	none := int32(0)
	// 10 of 20, because catch-all has 5 shares, too
	c := newTestController(t, customLevels(limitedLevel("a", 5, 0, &none, nil)), 20)
	wide, err := enterAs(t.Context(), c, "a", "", Work{Seats: 8})
	if err != nil {
		t.Fatal(err)
	}
	mustEnter(t, c, "a", 2)
	mustBeRefused(t, c, "a")
	wide.Release()
	mustEnter(t, c, "a", 8)
	if _, err := enterAs(t.Context(), newTestController(t, customLevels(limitedLevel("a", 5, 0, &none, nil)), 20), "a",
		"",
		Work{Seats: 1000}); err != nil {
		t.Errorf("a request that wants more seats than there are never goes on: %v", err)
	}
}

func queuingConfig(n, hand, length int32) *flowcontrolv1.QueuingConfiguration {
	return &flowcontrolv1.QueuingConfiguration{Queues: n, HandSize: hand, QueueLengthLimit: length}
}

// waitFor waits until that many requests are waiting.
func waitFor(t *testing.T, c *Controller, n int) {
	t.Helper()
	for start := time.Now(); ; {
		c.mu.Lock()
		got := c.waiting
		c.mu.Unlock()
		if got == n {
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d requests wait, want %d", got, n)
		}
		<-time.After(time.Millisecond)
	}
}

func TestFullFlowsDoNotBlockOthers(t *testing.T) {
	none := int32(0)
	c := newTestController(t, customLevels(limitedLevel("a", 1, 0, &none, queuingConfig(64, 4, 1000))), 6) // one seat
	first := mustEnter(t, c, "a", 1)
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	ask := func(namespace string) {
		wg.Go(func() {
			ticket, err := enterAs(t.Context(), c, "a", namespace, Work{Seats: 1})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, namespace)
			mu.Unlock()
			ticket.Release()
		})
	}
	for range 400 {
		ask("elephant")
	}
	waitFor(t, c, 400)
	for range 4 {
		ask("mouse")
	}
	waitFor(t, c, 404)
	first[0].Release()
	wg.Wait()
	if last := slices.Index(slices.Collect(func(yield func(string) bool) {
		for i := len(order) - 1; i >= 0 && yield(order[i]); i-- {
		}
	}), "mouse"); last < 300 {
		t.Errorf("a flow with 4 requests waits for %d of the 400 of another", 400-last)
	}
}

func TestFullQueuesAndLongWaitsAreRefused(t *testing.T) { synctest.Test(t, testFullQueue) }

// testFullQueue runs on a clock of its own, so that both requests wait before the first has waited too long.
func testFullQueue(t *testing.T) {
	none := int32(0)
	c := newTestController(t, customLevels(limitedLevel("a", 1, 0, &none, queuingConfig(1, 1, 2))), 6)
	held := mustEnter(t, c, "a", 1)
	c.Wait = 20 * time.Millisecond
	var wg sync.WaitGroup
	var timedOut atomic.Int32
	for range 2 {
		wg.Go(func() {
			if _, err := enterAs(t.Context(), c, "a", "", Work{Seats: 1}); errors.Is(err, ErrRefused) {
				timedOut.Add(1)
			}
		})
	}
	waitFor(t, c, 2)
	mustBeRefused(t, c, "a")
	wg.Wait()
	if timedOut.Load() != 2 {
		t.Errorf("%d of 2 that waited too long were refused", timedOut.Load())
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := enterAs(cancelled, c, "a", "", Work{Seats: 1}); err == nil {
		t.Error("a request whose client has gone got a seat")
	}
	held[0].Release()
	mustEnter(t, c, "a", 1)
}

func TestListsWaitForMemory(t *testing.T) {
	c := newTestController(t, customLevels(limitedLevel("a", 50, 0, nil, queuingConfig(1, 1, 10))), 100)
	// more than the limit, but no other list is in progress
	big, err := enterAs(t.Context(), c, "a", "x", Work{Seats: 1, Bytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		ticket, err := enterAs(t.Context(), c, "a", "y", Work{Seats: 1, Bytes: 600})
		if err != nil {
			t.Error(err)
		}
		ticket.Release()
	})
	waitFor(t, c, 1)
	for i := range 8 { // all in the only queue
		if ticket, err := enterAs(t.Context(), c, "a", fmt.Sprint(i), Work{Seats: 1}); err != nil {
			t.Error(err)
		} else {
			defer ticket.Release()
		}
		if i == 0 {
			big.Release()
		}
	}
	wg.Wait()
}

func TestConfigurationChangesWhileRequestsRun(t *testing.T) {
	none := int32(0)
	o := customLevels(limitedLevel("a", 5, 0, &none, queuingConfig(1, 1, 10)))
	c := newTestController(t, o, 20)
	held := mustEnter(t, c, "a", 10)
	var wg sync.WaitGroup
	wg.Go(func() { mustEnter(t, c, "a", 1) })
	waitFor(t, c, 1)
	more := customLevels(limitedLevel("a", 15, 0, &none, queuingConfig(1, 1, 10)))
	o.set(more.list[schemasGR], more.list[levelsGR])
	c.reload()
	wg.Wait() // 15 seats by now
	o.set(nil, nil)
	c.reload()
	u, r := api.User{Name: "a", Groups: []string{api.GroupAuthenticated}}, requestFor("get", "", "pods", "")
	if s := c.Classify(&u, &r); s.Name != "global-default" {
		t.Errorf("without objects %s holds", s.Name)
	}
	for _, ticket := range held {
		ticket.Release()
	}
}

// Concurrent requests never take more seats than there are, and no seat is lost.
func TestSeatsAreNeverOversoldOrLost(t *testing.T) {
	c := newTestController(t, customLevels(limitedLevel("a", 20, 50, nil, queuingConfig(8, 2, 1000)),
		limitedLevel("b", 10, 20, nil, queuingConfig(8, 2, 1000))), 20)
	var wg sync.WaitGroup
	var used, maximum atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			for n := range 300 {
				ticket, err := enterAs(t.Context(), c, []string{"a", "b"}[i%2], fmt.Sprint(n%7), Work{Seats: 1 + n%3})
				if err != nil {
					t.Error(err)
					return
				}
				now := used.Add(int64(ticket.work.Seats))
				maximum.Store(max(maximum.Load(), now))
				used.Add(-int64(ticket.work.Seats))
				ticket.Release()
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	minimum := 0
	for _, l := range c.levelsByName {
		if l.used != 0 || l.waiting != 0 {
			t.Errorf("level %s ends with %d seats taken and %d waiting", l.name, l.used, l.waiting)
		}
		minimum += l.minSeats
	}
	if c.reserved != minimum || c.waiting != 0 || maximum.Load() > 20+int64(len(c.levelsByName)) {
		t.Errorf("%d seats of 20 were taken; %d reserved, want %d; %d waiting", maximum.Load(), c.reserved, minimum,
			c.waiting)
	}
}

func TestShuffleShardHasDistinctQueues(t *testing.T) {
	for flow := range uint64(1000) {
		hand := shuffleShard(flow*0x9E3779B97F4A7C15, 64, 8)
		slices.Sort(hand)
		if len(slices.Compact(hand)) != 8 || hand[0] < 0 || hand[7] > 63 {
			t.Fatalf("flow %d got %v", flow, hand)
		}
	}
}

// BenchmarkUncontended measures a request that does not wait.
func BenchmarkUncontended(b *testing.B) {
	c := newTestController(b, &storedObjects{}, 600)
	u := api.User{Name: "ann", Groups: []string{"devs", "system:authenticated"}}
	r := requestFor("get", "", "pods", "shop")
	header := map[string][]string{}
	b.ReportAllocs()
	for b.Loop() {
		s := c.Classify(&u, &r)
		s.SetHeaders(header)
		ticket, err := c.Enter(b.Context(), s, &u, &r, Work{Seats: 1})
		if err != nil {
			b.Fatal(err)
		}
		ticket.Release()
	}
}
