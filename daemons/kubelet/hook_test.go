package kubelet

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
)

// hookRuntime is a runtime in which commands run until end is signalled.
type hookRuntime struct {
	*hollowRuntime
	started, end chan struct{}
}

func (h hookRuntime) ExecSync(
	ctx context.Context,
	id string,
	command []string,
	limit time.Duration,
) ([]byte, []byte, int32, error) {
	close(h.started)
	select {
	case <-h.end:
	case <-ctx.Done():
	}
	return h.hollowRuntime.ExecSync(ctx, id, command, limit)
}

// Proves S23.
func TestAContainerIsNotRunningBeforeItsPostStartHookEnds(t *testing.T) {
	n := newNode(t)
	h := hookRuntime{n.runtime, make(chan struct{}), make(chan struct{})}
	n.options.Runtime = h
	early := make(chan corev1.PodStatus, 100)
	n.client.PrependReactor("*", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "status" {
			select {
			case <-h.end:
			default:
				var p corev1.Pod
				if err := json.Unmarshal(a.(k8stesting.PatchAction).GetPatch(), &p); err != nil {
					t.Error(err)
				}
				early <- p.Status
			}
		}
		return false, nil, nil
	})
	n.start()
	p := simplePod("web")
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"slow"}}},
	}
	n.create(p)
	<-h.started
	seen := n.runtime.Calls("ContainerStatus")
	n.until("the runtime to be asked while the hook runs",
		func() bool { return n.runtime.Calls("ContainerStatus") > seen })
	close(h.end)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	close(early)
	for s := range early {
		for _, c := range s.ContainerStatuses {
			if c.State.Running != nil || c.Ready || c.Started != nil && *c.Started {
				t.Errorf("before its hook had ended it was said to be %+v", c)
			}
		}
	}
}
