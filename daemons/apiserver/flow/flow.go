// Package flow shares the API server's capacity among requests. FlowSchemas assign requests to priority levels. A level
// has seats of its own, lends those that it does not use, and queues requests fairly when it has none left. The API
// server determines how many seats a request takes: most take one, lists more. The memory of all lists in progress is
// limited, too.
package flow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run"
)

// Config configures a Controller.
type Config struct {
	Objects api.Objects   // required; has the FlowSchemas and PriorityLevelConfigurations
	Seats   int           // of all levels together
	Bytes   int64         // limit of the lists in progress
	Wait    time.Duration // how long a request may wait
	Env     run.Env       // required
}

// Controller decides when requests may run.
type Controller struct {
	Config

	schemas  atomic.Pointer[[]*Schema] // by precedence; the last one matches everything
	revision [2]int64                  // of the objects that they were made from

	mu           sync.Mutex
	levels       map[string]*level
	levelsByName []*level
	// tallies holds the counters by level and schema.
	tallies map[[2]string]*requestCounters
	// reserved is the number of seats that the levels use or may claim at any time: the sum of max(used, least).
	reserved int
	bytes    int64
	waiting  int
}

// Work is the cost of a request.
type Work struct {
	Seats int
	Bytes int64 // size of a list
}

// Ticket holds a request's seats. The zero Ticket has none.
type Ticket struct {
	c    *Controller // nil for an exempt level
	s    *Schema
	work Work
}

var (
	schemasGR = schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: "flowschemas"}
	levelsGR  = schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: "prioritylevelconfigurations"}
)

// New returns a controller with the default objects, until Run reads those of the cluster.
func New(c Config) (*Controller, error) {
	f := &Controller{
		Config:   c,
		levels:   map[string]*level{},
		tallies:  map[[2]string]*requestCounters{},
		revision: [2]int64{-1, -1},
	}
	if err := c.Env.Metrics.Register(newCounts(f)); err != nil {
		return nil, fmt.Errorf("register the metrics of priority and fairness: %w", err)
	}
	f.reload()
	return f, nil
}

// reloadInterval is the interval at which the objects are checked for changes.
const reloadInterval = 250 * time.Millisecond

// Run applies changes of the objects until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.reload()
		}
	}
}

// reload reads the objects if they have changed. It adds mandatory objects that were deleted.
func (c *Controller) reload() {
	revision := [2]int64{c.Objects.Revision(schemasGR), c.Objects.Revision(levelsGR)}
	if revision == c.revision {
		return
	}
	c.revision = revision
	schemas, levels := map[string]*flowcontrolv1.FlowSchema{}, map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	for _, o := range c.Objects.List(schemasGR, "") {
		if s, ok := o.(*flowcontrolv1.FlowSchema); ok {
			schemas[s.Name] = s
		}
	}
	for _, o := range c.Objects.List(levelsGR, "") {
		if l, ok := o.(*flowcontrolv1.PriorityLevelConfiguration); ok {
			levels[l.Name] = l
		}
	}
	mandatory, suggested := bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas
	if len(schemas) > 0 {
		suggested = nil
	}
	for _, s := range slices.Concat(mandatory, suggested) {
		if schemas[s.Name] == nil {
			schemas[s.Name] = s
		}
	}
	mandatoryLevels, suggestedLevels := bootstrap.MandatoryPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurations
	if len(levels) > 0 {
		suggestedLevels = nil
	}
	for _, l := range slices.Concat(mandatoryLevels, suggestedLevels) {
		if levels[l.Name] == nil {
			levels[l.Name] = l
		}
	}
	c.applyObjects(schemas, levels)
}

func (c *Controller) applyObjects(
	schemas map[string]*flowcontrolv1.FlowSchema,
	levels map[string]*flowcontrolv1.PriorityLevelConfiguration,
) {
	shares := int32(0)
	for _, l := range levels {
		if l.Spec.Limited != nil && l.Spec.Limited.NominalConcurrencyShares != nil {
			shares += *l.Spec.Limited.NominalConcurrencyShares
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range levels {
		if c.levels[name] == nil {
			c.levels[name] = &level{name: name}
		}
		c.levels[name].configure(o, c.Seats, shares)
	}
	for name, l := range c.levels {
		if levels[name] == nil && l.used == 0 && l.waiting == 0 {
			delete(c.levels, name)
		} else if levels[name] == nil {
			l.nominal, l.minSeats = 0, 0 // a deleted level keeps its running and waiting requests
			c.revision[0] = -1           // until they end, reload runs again
		}
	}
	c.levelsByName, c.reserved = nil, 0
	for _, l := range c.levels {
		if !l.isExempt {
			c.levelsByName = append(c.levelsByName, l)
			c.reserved += max(l.used, l.minSeats)
		}
	}
	slices.SortFunc(c.levelsByName, func(a, b *level) int { return strings.Compare(a.name, b.name) })
	var list []*Schema
	tallies := map[[2]string]*requestCounters{}
	for _, o := range schemas {
		name := o.Spec.PriorityLevelConfiguration.Name
		if levels[name] == nil {
			continue // it refers to a level that does not exist
		}
		key := [2]string{name, o.Name}
		if tallies[key] = c.tallies[key]; tallies[key] == nil {
			tallies[key] = &requestCounters{level: name, schema: o.Name}
		}
		list = append(list, newSchema(o, c.levels[name], tallies[key]))
	}
	for key, t := range c.tallies {
		if tallies[key] == nil && !t.isIdle() {
			tallies[key] = t
		}
	}
	c.tallies = tallies
	slices.SortFunc(list, func(a, b *Schema) int {
		if a.precedence != b.precedence {
			return int(a.precedence) - int(b.precedence)
		}
		return strings.Compare(a.Name, b.Name)
	})
	c.schemas.Store(&list)
	c.dispatch()
}

// Classify returns the first schema that matches a request.
func (c *Controller) Classify(u *api.User, r *api.Request) *Schema {
	list := *c.schemas.Load()
	for _, s := range list {
		if s.matchesAny(u, r) {
			return s
		}
	}
	return list[len(list)-1]
}

// ErrRefused reports that no seat became free in time.
var ErrRefused = errors.New("no seat is free")

// Enter waits until the request has its seats. It returns ErrRefused if there are none in time.
func (c *Controller) Enter(ctx context.Context, s *Schema, u *api.User, r *api.Request, work Work) (Ticket, error) {
	l := s.level
	c.mu.Lock()
	if t, ok := c.tryEnter(s, &work); ok {
		c.mu.Unlock()
		return t, nil
	}
	w := &waiter{
		schema:  s,
		work:    work,
		flow:    s.flowOf(u, r),
		request: r,
		user:    u.Name,
		arrived: time.Now(),
		granted: make(chan struct{}),
	}
	queued := l.enqueue(w, flowHash(s.Name, w.flow))
	if queued {
		c.waiting++
		c.dispatch() // a request of another level may be able to run
	}
	reason := queueFull
	if l.queuing == nil {
		reason = concurrencyLimit
	}
	c.mu.Unlock()
	if !queued {
		return Ticket{}, c.refuse(s, reason)
	}
	return c.waitForSeats(ctx, s, w)
}

// Try is like Enter, but returns false instead of waiting.
func (c *Controller) Try(s *Schema, work Work) (Ticket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tryEnter(s, &work)
}

// ExemptTicket returns the ticket of a request of an exempt level, which is only counted.
func (s *Schema) ExemptTicket() (Ticket, bool) {
	if !s.isExempt {
		return Ticket{}, false
	}
	s.tally.recordBegin(1)
	return Ticket{s: s, work: Work{Seats: 1}}, true
}

// tryEnter takes seats if they are free, after limiting their number. The caller holds c.mu.
func (c *Controller) tryEnter(s *Schema, work *Work) (Ticket, bool) {
	l := s.level
	work.Seats = max(1, min(work.Seats, max(l.nominal, 1), l.maxSeats))
	if l.waiting > 0 || !c.hasSeatsFor(l, *work) {
		return Ticket{}, false
	}
	c.occupySeats(s, *work)
	return Ticket{c, s, *work}, true
}

func (c *Controller) waitForSeats(ctx context.Context, s *Schema, w *waiter) (Ticket, error) {
	start := time.Now()
	timer := time.NewTimer(c.Wait)
	defer timer.Stop()
	reason := timedOut
	select {
	case <-w.granted:
	case <-timer.C:
	case <-ctx.Done():
		reason = cancelled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.isGranted {
		return Ticket{c, s, w.work}, nil
	}
	s.tally.waited[0].observe(time.Since(start))
	s.level.remove(w)
	c.waiting--
	return Ticket{}, c.refuse(s, reason)
}

// refuse counts a refused request.
func (c *Controller) refuse(s *Schema, reason int) error {
	s.tally.rejected[reason].Add(1)
	return ErrRefused
}

// Begin records that the request runs, and how long it waited. A request that returns its seats unused, to be handled
// on the ordinary path, must not call it.
func (t Ticket) Begin(waited time.Duration) {
	if t.s != nil {
		t.s.tally.dispatched.Add(1)
		if t.s.canQueue {
			t.s.tally.waited[1].observe(waited)
		}
	}
}

// Release returns the seats.
func (t Ticket) Release() {
	if t.s == nil {
		return
	}
	t.s.tally.recordEnd(t.work.Seats)
	if t.c == nil {
		return
	}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.addUsed(t.s.level, -t.work.Seats)
	t.c.bytes -= t.work.Bytes
	if t.c.waiting > 0 {
		t.c.dispatch()
	}
}

// SeatsInUse returns the number of seats in use.
func (c *Controller) SeatsInUse() (seats int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.levelsByName {
		seats += l.used
	}
	return seats
}

// hasSeatsFor reports whether a level may use that many more seats: of those that it never lends, or of those that no
// other level uses or may claim.
func (c *Controller) hasSeatsFor(l *level, work Work) bool {
	used := l.used + work.Seats
	if work.Bytes > c.freeBytes() {
		return false
	}
	return used <= l.minSeats || used <= l.maxSeats &&
		c.reserved-max(l.used, l.minSeats)+max(used, l.minSeats) <= c.Seats
}

// freeBytes returns how many bytes a list may have. There is no limit if no other list is in progress.
func (c *Controller) freeBytes() int64 {
	if c.bytes == 0 {
		return math.MaxInt64
	}
	return max(c.Bytes-c.bytes, 0)
}

func (c *Controller) occupySeats(s *Schema, work Work) {
	s.tally.recordBegin(work.Seats)
	c.addUsed(s.level, work.Seats)
	c.bytes += work.Bytes
}

// addUsed changes the number of seats that a level uses.
func (c *Controller) addUsed(l *level, by int) {
	if !l.isExempt {
		c.reserved -= max(l.used, l.minSeats)
		c.reserved += max(l.used+by, l.minSeats)
	}
	l.used += by
}

// dispatch starts waiting requests. Levels that use the smallest part of their own seats come first.
func (c *Controller) dispatch() {
	for c.waiting > 0 {
		var best *level
		var first *waiter
		for _, l := range c.levelsByName {
			if l.waiting == 0 {
				continue
			}
			w := l.next(c.freeBytes())
			if w != nil && c.hasSeatsFor(l, w.work) && (best == nil || l.used*best.nominal < best.used*l.nominal) {
				best, first = l, w
			}
		}
		if best == nil {
			return
		}
		best.dequeue(first)
		c.waiting--
		c.occupySeats(first.schema, first.work)
		first.isGranted = true
		close(first.granted)
	}
}
