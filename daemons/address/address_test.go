package address

import (
	"testing"
	"time"
)

// The kernel forgets an address before another machine may take the lease, also when
// the holder froze between renewal and kernel, and the kernel is slow.
func TestTheAddressIsGoneBeforeTheLeaseIs(t *testing.T) {
	const late = 1300 * time.Millisecond // of the kernel
	for _, elapsed := range []time.Duration{0, period, period + time.Millisecond, callTimeout} {
		if gone := elapsed + lifetime(elapsed) + late; gone >= leaseTime {
			t.Errorf("renewed %s ago: gone after %s, the lease is free after %s", elapsed, gone, leaseTime)
		}
	}
	if hold >= leaseTime {
		t.Error("the holder lets go later than others take")
	}
}
