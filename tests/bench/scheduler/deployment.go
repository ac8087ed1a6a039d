package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/tests/lab/plane"
)

// measureDeployment measures from the request that creates a Deployment until all its pods exist.
func (b *bench) measureDeployment(ctx context.Context) error {
	return b.withControlPlane(ctx, func(ctx context.Context, c *controlPlane) error {
		if err := c.Controllers.Start(ctx); err != nil {
			return err
		}
		if err := c.awaitControllers(ctx); err != nil {
			return err
		}
		list, err := c.CoreV1().Pods(benchNamespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		replicas, labels := int32(b.amounts.replicas), map[string]string{"app": "many"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		}}
		c.profileCPU(ctx, c.Controllers, "deployment")
		var took time.Duration
		var until []time.Duration
		groups := [][]*plane.Process{{c.API[0]}, {c.Controllers}, {c.Etcd[0]}}
		after, err := measureCPU(func() error {
			until, err = measureCPU(func() error {
				start, there := time.Now(), 0
				if _, err := c.AppsV1().Deployments(benchNamespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
					return err
				}
				err := watchUntil(
					ctx,
					list.ResourceVersion,
					func(o metav1.ListOptions) (watch.Interface, error) {
						return c.CoreV1().Pods(benchNamespace).Watch(ctx,
							o)
					},
					func(e watch.Event) bool {
						if e.Type == watch.Added {
							there++
						}
						return there == b.amounts.replicas
					},
				)
				took = time.Since(start)
				return err
			}, groups...)
			if err != nil {
				return err
			}
			return awaitIdle(ctx, c.Controllers, c.API[0])
		}, groups...)
		if err != nil {
			return err
		}
		sum := func(d []time.Duration) float64 { return (d[0] + d[1] + d[2]).Seconds() }
		name := fmt.Sprintf("Deployment of %d until all pods are created", b.amounts.replicas)
		b.add(
			figure{
				work:     name + ": API server, controllers and etcd",
				unit:     "CPU s",
				upstream: "1.9 to 2.8, its rate limits raised",
				mark:     0.9,
				note: fmt.Sprintf("API server %.2f, controllers %.2f, etcd %.2f; until all rest %.2f",
					until[0].Seconds(), until[1].Seconds(), until[2].Seconds(), sum(after)),
			},
			sum(until),
		)
		b.add(figure{work: name, unit: "s", upstream: "49.6; 1.7 to 2.6, its rate limits raised", mark: 1},
			took.Seconds())
		return nil
	})
}
