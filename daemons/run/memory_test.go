package run

import (
	"runtime"
	"testing"
)

func TestSmallHeapsGrowByTheMinimumAndLargeHeapsDouble(t *testing.T) {
	for live, want := range map[uint64][2]int{0: {400, 400}, 8 << 20: {400, 400}, 24 << 20: {200, 200},
		48 << 20: {100, 100}, 96 << 20: {100, 50}, 1 << 30: {100, 40}} {
		if got := [2]int{heapPercent(live, false), heapPercent(live, true)}; got != want {
			t.Errorf("percent(%d MiB) is %d, not %d", live>>20, got, want)
		}
	}
}

func TestSmallHeapsGrowLittleDuringTheStart(t *testing.T) {
	for _, c := range []struct {
		live     uint64
		starting bool
		maximum  int
		want     int
	}{
		{8 << 20, true, 0, startPercent},
		{8 << 20, false, 0, 400},
		{8 << 20, false, 100, 100},
		{8 << 20, true, 100, startPercent},
		{startLive, true, 0, 150},
	} {
		p := gcPacer{idle: &IdleTasks{MaxGrowthPercent: c.maximum}}
		p.isStarting.Store(c.starting)
		if got := p.percent(c.live); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestMemoryIsReturnedAfterWork(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		live uint64
		done []uint64 // MiB allocated before each look
		want []bool   // whether memory is returned after each look
	}{
		"after the start": {20, []uint64{400, 1, 1}, []bool{false, true, false}},
		"much work, then none": {20, []uint64{400, 1, 400, 1, 1},
			[]bool{false, true, false, true, false}},
		"a large heap's little, when it is over": {400, []uint64{500, 1, 50, 1, 1, 1, 1, 1},
			[]bool{false, true, false, false, false, false, true, false}},
		"hardly anything": {400, []uint64{500, 1, 14, 1, 1, 1, 1, 1},
			[]bool{false, true, false, false, false, false, false, false}},
		"what trickles in without an end, once": {100, []uint64{500, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
			[]bool{false, true,
				false, false, true, false, false, false, false, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var r returnPolicy
			var allocated uint64
			for i, mib := range c.done {
				allocated += mib * mb
				if got := r.isDue(c.live*mb, allocated); got != c.want[i] {
					t.Errorf("after %d MiB: given back: %v", c.done[:i+1], got)
				} else if got {
					r.recordReturn(allocated)
				}
			}
		})
	}
}

func TestAfterCollectionsRunsAfterEachCollection(t *testing.T) {
	noticed := make(chan struct{}, 1)
	stop := afterCollections(func() {
		select {
		case noticed <- struct{}{}:
		default: // the last one was not received yet
		}
	})
	for range 3 {
		runtime.GC()
		<-noticed
	}
	stop()
}
