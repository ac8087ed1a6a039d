package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

const (
	idlePods = 100
	// idleMark is the maximum CPU time of kubelet, containerd and shims together, in seconds per minute.
	idleMark = 8.0
	// idleDelay is the time between the pods being ready and the measurement. idleTime is the length of the
	// measurement.
	idleDelay, idleTime = time.Minute, 3 * time.Minute
)

// idlePart is the CPU time of one program on the node with the idle pods.
type idlePart struct {
	name    string
	seconds float64 // CPU seconds per minute
}

// idleCost starts a cluster, runs idlePods with probes on one node, and prints the CPU time of kubelet, containerd and
// shims on that node. It returns an error if the sum exceeds idleMark.
func idleCost(ctx context.Context) (err error) {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, root, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Lab.Down(context.WithoutCancel(ctx))) }()
	if err := c.Apply(ctx, io.Discard); err != nil {
		return err
	}
	if err := awaitServing(ctx, c); err != nil {
		return err
	}
	fmt.Println(idlePods, "pods with probes …")
	if err := startIdle(ctx, c); err != nil {
		return err
	}
	if err := pause(ctx, idleDelay); err != nil {
		return err
	}
	parts, err := idleParts(ctx, c.Lab.Machine("a"))
	if err != nil {
		return err
	}
	sum := 0.0
	for _, p := range parts {
		fmt.Printf("%-12s %6.2f CPU seconds a minute\n", p.name, p.seconds)
		sum += p.seconds
	}
	fmt.Printf("%-12s %6.2f, at most %.0f\n", "together", sum, idleMark)
	if sum > idleMark {
		return fmt.Errorf("%d idle pods cost %.2f CPU seconds a minute, which is more than %.0f", idlePods,
			sum, idleMark)
	}
	return nil
}

// startIdle runs idlePods with a readiness and a liveness probe on node a, and waits until all are ready.
func startIdle(ctx context.Context, c *cluster.Cluster) error {
	client, image, err := administrator(ctx, c)
	if err != nil {
		return err
	}
	replicas, labels := int32(idlePods), map[string]string{"app": "idle"}
	probe := func(period int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	}
	deployments := client.AppsV1().Deployments("shop")
	_, err = deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "idle"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"topology.kubernetes.io/zone": "a"},
					Containers: []corev1.Container{{Name: "c", Image: image, ReadinessProbe: probe(10),
						LivenessProbe: probe(10)}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, 10*time.Minute, func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "idle", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != replicas {
			err = fmt.Errorf("%d of %d pods are ready", d.Status.ReadyReplicas, replicas)
		}
		return err
	})
}

// idleParts measures the CPU time of kubelet, containerd and shims on a machine for idleTime.
func idleParts(ctx context.Context, m *machines.Machine) ([]idlePart, error) {
	before, err := idleTicks(ctx, m)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return nil, err
	}
	after, err := idleTicks(ctx, m)
	if err != nil {
		return nil, err
	}
	minutes := time.Since(start).Minutes()
	var parts []idlePart
	for _, name := range []string{"kubelet", "containerd", "shims"} {
		if before[name] == 0 || after[name] < before[name] {
			return nil, fmt.Errorf("CPU time of %s on %s: %d ticks before the measurement, %d after it", name, m.Name,
				before[name],
				after[name])
		}
		const perSecond = 100 // USER_HZ of Linux
		parts = append(parts, idlePart{name, float64(after[name]-before[name]) / perSecond / minutes})
	}
	return parts, nil
}

// idleTicks returns the total CPU time of kubelet, containerd and shims on a machine, in clock ticks and by program. It
// includes children that have exited.
func idleTicks(ctx context.Context, m *machines.Machine) (map[string]int, error) {
	text, err := m.Run(ctx,
		`ticks() { [ -z "$2" ] || { echo $1; for p in $2; do cat /proc/$p/stat 2>/dev/null; done; } |
		awk 'NR == 1 {name = $1; next} {sub(/^.*\) /, ""); sum += $12 + $13 + $14 + $15} END {print name, sum}'; }
		ticks kubelet "$(systemctl show -p MainPID --value kubelet)"
		ticks containerd "$(systemctl show -p MainPID --value containerd)"
		ticks shims "$(pgrep ^containerd-shim)"`)
	if err != nil {
		return nil, err
	}
	ticks := map[string]int{}
	for line := range strings.Lines(text) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			return nil, fmt.Errorf("read %q of %s: %w", strings.TrimSpace(line), m.Name, err)
		}
		ticks[name] = n
	}
	return ticks, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
