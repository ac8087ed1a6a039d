package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/tests/lab/plane"
)

// measureWhole starts a scheduler when pods are already pending, and measures until all are bound and the processes are
// idle.
func (b *bench) measureWhole(ctx context.Context) error {
	return b.withControlPlane(ctx, func(ctx context.Context, c *controlPlane) error {
		if err := c.fillNodes(ctx, b.amounts.nodes); err != nil {
			return err
		}
		if err := c.fillPending(ctx, b.amounts.pods, b.amounts.perSet); err != nil {
			return err
		}
		if err := awaitIdle(ctx, c.API[0], c.Etcd[0]); err != nil {
			return err
		}
		list, err := c.CoreV1().Pods(benchNamespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		var took, first time.Duration
		var bound []time.Duration // CPU time of each group until all pods were bound
		groups := [][]*plane.Process{{c.API[0]}, {c.Etcd[0]}}
		rest, err := measureCPU(func() error {
			start := time.Now()
			bound, err = measureCPU(func() error {
				if err := c.Scheduler.Start(ctx); err != nil {
					return err
				}
				c.profileCPU(ctx, c.Scheduler, "whole")
				first, err = c.awaitBound(ctx, list.ResourceVersion, b.amounts.pods, start)
				took = time.Since(start)
				return err
			}, groups...)
			if err != nil {
				return err
			}
			return awaitIdle(ctx, c.Scheduler, c.API[0], c.Etcd[0])
		}, groups...)
		if err != nil {
			return err
		}
		scheduler, err := cpuTime(c.Scheduler)
		if err != nil {
			return err
		}
		each := func(d time.Duration) float64 { return 1000 * d.Seconds() / float64(b.amounts.pods) }
		name := fmt.Sprintf("whole daemon, %d owned pods into %d nodes", b.amounts.pods, b.amounts.nodes)
		b.add(figure{work: name, unit: "pods/s", upstream: "315, bare", mark: 1000, isMinimum: true,
			note: fmt.Sprintf("the first after %.2f s, then %.0f/s", first.Seconds(),
				float64(b.amounts.pods)/(took-first).Seconds())}, float64(b.amounts.pods)/took.Seconds())
		b.add(figure{work: name + ": scheduler", unit: "CPU ms per pod", upstream: "2.7, bare", mark: 0.4},
			each(scheduler))
		b.add(figure{work: name + ": API server and etcd", unit: "CPU ms per pod", upstream: "3.3, bare", mark: 1,
			note: fmt.Sprintf("API server %.2f, etcd %.2f; until the last was bound %.2f", each(rest[0]), each(rest[1]),
				each(bound[0]+bound[1]))}, each(rest[0]+rest[1]))
		return nil
	})
}

// awaitBound waits until n pods have a node, and returns the time from began until the first had one.
func (c *controlPlane) awaitBound(ctx context.Context, version string, n int, start time.Time) (first time.Duration,
	err error) {
	bound := map[types.UID]bool{}
	err = watchUntil(
		ctx,
		version,
		func(o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Pods(benchNamespace).Watch(ctx, o)
		},
		func(e watch.Event) bool {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				if len(bound) == 0 {
					first = time.Since(start)
				}
				bound[pod.UID] = true
			}
			return len(bound) == n
		},
	)
	return first, err
}
