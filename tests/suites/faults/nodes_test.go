package faults

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
)

// Labels that state what a pod's container does instead of running on.
const (
	exitsLater  = "ends"       // it succeeds after a while
	failsOnce   = "fails-once" // the completion index whose first pod fails
	neverStarts = "never"      // it does not start
)

// simulatedNodes binds pods to nodes and simulates their containers.
type simulatedNodes struct {
	*world
	pods  cache.Store
	queue workqueue.TypedDelayingInterface[string]

	mu     sync.Mutex
	failed map[string]bool
}

func (w *world) startNodes(t *testing.T) {
	t.Helper()
	factory := informers.New(w.watches)
	informer := informers.Pods(factory).Informer()
	n := &simulatedNodes{
		world:  w,
		pods:   informer.GetStore(),
		queue:  workqueue.NewTypedDelayingQueue[string](),
		failed: map[string]bool{},
	}
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			h := fnv.New32()
			_, _ = h.Write([]byte(key))
			n.queue.AddAfter(key, time.Duration(10+h.Sum32()%90)*time.Millisecond) // pods at different times
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add,
		UpdateFunc: func(_, obj any) { add(obj) }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				key, stop := n.queue.Get()
				if stop {
					return
				}
				if obj, there, _ := n.pods.GetByKey(key); there {
					if err := n.step(ctx, obj.(*corev1.Pod)); err != nil {
						n.queue.AddAfter(key, 20*time.Millisecond) // the pod has changed in the meantime
					}
				}
				n.queue.Done(key)
			}
		})
	}
	factory.StartWithContext(ctx)
	t.Cleanup(func() { cancel(); n.queue.ShutDown(); wg.Wait(); factory.Shutdown() })
}

// step makes the next change to a pod.
func (n *simulatedNodes) step(ctx context.Context, pod *corev1.Pod) error {
	pods := n.client.CoreV1().Pods(pod.Namespace)
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && !over && pod.Spec.NodeName != "":
		return n.writeStatus(ctx, pod, corev1.PodFailed)
	case pod.DeletionTimestamp != nil:
		if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
			return nil
		}
		return pods.Delete(
			ctx,
			pod.Name,
			metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0),
				Preconditions:      &metav1.Preconditions{UID: &pod.UID},
			},
		)
	case pod.Spec.NodeName == "":
		return pods.Bind(
			ctx,
			&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
				Target: corev1.ObjectReference{Kind: "Node", Name: nodeFor(pod)}},
			metav1.CreateOptions{},
		)
	case pod.Status.Phase == corev1.PodPending && pod.Labels[neverStarts] != "":
		return nil
	case pod.Status.Phase == corev1.PodPending:
		return n.writeStatus(ctx, pod, corev1.PodRunning)
	case over || pod.Labels[exitsLater] == "":
		return nil
	}
	if index, fails := pod.Labels[failsOnce]; fails && index == pod.Annotations[batchv1.JobCompletionIndexAnnotation] {
		n.mu.Lock()
		key := pod.Namespace + "/" + pod.Labels[batchv1.JobNameLabel]
		first := !n.failed[key]
		n.failed[key] = true
		n.mu.Unlock()
		if first {
			err := n.writeStatus(ctx, pod, corev1.PodFailed)
			n.mu.Lock()
			n.failed[key] = err == nil
			n.mu.Unlock()
			return err
		}
	}
	return n.writeStatus(ctx, pod, corev1.PodSucceeded)
}

// nodeFor returns the node that a pod requires, or a node that depends on its name.
func nodeFor(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				return field.Values[0]
			}
		}
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(pod.Name))
	return nodeNames[h.Sum32()%uint32(len(nodeNames))]
}

// writeStatus writes the status that a kubelet writes for a pod in a phase.
func (n *simulatedNodes) writeStatus(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) error {
	now, updated := metav1.NewTime(n.clock.Now()), pod.DeepCopy()
	ready := corev1.ConditionFalse
	state := corev1.ContainerState{}
	switch phase {
	case corev1.PodRunning:
		ready, state.Running = corev1.ConditionTrue, &corev1.ContainerStateRunning{StartedAt: now}
		h := fnv.New32()
		_, _ = h.Write([]byte(pod.UID))
		sum := h.Sum32()
		updated.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", sum>>16&255, sum>>8&255, sum&255)
		updated.Status.PodIPs, updated.Status.StartTime = []corev1.PodIP{{IP: updated.Status.PodIP}}, &now
	case corev1.PodFailed:
		state.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: now}
	default:
		state.Terminated = &corev1.ContainerStateTerminated{FinishedAt: now}
	}
	updated.Status.Phase = phase
	updated.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: phase == corev1.PodRunning,
		State: state}}
	updated.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		updated.Status.Conditions = append(updated.Status.Conditions,
			corev1.PodCondition{Type: kind, Status: ready, LastTransitionTime: now})
	}
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return err
}
