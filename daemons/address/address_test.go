package address

import (
	"testing"
	"time"
)

// The kernel drops the address before another machine may take the lease. This holds even if the holder is suspended
// after the renewal and the kernel is late.
func TestAddressExpiresBeforeTheLease(t *testing.T) {
	const delay = 1300 * time.Millisecond // delay of the kernel
	for _, elapsed := range []time.Duration{0, checkInterval, checkInterval + time.Millisecond, callTimeout} {
		if removal := elapsed + lifetime(elapsed) + delay; removal >= leaseTime {
			t.Errorf("renewed %s ago: gone after %s, the lease is free after %s", elapsed, removal, leaseTime)
		}
	}
	if holdTime >= leaseTime {
		t.Error("the holder lets go later than others take")
	}
}
