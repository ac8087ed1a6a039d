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
	// floor is the number of bytes that a process may allocate between two garbage collections, however small its heap
	// is. Otherwise a small heap would be collected every few megabytes, and weakly referenced values would disappear
	// at once.
	floor = 48 << 20
	// quiet is the number of bytes that an idle process allocates at most between two looks. For large heaps the limit
	// is the live heap divided by quietPart, because a process with much data scans it now and then.
	quiet     = 2 << 20
	quietPart = 32
	// worth is the minimum number of bytes to allocate between two returns of memory to the system, so that a return is
	// worth a collection.
	worth = 16 << 20
	// look is the interval between checks.
	look = 5 * time.Second
	// settled is the number of idle looks in a row after which work counts as finished. Then one return is made for a
	// smaller amount: the live heap divided by settledPart. Small amounts that come later are not collected again and
	// again.
	settled     = 4
	settledPart = 16
	// starting is the number of looks after which a process that was never idle no longer counts as starting.
	starting = 6
)

// Memory trades memory for speed while the process works. When the process becomes idle, it runs the functions of rest
// and returns memory to the system. It returns when ctx ends.
func Memory(ctx context.Context, rest *Rest) {
	p := pace{rest: rest}
	p.starting.Store(true)
	p.set.Store(startPercent)
	debug.SetGCPercent(startPercent)
	defer afterCollections(p.adjust)()
	tick := time.NewTicker(look)
	defer tick.Stop()
	var r resting
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if looks == starting {
			p.starting.Store(false)
		}
		live, allocated := heap()
		if r.due(live, allocated) {
			p.starting.Store(false)
			rest.do()
			runtime.GC() // a second collection frees what pools and weak pointers held
			debug.FreeOSMemory()
			releaseProgram()
			_, allocated = heap() // what this itself allocated does not count as work
			r.done(allocated)
		}
	}
}

// pace adjusts the garbage collector's percentage after each collection. While a process reads a large cluster, its
// heap grows between collections. With an outdated percentage it would grow to five times the live heap.
type pace struct {
	rest     *Rest
	starting atomic.Bool
	set      atomic.Int64 // the present percentage
}

func (p *pace) adjust() {
	live, _ := heap()
	if now := int64(p.percent(live)); p.set.Swap(now) != now {
		debug.SetGCPercent(int(now))
	}
}

func (p *pace) percent(live uint64) int {
	now := percent(live, p.rest.dense.Load())
	if p.starting.Load() && live < startLive {
		now = startPercent
	}
	if p.rest.Most > 0 {
		now = min(now, p.rest.Most)
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

// percent returns the garbage collector's percentage. A small heap may grow by floor. A large one at most doubles, or
// grows less if it is dense.
func percent(live uint64, dense bool) int {
	least := uint64(minPercent)
	if dense {
		least = densePercent
	}
	return int(min(max(100*floor/max(live, 1), least), maxPercent))
}

// resting decides when memory is returned to the system. Amounts are total bytes allocated since the process started.
type resting struct {
	last     uint64 // at the last look
	returned uint64 // after the last return; 0 before the first, since the start leaves garbage
	looks    int    // consecutive idle looks
	over     bool   // the return for the end of the work was made
}

// due records a look. It reports whether the process is idle and has enough garbage for a collection.
func (r *resting) due(live, allocated uint64) bool {
	worked := allocated - r.last
	r.last = allocated
	if worked >= max(quiet, live/quietPart) {
		r.looks, r.over = 0, false
		return false
	}
	r.looks++
	if r.returned == 0 || allocated-r.returned > max(worth, live/4) {
		return true
	}
	if r.looks < settled || r.over {
		return false
	}
	r.over = true
	return allocated-r.returned > max(quiet, live/settledPart)
}

// done records a return.
func (r *resting) done(allocated uint64) { r.last, r.returned = allocated, allocated }

// heap returns the live bytes after the last collection, and the total bytes ever allocated.
func heap() (live, allocated uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
