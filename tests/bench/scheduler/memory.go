package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"clusterctl/tests/lab/plane"
)

// measureMemory measures the memory of scheduler and controllers in a full cluster.
func (b *bench) measureMemory(ctx context.Context) error {
	return b.withControlPlane(ctx, func(ctx context.Context, c *controlPlane) error {
		if err := c.fillNodes(ctx, b.amounts.nodes); err != nil {
			return err
		}
		if err := c.fillRunning(ctx, b.amounts.storedPods, b.amounts.perSet, b.amounts.nodes); err != nil {
			return err
		}
		if err := c.fillConfigMaps(ctx, b.amounts.configMaps, 10<<10, nil); err != nil {
			return err
		}
		for _, daemon := range []struct {
			name    string
			process *plane.Process
			mark    float64
		}{{"scheduler", c.Scheduler, 120}, {"controllers", c.Controllers, 150}} {
			held, most, err := c.measureMemory(ctx, daemon.process, daemon.name, b.amounts.idleTime)
			if err != nil {
				return err
			}
			if err := c.writeProfile(ctx, c.HealthAddress(daemon.process), "memory-"+daemon.name+"-heap",
				"heap?gc=1"); err != nil {
				return err
			}
			used, err := cpuTime(daemon.process)
			if err != nil {
				return err
			}
			b.add(
				figure{
					work: fmt.Sprintf("%s beside %d nodes, %d pods, %d ConfigMaps of 10 KiB", daemon.name,
						b.amounts.nodes, b.amounts.storedPods, b.amounts.configMaps),
					unit: "anonymous MiB",
					mark: daemon.mark,
					note: fmt.Sprintf("at most %.0f; %.1f CPU s since its start", most, used.Seconds()),
				},
				held,
			)
		}
		return nil
	})
}

// measureMemory starts a daemon. It returns the memory of the daemon when it has read everything and is idle, and the
// maximum before that.
func (c *controlPlane) measureMemory(
	ctx context.Context,
	daemon *plane.Process,
	name string,
	quietTime time.Duration,
) (held, most float64, err error) {
	if err := daemon.Start(ctx); err != nil {
		return 0, 0, err
	}
	c.profileCPU(ctx, daemon, "memory-"+name)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		for pause(watching, 200*time.Millisecond) == nil {
			now, err := anonymousMemory(daemon)
			if err != nil {
				return err
			}
			most = max(most, now)
		}
		return nil
	})
	if err := awaitIdle(ctx, daemon, c.API[0]); err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, quietTime); err != nil {
		return 0, 0, err
	}
	stop()
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	held, err = anonymousMemory(daemon)
	return held, most, err
}
