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
	ErrGaveUp      = fmt.Errorf("the search for devices was given up after %d tries", mostTries)
)

// LackingError means that nothing fits, although there are devices that would fit if one of their features were
// supported. What names the feature.
type LackingError struct{ What string }

func (e *LackingError) Error() string {
	return "there are devices with " + e.What + ", which this scheduler does not carry out"
}

// mostTries is the maximum number of devices that are tried for one node before the search is given up.
const mostTries = 200_000

// triesBetween is the number of tries between two checks of the time.
const triesBetween = 256

// search looks for devices on one node. It returns the first combination that fits, in the order of pools, slices,
// devices and requests. Of a request with several options it takes the first that leaves enough for the other requests.
type search struct {
	*Plan
	use     *Use
	node    *corev1.Node
	pools   []*view
	matches map[*option][]*entry
	lacking string
	tries   int
	late    func() bool // reports whether the time is over; nil means that tries are limited instead

	picked [][]pick // by the claim's index
	whole  map[ID]int
	shares map[ID]*share
}

// view is a pool as seen from one node.
type view struct {
	*pool
	devices []*entry
	left    map[string]map[string]resource.Quantity // remaining counters; nil if the pool has none
}

// pick is a device that was selected for a request.
type pick struct {
	option   *option
	entry    *entry
	view     *view
	consumed amounts // amounts consumed of a shared device
}

// On selects devices on a node for all claims, in order.
func (p *Plan) On(n *corev1.Node, c *Catalog, use *Use) ([]*Allocation, error) {
	s := &search{
		Plan: p, use: use, node: n, matches: map[*option][]*entry{}, picked: make([][]pick, len(p.claims)),
		whole: map[ID]int{}, shares: map[ID]*share{},
	}
	if p.Start != nil {
		s.late = p.Start()
	}
	invalid := false
	for _, pool := range c.near(n.Name) {
		if devices, relevant := pool.reachable(n); relevant {
			v := &view{pool: pool, devices: devices}
			if !pool.incomplete && !pool.invalid {
				v.count(use)
			}
			invalid = invalid || pool.invalid
			s.pools = append(s.pools, v)
		}
	}
	ok, err := s.from(0, 0)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return s.results(), nil
	case s.lacking != "":
		return nil, &LackingError{s.lacking}
	case invalid:
		return nil, ErrInvalidPool
	}
	return nil, ErrNothingFits
}

// count computes the remaining amounts of a pool's counters.
func (v *view) count(use *Use) {
	if len(v.counters) == 0 {
		return
	}
	v.left = map[string]map[string]resource.Quantity{}
	for name, counters := range v.counters {
		v.left[name] = map[string]resource.Quantity{}
		for counter, c := range counters {
			v.left[name][counter] = c.Value.DeepCopy()
		}
	}
	for _, e := range v.pool.devices {
		if use.taken(e.ID) {
			v.draw(e, 1)
		}
	}
}

// draw subtracts what a device consumes from the counters, or adds it back if times is negative.
func (v *view) draw(e *entry, times int) {
	for _, wants := range e.ConsumesCounters {
		for name, c := range wants.Counters {
			q := v.left[wants.CounterSet][name]
			if times > 0 {
				q.Sub(c.Value)
			} else {
				q.Add(c.Value)
			}
			v.left[wants.CounterSet][name] = q
		}
	}
}

// enough reports whether the counters suffice for a device.
func (v *view) enough(e *entry) bool {
	for _, wants := range e.ConsumesCounters {
		for name, c := range wants.Counters {
			if q := v.left[wants.CounterSet][name]; q.Cmp(c.Value) < 0 {
				return false
			}
		}
	}
	return true
}

// from selects devices for a request and all later ones.
func (s *search) from(claim, request int) (bool, error) {
	if claim == len(s.claims) {
		return true, nil
	}
	a := s.claims[claim]
	if request == len(a.requests) {
		return s.from(claim+1, 0)
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
		if ok, err := s.more(claim, request, o, candidates, need); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// more selects need devices among candidates, and then continues with the next request. The order of a request's
// devices does not matter, so each is searched for after the previous one.
func (s *search) more(claim, request int, o *option, candidates []*entry, need int) (bool, error) {
	if need == 0 {
		return s.from(claim, request+1)
	}
	for i, e := range candidates {
		rest := candidates[i+1:]
		if multiple(e.Device) && !o.all && !o.admin {
			rest = candidates[i:] // another share of the same device
		} else if len(rest)+1 < need && !slices.ContainsFunc(rest, func(e *entry) bool { return multiple(e.Device) }) {
			return false, nil
		}
		s.tries++
		switch {
		case s.late == nil && s.tries > mostTries:
			return false, ErrGaveUp
		case s.late != nil && s.tries%triesBetween == 0 && s.late():
			return false, ErrTimedOut
		}
		if !s.take(claim, o, e) {
			if o.all {
				return false, nil
			}
			continue
		}
		if ok, err := s.more(claim, request, o, rest, need-1); ok || err != nil {
			return ok, err
		}
		s.giveBack(claim)
		if o.all {
			return false, nil
		}
	}
	return false, nil
}

// candidates returns the devices that match a request, including allocated ones.
func (s *search) candidates(o *option) ([]*entry, error) {
	if list, known := s.matches[o]; known {
		return list, nil
	}
	var out []*entry
	for _, v := range s.pools {
		switch {
		case o.all && v.incomplete:
			return nil, fmt.Errorf(
				"claim %s, request %s: asks for all devices, but resource pool %s/%s is currently being updated",
				o.claim,
				o.name,
				v.driver,
				v.name,
			)
		case o.all && v.invalid:
			return nil, fmt.Errorf(
				"claim %s, request %s: asks for all devices, but resource pool %s/%s is currently invalid",
				o.claim,
				o.name,
				v.driver,
				v.name,
			)
		case v.incomplete, v.invalid:
			continue
		}
		for _, e := range v.devices {
			selected, err := o.selects(e)
			if err != nil {
				return nil, err
			}
			if !selected {
				continue
			}
			if _, has := consumes(e.Device, o.capacity); !has {
				continue
			}
			if e.lacking != "" {
				s.lacking = e.lacking
				if o.all {
					return nil, &LackingError{e.lacking}
				}
				continue
			}
			out = append(out, e)
		}
	}
	s.matches[o] = out
	return out, nil
}

// take selects a device for a request, if nothing forbids it.
func (s *search) take(claim int, o *option, e *entry) bool {
	for i := range e.taints {
		t := &e.taints[i]
		if (t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute) &&
			!api.ToleratesDevice(o.tolerations, t) {
			return false
		}
	}
	for i := range s.claims[claim].constraints {
		if !s.claims[claim].constraints[i].admits(o.name, e, s.picked[claim]) {
			return false
		}
	}
	p := pick{option: o, entry: e, view: s.viewOf(e)}
	switch {
	case o.admin:
		if s.inClaim(claim, e, false) {
			return false
		}
	case multiple(e.Device):
		if s.inClaim(claim, e, true) || !s.share(&p) {
			return false
		}
	default:
		if s.use.taken(e.ID) || s.whole[e.ID] > 0 || s.inClaim(claim, e, true) || !p.view.enough(e) {
			return false
		}
		s.whole[e.ID]++
		p.view.draw(e, 1)
	}
	s.picked[claim] = append(s.picked[claim], p)
	return true
}

// inClaim reports whether a claim already has a device. A claim may have a device once normally and once for admin
// access, but not both.
func (s *search) inClaim(claim int, e *entry, admin bool) bool {
	return slices.ContainsFunc(
		s.picked[claim],
		func(p pick) bool { return p.entry.ID == e.ID && (p.option.admin || !admin) },
	)
}

// share takes a share of a device. The first share draws on the counters.
func (s *search) share(p *pick) bool {
	e := p.entry
	if s.use.whole[e.ID] > 0 {
		return false
	}
	consumed, _ := consumes(e.Device, p.option.capacity)
	var theirs, ours amounts
	if have := s.use.shares[e.ID]; have != nil {
		theirs = have.consumed
	}
	mine := s.shares[e.ID]
	if mine != nil {
		ours = mine.consumed
	}
	first := theirs == nil && mine == nil
	if !room(e.Device, consumed, theirs, ours) || first && !p.view.enough(e) {
		return false
	}
	if first {
		p.view.draw(e, 1)
	}
	if mine == nil {
		mine = &share{consumed: amounts{}}
		s.shares[e.ID] = mine
	}
	mine.add(consumed, 1)
	p.consumed = consumed
	return true
}

// giveBack reverts the last take.
func (s *search) giveBack(claim int) {
	last := len(s.picked[claim]) - 1
	p := s.picked[claim][last]
	s.picked[claim] = s.picked[claim][:last]
	switch {
	case p.option.admin:
	case p.consumed != nil:
		mine := s.shares[p.entry.ID]
		if mine.add(p.consumed, -1); mine.count == 0 {
			delete(s.shares, p.entry.ID)
			if s.use.shares[p.entry.ID] == nil {
				p.view.draw(p.entry, -1)
			}
		}
	default:
		delete(s.whole, p.entry.ID)
		p.view.draw(p.entry, -1)
	}
}

func (s *search) viewOf(e *entry) *view {
	for _, v := range s.pools {
		if v.driver == e.Driver && v.name == e.Pool {
			return v
		}
	}
	return nil
}
