package run

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// minHeapGrowth is the number of bytes that a process may allocate between two garbage collections, however small
	// its heap is. Otherwise a small heap would be collected every few megabytes, and weakly referenced values would
	// disappear at once.
	minHeapGrowth = 48 << 20
	// idleBytes is the number of bytes that an idle process allocates at most between two looks. For large heaps the
	// limit is the live heap divided by idleShare, because a process with much data scans it now and then.
	idleBytes = 2 << 20
	idleShare = 32
	// minReturn is the minimum number of bytes to allocate between two returns of memory to the system, so that a
	// return is worth a collection.
	minReturn = 16 << 20
	// checkInterval is the interval between checks.
	checkInterval = 5 * time.Second
	// idleChecks is the number of idle looks in a row after which work counts as finished. Then one return is made for
	// a smaller amount: the live heap divided by idleCheckShare. Small amounts that come later are not collected again
	// and again.
	idleChecks     = 4
	idleCheckShare = 16
	// startingChecks is the number of checks after which a process that was never idle no longer counts as starting.
	startingChecks = 6
)

// ManageMemory trades memory for speed while the process works. When the process becomes idle, it runs the functions of
// rest and returns memory to the system. It returns when ctx ends.
func ManageMemory(ctx context.Context, rest *IdleTasks) {
	p := gcPacer{idle: rest}
	p.isStarting.Store(true)
	p.current.Store(startPercent)
	debug.SetGCPercent(startPercent)
	defer afterCollections(p.adjust)()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	var r returnPolicy
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if looks == startingChecks {
			p.isStarting.Store(false)
		}
		live, allocated := heapBytes()
		if r.isDue(live, allocated) {
			p.isStarting.Store(false)
			rest.run()
			runtime.GC() // a second collection frees what pools and weak pointers held
			debug.FreeOSMemory()
			releaseProgram()
			_, allocated = heapBytes() // allocations of this function do not count as work
			r.recordReturn(allocated)
		}
	}
}

// gcPacer adjusts the garbage collector's percentage after each collection. While a process reads a large cluster, its
// heap grows between collections. With an outdated percentage it would grow to five times the live heap.
type gcPacer struct {
	idle       *IdleTasks
	isStarting atomic.Bool
	current    atomic.Int64 // the present percentage
}

func (p *gcPacer) adjust() {
	live, _ := heapBytes()
	if now := int64(p.percent(live)); p.current.Swap(now) != now {
		debug.SetGCPercent(int(now))
	}
}

func (p *gcPacer) percent(live uint64) int {
	now := heapPercent(live, p.idle.isDense.Load())
	if p.isStarting.Load() && live < startLive {
		now = startPercent
	}
	if p.idle.MaxGrowthPercent > 0 {
		now = min(now, p.idle.MaxGrowthPercent)
	}
	return now
}

// afterCollections calls f after each garbage collection, never concurrently, until stop is called.
func afterCollections(f func()) (stop func()) {
	// it contains a pointer, because pointer-free objects share memory with others and may live longer
	type mark struct{ _ *mark }
	var stopped atomic.Bool
	var arm func()
	arm = func() {
		runtime.AddCleanup(&mark{}, func(struct{}) {
			if !stopped.Load() {
				f()
				arm()
			}
		}, struct{}{})
	}
	arm()
	return func() { stopped.Store(true) }
}

const (
	maxPercent   = 400
	minPercent   = 100
	densePercent = 40
	// startPercent applies to heaps of up to startLive bytes while a process starts. Most of what it allocates then is
	// long-lived, and occupies half as many pages if there is little garbage in between.
	startPercent = 25
	startLive    = 32 << 20
)

// heapPercent returns the garbage collector's percentage. A small heap may grow by minHeapGrowth. A large one at most
// doubles, or grows less if it is dense.
func heapPercent(live uint64, dense bool) int {
	minimum := uint64(minPercent)
	if dense {
		minimum = densePercent
	}
	return int(min(max(100*minHeapGrowth/max(live, 1), minimum), maxPercent))
}

// returnPolicy decides when memory is returned to the system. Amounts are total bytes allocated since the process
// started.
type returnPolicy struct {
	lastAllocated     uint64 // at the last look
	allocatedAtReturn uint64 // after the last return; 0 before the first, since the start leaves garbage
	idleChecks        int    // consecutive idle looks
	hasReturned       bool   // the return for the end of the work was made
}

// isDue records a look. It reports whether the process is idle and has enough garbage for a collection.
func (r *returnPolicy) isDue(live, allocated uint64) bool {
	worked := allocated - r.lastAllocated
	r.lastAllocated = allocated
	if worked >= max(idleBytes, live/idleShare) {
		r.idleChecks, r.hasReturned = 0, false
		return false
	}
	r.idleChecks++
	if r.allocatedAtReturn == 0 || allocated-r.allocatedAtReturn > max(minReturn, live/4) {
		return true
	}
	if r.idleChecks < idleChecks || r.hasReturned {
		return false
	}
	r.hasReturned = true
	return allocated-r.allocatedAtReturn > max(idleBytes, live/idleCheckShare)
}

// recordReturn records a return.
func (r *returnPolicy) recordReturn(allocated uint64) {
	r.lastAllocated, r.allocatedAtReturn = allocated, allocated
}

// heapBytes returns the live bytes after the last collection, and the total bytes ever allocated.
func heapBytes() (live, allocated uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
