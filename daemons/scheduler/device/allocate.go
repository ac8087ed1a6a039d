package device

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/api"
)

// Reasons why claims get no devices on a node.
var (
	ErrNothingFits = errors.New("cannot allocate all claims")
	ErrInvalidPool = errors.New("invalid resource pools were encountered")
	ErrTimedOut    = errors.New("timed out trying to allocate devices")
	ErrGaveUp      = fmt.Errorf("the search for devices was given up after %d tries", maxTries)
)

// LackingError means that nothing fits, although there are devices that would fit if one of their features were
// supported. Feature names it.
type LackingError struct{ Feature string }

func (e *LackingError) Error() string {
	return "there are devices with " + e.Feature + ", which this scheduler does not carry out"
}

// maxTries is the maximum number of devices that are tried for one node before the search is given up.
const maxTries = 200_000

// triesPerTimeCheck is the number of tries between two checks of the time.
const triesPerTimeCheck = 256

// search looks for devices on one node. It returns the first combination that fits, in the order of pools, slices,
// devices and requests. Of a request with several options it takes the first that leaves enough for the other requests.
type search struct {
	*Plan
	use                *Use
	node               *corev1.Node
	pools              []*nodePool
	matches            map[*option][]*entry
	unsupportedFeature string
	tries              int
	isLate             func() bool // reports whether the time is over; nil means that tries are limited instead

	picked    [][]pick // by the claim's index
	exclusive map[DeviceID]int
	shares    map[DeviceID]*share
}

// nodePool is a pool as seen from one node.
type nodePool struct {
	*pool
	devices   []*entry
	remaining map[string]map[string]resource.Quantity // remaining counters; nil if the pool has none
}

// pick is a device that was selected for a request.
type pick struct {
	option   *option
	entry    *entry
	pool     *nodePool
	consumed amounts // amounts consumed of a shared device
}

// AllocateOn selects devices on a node for all claims, in order.
func (p *Plan) AllocateOn(n *corev1.Node, c *Catalog, use *Use) ([]*Allocation, error) {
	s := &search{
		Plan: p, use: use, node: n, matches: map[*option][]*entry{}, picked: make([][]pick, len(p.claims)),
		exclusive: map[DeviceID]int{}, shares: map[DeviceID]*share{},
	}
	if p.Start != nil {
		s.isLate = p.Start()
	}
	invalid := false
	for _, pool := range c.poolsFor(n.Name) {
		if devices, relevant := pool.devicesFor(n); relevant {
			v := &nodePool{pool: pool, devices: devices}
			if !pool.incomplete && !pool.invalid {
				v.computeRemaining(use)
			}
			invalid = invalid || pool.invalid
			s.pools = append(s.pools, v)
		}
	}
	ok, err := s.allocateFrom(0, 0)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return s.results(), nil
	case s.unsupportedFeature != "":
		return nil, &LackingError{s.unsupportedFeature}
	case invalid:
		return nil, ErrInvalidPool
	}
	return nil, ErrNothingFits
}

// computeRemaining computes the remaining amounts of a pool's counters.
func (v *nodePool) computeRemaining(use *Use) {
	if len(v.counters) == 0 {
		return
	}
	v.remaining = map[string]map[string]resource.Quantity{}
	for name, counters := range v.counters {
		v.remaining[name] = map[string]resource.Quantity{}
		for counter, c := range counters {
			v.remaining[name][counter] = c.Value.DeepCopy()
		}
	}
	for _, e := range v.pool.devices {
		if use.isTaken(e.DeviceID) {
			v.consumeCounters(e, 1)
		}
	}
}

// consumeCounters subtracts what a device consumes from the counters, or adds it back if times is negative.
func (v *nodePool) consumeCounters(e *entry, times int) {
	for _, wants := range e.ConsumesCounters {
		for name, c := range wants.Counters {
			q := v.remaining[wants.CounterSet][name]
			if times > 0 {
				q.Sub(c.Value)
			} else {
				q.Add(c.Value)
			}
			v.remaining[wants.CounterSet][name] = q
		}
	}
}

// hasCountersFor reports whether the counters suffice for a device.
func (v *nodePool) hasCountersFor(e *entry) bool {
	for _, wants := range e.ConsumesCounters {
		for name, c := range wants.Counters {
			if q := v.remaining[wants.CounterSet][name]; q.Cmp(c.Value) < 0 {
				return false
			}
		}
	}
	return true
}

// allocateFrom selects devices for a request and all later ones.
func (s *search) allocateFrom(claim, request int) (bool, error) {
	if claim == len(s.claims) {
		return true, nil
	}
	a := s.claims[claim]
	if request == len(a.requests) {
		return s.allocateFrom(claim+1, 0)
	}
	for _, o := range a.requests[request] {
		candidates, err := s.candidates(o)
		if err != nil {
			return false, err
		}
		if len(candidates) == 0 {
			continue
		}
		need := o.count
		if o.all {
			need = len(candidates)
		}
		if len(s.picked[claim])+need > resourcev1.AllocationResultsMaxSize {
			continue
		}
		if ok, err := s.pickMore(claim, request, o, candidates, need); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// pickMore selects need devices among candidates, and then continues with the next request. The order of a request's
// devices does not matter, so each is searched for after the previous one.
func (s *search) pickMore(claim, request int, o *option, candidates []*entry, need int) (bool, error) {
	if need == 0 {
		return s.allocateFrom(claim, request+1)
	}
	for i, e := range candidates {
		rest := candidates[i+1:]
		if isShareable(e.Device) && !o.all && !o.admin {
			rest = candidates[i:] // another share of the same device
		} else if len(rest)+1 < need &&
			!slices.ContainsFunc(rest, func(e *entry) bool { return isShareable(e.Device) }) {
			return false, nil
		}
		s.tries++
		switch {
		case s.isLate == nil && s.tries > maxTries:
			return false, ErrGaveUp
		case s.isLate != nil && s.tries%triesPerTimeCheck == 0 && s.isLate():
			return false, ErrTimedOut
		}
		if !s.pickDevice(claim, o, e) {
			if o.all {
				return false, nil
			}
			continue
		}
		if ok, err := s.pickMore(claim, request, o, rest, need-1); ok || err != nil {
			return ok, err
		}
		s.undoPick(claim)
		if o.all {
			return false, nil
		}
	}
	return false, nil
}

// candidates returns the devices that match a request, including allocated ones.
func (s *search) candidates(o *option) ([]*entry, error) {
	if list, ok := s.matches[o]; ok {
		return list, nil
	}
	var out []*entry
	for _, v := range s.pools {
		switch {
		case o.all && v.incomplete:
			return nil, fmt.Errorf("claim %s, request %s: asks for all devices, but resource pool %s/%s is "+
				"currently being updated", o.claim, o.name, v.driver, v.name)
		case o.all && v.invalid:
			return nil, fmt.Errorf(
				"claim %s, request %s: asks for all devices, but resource pool %s/%s is currently invalid", o.claim,
				o.name, v.driver, v.name)
		case v.incomplete, v.invalid:
			continue
		}
		for _, e := range v.devices {
			selected, err := o.isSatisfiedBy(e)
			if err != nil {
				return nil, err
			}
			if !selected {
				continue
			}
			if _, ok := consumption(e.Device, o.capacity); !ok {
				continue
			}
			if e.unsupportedFeature != "" {
				s.unsupportedFeature = e.unsupportedFeature
				if o.all {
					return nil, &LackingError{e.unsupportedFeature}
				}
				continue
			}
			out = append(out, e)
		}
	}
	s.matches[o] = out
	return out, nil
}

// pickDevice selects a device for a request, if nothing forbids it.
func (s *search) pickDevice(claim int, o *option, e *entry) bool {
	for i := range e.taints {
		t := &e.taints[i]
		if (t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute) &&
			!api.ToleratesDevice(o.tolerations, t) {
			return false
		}
	}
	for i := range s.claims[claim].constraints {
		if !s.claims[claim].constraints[i].permits(o.name, e, s.picked[claim]) {
			return false
		}
	}
	p := pick{option: o, entry: e, pool: s.poolOf(e)}
	switch {
	case o.admin:
		if s.isInClaim(claim, e, false) {
			return false
		}
	case isShareable(e.Device):
		if s.isInClaim(claim, e, true) || !s.takeShare(&p) {
			return false
		}
	default:
		if s.use.isTaken(e.DeviceID) || s.exclusive[e.DeviceID] > 0 || s.isInClaim(claim, e, true) ||
			!p.pool.hasCountersFor(e) {
			return false
		}
		s.exclusive[e.DeviceID]++
		p.pool.consumeCounters(e, 1)
	}
	s.picked[claim] = append(s.picked[claim], p)
	return true
}

// isInClaim reports whether a claim already has a device. A claim may have a device once normally and once for admin
// access, but not both.
func (s *search) isInClaim(claim int, e *entry, admin bool) bool {
	return slices.ContainsFunc(s.picked[claim],
		func(p pick) bool { return p.entry.DeviceID == e.DeviceID && (p.option.admin || !admin) })
}

// takeShare takes a share of a device. The first share draws on the counters.
func (s *search) takeShare(p *pick) bool {
	e := p.entry
	if s.use.exclusive[e.DeviceID] > 0 {
		return false
	}
	consumed, _ := consumption(e.Device, p.option.capacity)
	var theirs, ours amounts
	if current := s.use.shares[e.DeviceID]; current != nil {
		theirs = current.consumed
	}
	mine := s.shares[e.DeviceID]
	if mine != nil {
		ours = mine.consumed
	}
	first := theirs == nil && mine == nil
	if !hasCapacity(e.Device, consumed, theirs, ours) || first && !p.pool.hasCountersFor(e) {
		return false
	}
	if first {
		p.pool.consumeCounters(e, 1)
	}
	if mine == nil {
		mine = &share{consumed: amounts{}}
		s.shares[e.DeviceID] = mine
	}
	mine.add(consumed, 1)
	p.consumed = consumed
	return true
}

// undoPick reverts the last pickDevice of a claim.
func (s *search) undoPick(claim int) {
	last := len(s.picked[claim]) - 1
	p := s.picked[claim][last]
	s.picked[claim] = s.picked[claim][:last]
	switch {
	case p.option.admin:
	case p.consumed != nil:
		mine := s.shares[p.entry.DeviceID]
		if mine.add(p.consumed, -1); mine.count == 0 {
			delete(s.shares, p.entry.DeviceID)
			if s.use.shares[p.entry.DeviceID] == nil {
				p.pool.consumeCounters(p.entry, -1)
			}
		}
	default:
		delete(s.exclusive, p.entry.DeviceID)
		p.pool.consumeCounters(p.entry, -1)
	}
}

func (s *search) poolOf(e *entry) *nodePool {
	for _, v := range s.pools {
		if v.driver == e.Driver && v.name == e.Pool {
			return v
		}
	}
	return nil
}
