package device

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"clusterctl/daemons/kinds/expression"
)

// Plan holds the requests of claims, prepared once for all nodes.
type Plan struct {
	// Start starts the clock for a search on one node. It returns a function that reports whether the search has taken
	// too long. If Start is nil, the number of tries is limited.
	Start func() (isLate func() bool)

	claims []*claimRequests
}

// claimRequests holds the requests of one claim.
type claimRequests struct {
	claim       *resourcev1.ResourceClaim
	requests    [][]*option // by request: its options in order of preference
	constraints []constraint
}

// option is a request or subrequest.
type option struct {
	name        string // REQUEST or REQUEST/SUBREQUEST
	claim       string // namespace/name
	class       *resourcev1.DeviceClass
	selectors   []condition
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
	admin, all  bool
	count       int
}

// condition is an expression that a device must satisfy.
type condition struct {
	text   string
	device *expression.Device
	origin string // for messages
}

// Compiler compiles expressions about devices. The scheduler caches the results.
type Compiler func(text string) (*expression.Device, error)

// Classes returns a class by name, or nil.
type Classes func(name string) *resourcev1.DeviceClass

// NewPlan prepares claims. It returns an error for problems that no node can solve: a missing class, an expression that
// does not compile, too many devices in a claim, or an unsupported feature.
func NewPlan(claims []*resourcev1.ResourceClaim, classes Classes, compile Compiler) (*Plan, error) {
	p := &Plan{}
	for _, c := range claims {
		a := &claimRequests{claim: c}
		minimum := 0
		for i := range c.Spec.Devices.Requests {
			options, err := readRequest(c, &c.Spec.Devices.Requests[i], classes, compile)
			if err != nil {
				return nil, err
			}
			a.requests = append(a.requests, options)
			fewest := options[0].minDevices()
			for _, o := range options {
				fewest = min(fewest, o.minDevices())
			}
			if minimum += fewest; minimum > resourcev1.AllocationResultsMaxSize {
				return nil, fmt.Errorf("claim %s/%s, request %s: adding %d devices exceeds the claim limit of %d, "+
					"with %d already accounted for", c.Namespace, c.Name, c.Spec.Devices.Requests[i].Name, fewest,
					resourcev1.AllocationResultsMaxSize, minimum-fewest)
			}
		}
		for i, one := range c.Spec.Devices.Constraints {
			switch {
			case one.MatchAttribute != nil:
				a.constraints = append(a.constraints, constraint{one.Requests, *one.MatchAttribute, false})
			case one.DistinctAttribute != nil:
				a.constraints = append(a.constraints, constraint{one.Requests, *one.DistinctAttribute, true})
			default:
				return nil, fmt.Errorf("claim %s/%s, constraint #%d: empty constraint (unsupported constraint type?)",
					c.Namespace, c.Name, i)
			}
		}
		p.claims = append(p.claims, a)
	}
	return p, nil
}

// minDevices returns the minimum number of devices for the option.
func (o *option) minDevices() int {
	if o.all {
		return 1
	}
	return o.count
}

func readRequest(
	c *resourcev1.ResourceClaim,
	r *resourcev1.DeviceRequest,
	classes Classes,
	compile Compiler,
) ([]*option, error) {
	if e := r.Exactly; e != nil {
		o, err := newOption(c, r.Name, e, classes, compile)
		return []*option{o}, err
	}
	if len(r.FirstAvailable) == 0 {
		return nil, fmt.Errorf("claim %s/%s, request %s: neither exactly nor firstAvailable is set "+
			"(unsupported request type?)", c.Namespace, c.Name, r.Name)
	}
	var out []*option
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		o, err := newOption(c, r.Name+"/"+s.Name, &resourcev1.ExactDeviceRequest{
			DeviceClassName: s.DeviceClassName, Selectors: s.Selectors, AllocationMode: s.AllocationMode,
			Count:       s.Count,
			Tolerations: s.Tolerations, Capacity: s.Capacity, DerivedAttributes: s.DerivedAttributes,
		}, classes, compile)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func newOption(
	c *resourcev1.ResourceClaim,
	name string,
	e *resourcev1.ExactDeviceRequest,
	classes Classes,
	compile Compiler,
) (*option, error) {
	o := &option{
		name: name, claim: c.Namespace + "/" + c.Name, class: classes(e.DeviceClassName), tolerations: e.Tolerations,
		capacity: e.Capacity,
		admin:    isTrue(e.AdminAccess), count: int(min(e.Count, resourcev1.AllocationResultsMaxSize+1)),
	}
	if o.class == nil {
		return nil, fmt.Errorf("request %s: device class %s does not exist", name, e.DeviceClassName)
	}
	if len(e.DerivedAttributes) > 0 {
		return nil, fmt.Errorf("claim %s, request %s: derived attributes are not supported by this scheduler", o.claim,
			name)
	}
	switch e.AllocationMode {
	case resourcev1.DeviceAllocationModeAll:
		o.all = true
	case resourcev1.DeviceAllocationModeExactCount:
	default:
		return nil, fmt.Errorf("claim %s, request %s: unsupported count mode %s", o.claim, name, e.AllocationMode)
	}
	for _, from := range []struct {
		list   []resourcev1.DeviceSelector
		origin string
	}{{o.class.Spec.Selectors, "class " + o.class.Name}, {e.Selectors, "claim " + o.claim}} {
		for i, s := range from.list {
			origin := fmt.Sprintf("%s: selector #%d", from.origin, i)
			if s.CEL == nil {
				return nil, fmt.Errorf("%s: CEL expression empty (unsupported selector type?)", origin)
			}
			compiled, err := compile(s.CEL.Expression)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", origin, err)
			}
			o.selectors = append(o.selectors, condition{s.CEL.Expression, compiled, origin})
		}
	}
	return o, nil
}

// maxCachedResults is the maximum number of cached expression results per device.
const maxCachedResults = 64

// isSatisfiedBy reports whether a device satisfies all expressions. Results are cached as long as the device's slice is
// unchanged.
func (o *option) isSatisfiedBy(e *entry) (bool, error) {
	for _, c := range o.selectors {
		v, ok := e.expressionResults[c.text]
		if !ok {
			v.matches, v.err = c.device.Selects(e.Driver, e.Device)
			if e.expressionResults == nil || len(e.expressionResults) >= maxCachedResults {
				e.expressionResults = map[string]expressionResult{}
			}
			e.expressionResults[c.text] = v
		}
		if v.err != nil {
			return false, fmt.Errorf("%s on device %s/%s/%s: %w", c.origin, e.Driver, e.Pool, e.DeviceID.Device, v.err)
		}
		if !v.matches {
			return false, nil
		}
	}
	return true, nil
}
