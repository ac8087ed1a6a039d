package device

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Use counts the allocations of devices. Admin access does not count, since it leaves the device to others.
type Use struct {
	exclusive map[DeviceID]int
	shares    map[DeviceID]*share
}

// share counts the shares of one device.
type share struct {
	count    int
	consumed map[resourcev1.QualifiedName]resource.Quantity
}

// NewUse returns a Use without allocations.
func NewUse() *Use { return &Use{map[DeviceID]int{}, map[DeviceID]*share{}} }

// Add counts an allocation.
func (u *Use) Add(a *resourcev1.AllocationResult) { u.count(a, 1) }

// Remove reverts Add.
func (u *Use) Remove(a *resourcev1.AllocationResult) { u.count(a, -1) }

func (u *Use) count(a *resourcev1.AllocationResult, times int) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if isTrue(r.AdminAccess) {
			continue
		}
		id := DeviceID{r.Driver, r.Pool, r.Device}
		if r.ShareID != nil {
			u.share(id, r.ConsumedCapacity, times)
			continue
		}
		if u.exclusive[id] += times; u.exclusive[id] <= 0 {
			delete(u.exclusive, id)
		}
	}
}

func (u *Use) share(id DeviceID, consumed map[resourcev1.QualifiedName]resource.Quantity, times int) {
	s := u.shares[id]
	if s == nil {
		s = &share{consumed: map[resourcev1.QualifiedName]resource.Quantity{}}
		u.shares[id] = s
	}
	if s.add(consumed, times); s.count <= 0 {
		delete(u.shares, id)
	}
}

// add adds one share's consumption, or removes it if times is negative.
func (s *share) add(consumed map[resourcev1.QualifiedName]resource.Quantity, times int) {
	for name, q := range consumed {
		total := s.consumed[name].DeepCopy()
		if times > 0 {
			total.Add(q)
		} else {
			total.Sub(q)
		}
		s.consumed[name] = total
	}
	s.count += times
}

// isTaken reports whether a device or a share of it is allocated.
func (u *Use) isTaken(id DeviceID) bool { return u.exclusive[id] > 0 || u.shares[id] != nil }
