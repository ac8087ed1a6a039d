package kubelet

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drainingRuntime is a runtime whose containers become unready when they drain.
type drainingRuntime struct {
	*hollowRuntime
	ready, alive atomic.Int32 // number of runs of each probe's command
	drains       atomic.Bool
	started, end chan struct{} // of the preStop hook
}

func (d *drainingRuntime) ExecSync(ctx context.Context, id string, command []string, limit time.Duration) ([]byte,
	[]byte,
	int32, error) {
	switch command[0] {
	case "ready":
		d.ready.Add(1)
		if d.drains.Load() {
			return nil, []byte("draining"), 1, nil
		}
	case "alive":
		d.alive.Add(1)
	case "drain":
		close(d.started)
		<-d.end
	}
	return d.hollowRuntime.ExecSync(ctx, id, command, limit)
}

func probeOf(command string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: handlerOf(command), PeriodSeconds: 1, FailureThreshold: 1}
}

func handlerOf(command string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
}

func TestATerminatingPodIsProbedOnlyForReadiness(t *testing.T) {
	n := newNode(t)
	d := &drainingRuntime{hollowRuntime: n.runtime, started: make(chan struct{}), end: make(chan struct{})}
	n.options.Runtime = d
	n.start()
	p := simplePod("web")
	p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = probeOf("ready"), probeOf("alive")
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"drain"}}},
	}
	n.create(p)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "web",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	<-d.started
	alive, ready := d.alive.Load(), d.ready.Load()
	d.drains.Store(true)
	n.until("the terminating pod to be unready", func() bool { p := n.pod("web"); return p != nil && !isReady(p) })
	n.until("more readiness probes", func() bool { return d.ready.Load() >= ready+3 })
	if now := d.alive.Load(); now > alive+1 { // one probe may have been running
		t.Errorf("%d liveness probes of a terminating pod", now-alive)
	}
	d.drains.Store(false)
	n.until("the terminating pod to be ready again", func() bool { return isReady(n.pod("web")) })
	close(d.end)
	n.until("the pod to go", func() bool { return n.pod("web") == nil })
}
