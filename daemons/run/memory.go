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
	// floor is how much a process may allocate between two collections however little of it lives: a small heap would
	// otherwise be collected every few megabytes, and what is held weakly would be gone at once.
	floor = 48 << 20
	// quiet is how little a process allocates within a look when it has nothing to do; or this part of what lives, for
	// who keeps much looks over it now and then.
	quiet     = 2 << 20
	quietPart = 32
	// worth is how much must have been allocated since for a return of memory to be worth a collection.
	worth = 16 << 20
	// look is how often that is looked at.
	look = 5 * time.Second
	// settled is how many looks in a row have to find nothing done for the work to be over. Then once less is worth a
	// collection, this part of what lives: what little comes later, and goes on coming, is not collected over and over.
	settled     = 4
	settledPart = 16
	// starting is after how many looks a process that has had something to do all the time is no longer starting.
	starting = 6
)

// Memory trades memory for speed while the process works, and gives it back to the
// system when the work is over and what is to be done then has been. It returns when ctx ends.
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
			runtime.GC() // what pools and weak pointers hold is garbage only after a first one
			debug.FreeOSMemory()
			releaseProgram()
			_, allocated = heap() // what this has taken itself is no work
			r.done(allocated)
		}
	}
}

// pace sets the collector's percentage after each collection. While a process reads a large cluster its heap grows
// from one collection to the next: with the percentage of seconds ago it would grow to five times what lives.
type pace struct {
	rest     *Rest
	starting atomic.Bool
	set      atomic.Int64 // the percentage
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

// afterCollections has f called after each collection of garbage, never twice at once, until stop is called.
func afterCollections(f func()) (stop func()) {
	type mark struct{ _ *mark } // with a pointer, for what has none shares its memory with others and may live longer
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
	// startPercent is the percentage for heaps of up to startLive bytes while a process starts. Most of what it makes
	// then lives as long as the process does, and lies on half as many pages when little garbage came between.
	startPercent = 25
	startLive    = 32 << 20
)

// percent is the garbage collector's, so that a small heap may grow by the floor and a
// large one doubles at most, or grows by less where it is to be dense.
func percent(live uint64, dense bool) int {
	least := uint64(minPercent)
	if dense {
		least = densePercent
	}
	return int(min(max(100*floor/max(live, 1), least), maxPercent))
}

// resting says when memory is to be given back. Amounts are of all that was ever allocated.
type resting struct {
	last     uint64 // at the last look
	returned uint64 // after the last return; 0 before the first, for after its start a process has garbage
	looks    int    // that found nothing done, in a row
	over     bool   // the end of the work has had its return
}

// due takes a look, and reports whether the process rests and has garbage that is worth a collection.
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

// done is told of a return.
func (r *resting) done(allocated uint64) { r.last, r.returned = allocated, allocated }

// heap returns the bytes that lived after the last collection, and all that were ever allocated.
func heap() (live, allocated uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
