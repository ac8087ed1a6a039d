package run

import (
	"runtime"
	"testing"
)

func TestASmallHeapGrowsByTheFloorAndALargeOneDoubles(t *testing.T) {
	for live, want := range map[uint64][2]int{0: {400, 400}, 8 << 20: {400, 400}, 24 << 20: {200, 200}, 48 << 20: {100, 100}, 96 << 20: {100, 50}, 1 << 30: {100, 40}} {
		if got := [2]int{percent(live, false), percent(live, true)}; got != want {
			t.Errorf("percent(%d MiB) is %d, not %d", live>>20, got, want)
		}
	}
}

func TestMemoryIsReturnedOnceTheWorkIsOver(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name                            string
		live, allocated, last, returned uint64
		want                            bool
	}{
		{"at work", 20 * mb, 500 * mb, 400 * mb, 0, false},
		{"after work", 20 * mb, 500 * mb, 499 * mb, 0, true},
		{"after a return", 20 * mb, 501 * mb, 500 * mb, 500 * mb, false},
		{"a large heap with little garbage", 400 * mb, 550 * mb, 549 * mb, 500 * mb, false},
	} {
		if got := idle(c.live, c.allocated, c.last, c.returned); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestEachCollectionIsNoticed(t *testing.T) {
	noticed := make(chan struct{}, 1)
	stop := afterCollections(func() {
		select {
		case noticed <- struct{}{}:
		default: // the last one has not been looked at
		}
	})
	for range 3 {
		runtime.GC()
		<-noticed
	}
	stop()
}
