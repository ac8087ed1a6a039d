package run_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run"
)

// BenchmarkMachines measures a run with a thousand machines, including the agents: CPU seconds, and the largest heap.
func BenchmarkMachines(b *testing.B) {
	const machines = 1000
	declared := []config.Machine{controlMachine}
	for i := range machines - 1 {
		declared = append(declared, machine(fmt.Sprintf("n%d", i),
			netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), config.RoleNode))
	}
	for range b.N {
		b.StopTimer()
		w := newWorld(b, declared...)
		b.StartTimer()
		w.reportCost(b, "first-apply", func(ctx context.Context, p *run.Prepared) error { return p.Apply(ctx) })
		w.reportCost(b, "plan", func(context.Context, *run.Prepared) error { return nil })
		w.reportCost(b, "no-op", func(ctx context.Context, p *run.Prepared) error { return p.Apply(ctx) })
		w.agents.Wait()
	}
}

// reportCost reports the cost of a run.
func (w *world) reportCost(b *testing.B, name string, do func(context.Context, *run.Prepared) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	runtime.GC()
	stop, heap := make(chan struct{}), make(chan uint64)
	go func() {
		var maximum uint64
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				maximum = max(maximum, m.HeapAlloc)
			case <-stop:
				heap <- maximum
				return
			}
		}
	}()
	before := cpuSeconds(b)
	p, err := w.engine.Prepare(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := do(ctx, p); err != nil {
		b.Fatal(err)
	}
	p.Close()
	close(stop)
	b.ReportMetric(cpuSeconds(b)-before, name+"-cpu-s")
	b.ReportMetric(float64(<-heap)/(1<<20), name+"-heap-MiB")
}

// cpuSeconds returns the CPU seconds that this process has used.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
