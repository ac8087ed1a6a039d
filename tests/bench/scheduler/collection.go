package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/tests/lab/plane"
)

// formerCollectorCost is the CPU time of all controllers, in ms for each dependent, that the collector needed when it
// made three requests for each.
const formerCollectorCost = 0.64

// measureCollection measures the deletion of the many dependents of one deleted owner.
func (b *bench) measureCollection(ctx context.Context) error {
	return b.withControlPlane(ctx, func(ctx context.Context, c *controlPlane) error {
		owner, err := c.CoreV1().
			ConfigMaps(benchNamespace).
			Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n := b.amounts.dependents
		each := func(d time.Duration) float64 { return 1000 * d.Seconds() / float64(n) }
		cost, err := measureCPU(func() error { return c.fillConfigMaps(ctx, n, 1<<10, owner) },
			[]*plane.Process{c.API[0]}, []*plane.Process{c.Etcd[0]})
		if err != nil {
			return err
		}
		b.add(
			figure{
				work:     fmt.Sprintf("this machine: etcd, %d ConfigMaps created", n),
				unit:     "CPU ms each",
				upstream: "0.42",
				note:     fmt.Sprintf("API server %.2f, upstream's 0.83", each(cost[0])),
			},
			each(cost[1]),
		)
		if err := c.Controllers.Start(ctx); err != nil {
			return err
		}
		if err := c.awaitControllers(ctx); err != nil {
			return err
		}
		maps := c.meta.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(benchNamespace)
		list, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		requestsBefore, err := c.requests(ctx, "configmaps")
		if err != nil {
			return err
		}
		groups := [][]*plane.Process{{c.Controllers}, {c.API[0]}, {c.Etcd[0]}}
		c.profileCPU(ctx, c.Controllers, "collection")
		start := time.Now()
		cost, err = measureCPU(func() error {
			policy := metav1.DeletePropagationBackground
			if err := c.CoreV1().ConfigMaps(benchNamespace).Delete(ctx, owner.Name,
				metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				return err
			}
			deleted := 0
			return watchUntil(
				ctx,
				list.ResourceVersion,
				func(o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
				func(e watch.Event) bool {
					if e.Type == watch.Deleted {
						deleted++
					}
					return deleted == n+1
				},
			)
		}, groups...)
		if err != nil {
			return err
		}
		took := time.Since(start)
		now, err := c.requests(ctx, "configmaps")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d dependents collected", n)
		// the other request is this program's own
		b.add(figure{work: name, unit: "requests each", mark: 1.1}, (now-requestsBefore-1)/float64(n))
		b.add(figure{work: name + ": controllers", unit: "CPU ms each", mark: formerCollectorCost / 5,
			note: fmt.Sprintf("API server %.2f, etcd %.2f; %.1f s", each(cost[1]), each(cost[2]),
				took.Seconds())}, each(cost[0]))
		return nil
	})
}
