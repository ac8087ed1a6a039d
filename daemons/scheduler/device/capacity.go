package device

import (
	"math/big"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

type amounts = map[resourcev1.QualifiedName]resource.Quantity

// consumption returns what a request would consume of a device's capacity, rounded up by the device's policies. ok is
// false if the device lacks a requested capacity, or if a policy forbids the request.
func consumption(d *resourcev1.Device, requested *resourcev1.CapacityRequirements) (out amounts, ok bool) {
	var requests amounts
	if requested != nil {
		requests = requested.Requests
	}
	for name := range requests {
		if _, exists := d.Capacity[name]; !exists {
			return nil, false
		}
	}
	out = amounts{}
	for name, c := range d.Capacity {
		want, named := requests[name]
		switch policy := c.RequestPolicy; {
		case !named && policy != nil && policy.Default != nil:
			want = *policy.Default
		case !named:
			want = c.Value
		case policy != nil:
			if want, ok = roundToPolicy(want, policy); !ok {
				return nil, false
			}
		}
		if want.Sign() < 0 || want.Cmp(c.Value) > 0 {
			return nil, false
		}
		out[name] = want
	}
	return out, true
}

// roundToPolicy rounds an amount up to the next one that a policy allows.
func roundToPolicy(want resource.Quantity, p *resourcev1.CapacityRequestPolicy) (resource.Quantity, bool) {
	for _, v := range p.ValidValues {
		if want.Cmp(v) <= 0 {
			return v, true
		}
	}
	r := p.ValidRange
	if r == nil || r.Min == nil {
		return want, len(p.ValidValues) == 0
	}
	switch {
	case want.Cmp(*r.Min) < 0:
		want = *r.Min
	case r.Step != nil && r.Step.Sign() > 0:
		want = nextStep(want, *r.Min, *r.Step)
	}
	return want, r.Max == nil || want.Cmp(*r.Max) <= 0
}

// nextStep returns the smallest min + n*step that is at least want. It is exact for quantities with up to three decimal
// places.
func nextStep(want, minimum, step resource.Quantity) resource.Quantity {
	w, l, s := milli(want), milli(minimum), milli(step)
	n := new(big.Int).Add(new(big.Int).Sub(w, l), new(big.Int).Sub(s, big.NewInt(1)))
	n.Div(n, s)
	sum := n.Mul(n, s).Add(n, l)
	whole, rest := new(big.Int).QuoRem(sum, big.NewInt(1000), new(big.Int))
	switch {
	case rest.Sign() == 0 && whole.IsInt64():
		return *resource.NewQuantity(whole.Int64(), step.Format)
	case sum.IsInt64():
		return *resource.NewMilliQuantity(sum.Int64(), step.Format)
	}
	return want // more than any capacity
}

func milli(q resource.Quantity) *big.Int {
	d := q.AsDec()
	out := new(big.Int).Set(d.UnscaledBig())
	for scale := d.Scale(); scale < 3; scale++ {
		out.Mul(out, big.NewInt(10))
	}
	for scale := d.Scale(); scale > 3; scale-- {
		out.Quo(out, big.NewInt(10))
	}
	return out
}

// hasCapacity reports whether a device has enough capacity for one more share, given what claims and the search have
// consumed.
func hasCapacity(d *resourcev1.Device, more amounts, before ...amounts) bool {
	for name, want := range more {
		total := want.DeepCopy()
		for _, h := range before {
			total.Add(h[name])
		}
		if total.Cmp(d.Capacity[name].Value) > 0 {
			return false
		}
	}
	return true
}

func isShareable(d *resourcev1.Device) bool { return ptr.Deref(d.AllowMultipleAllocations, false) }
