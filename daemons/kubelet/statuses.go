package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/workqueue"

	"clusterctl/kube/kubernetes"
)

const callTimeout = 15 * time.Second // limits one request to the API

// statusWriter writes the statuses of pods to the API. It writes a change at once, skips superseded statuses, and
// retries until the write succeeds.
type statusWriter struct {
	client  kubernetes.Interface
	log     *slog.Logger
	writers int // number of concurrent writes
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*statusEntry
}

type statusEntry struct {
	writeMutex sync.Mutex // serializes the writes of one pod
	pod        *corev1.Pod
	wanted     *corev1.PodStatus
}

func newStatusWriter(client kubernetes.Interface, log *slog.Logger) *statusWriter {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &statusWriter{
		client:  client,
		log:     log,
		writers: 8,
		pods:    map[types.UID]*statusEntry{},
		queue:   workqueue.NewTypedRateLimitingQueue(limit),
	}
}

func (s *statusWriter) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range s.writers {
		wg.Go(func() {
			for {
				uid, stop := s.queue.Get()
				if stop {
					return
				}
				err := s.writeStatus(ctx, uid)
				switch {
				case err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil:
					s.queue.Forget(uid)
				default:
					s.log.Warn("write pod status", "uid", uid, "error", err)
					s.queue.AddRateLimited(uid)
				}
				s.queue.Done(uid)
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	wg.Wait()
}

// setPod records a pod as read from the API. If another client has overwritten its status, the status is written again.
func (s *statusWriter) setPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[p.UID]
	if e == nil {
		e = &statusEntry{}
		s.pods[p.UID] = e
	}
	e.pod = p
	if e.wanted != nil && !equality.Semantic.DeepEqual(p.Status.ContainerStatuses, e.wanted.ContainerStatuses) {
		s.queue.Add(p.UID)
	}
}

// queueStatus schedules the write of a status unless it equals the last one.
func (s *statusWriter) queueStatus(p *corev1.Pod, status corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[p.UID]
	if e == nil {
		e = &statusEntry{pod: p}
		s.pods[p.UID] = e
	}
	if e.wanted != nil && equality.Semantic.DeepEqual(*e.wanted, status) {
		return
	}
	e.wanted = &status
	s.queue.Add(p.UID)
}

func (s *statusWriter) removePod(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// writeStatus writes the wanted status of one pod if the API has a different one.
func (s *statusWriter) writeStatus(ctx context.Context, uid types.UID) error {
	s.mu.Lock()
	e := s.pods[uid]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	e.writeMutex.Lock()
	defer e.writeMutex.Unlock()
	s.mu.Lock()
	p, want := e.pod, e.wanted
	s.mu.Unlock()
	if want == nil {
		return nil
	}
	patch, err := statusPatch(p, want)
	if err != nil || patch == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	written, err := s.client.CoreV1().
		Pods(p.Namespace).
		Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of pod %s: %w", podName(p), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.pod == p && written.UID == uid {
		e.pod = written
	}
	return nil
}

// statusPatch returns the patch from the pod's current status to the wanted one, or nil if they are equal. The patch
// contains the pod's UID, so that it never changes another pod of the same name.
func statusPatch(p *corev1.Pod, want *corev1.PodStatus) ([]byte, error) {
	if equality.Semantic.DeepEqual(p.Status, *want) {
		return nil, nil
	}
	before, err := json.Marshal(corev1.Pod{Status: p.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.UID}, Status: *want})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
