package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// bound returns the violation after an event of a pod, given the pods of its namespace, or "". added is true if the pod
// is new.
type bound func(pods map[string]*corev1.Pod, event *corev1.Pod, added bool) string

// watched is what the watch without faults has received, event by event.
type watched struct {
	mu     sync.Mutex
	pods   map[string]map[string]*corev1.Pod // by namespace and name
	ever   map[string]map[types.UID]bool     // all pods that have existed, by namespace
	jobs   map[string]map[types.UID]bool     // all jobs that have existed, by namespace
	counts map[types.UID]int32               // the number of succeeded pods in the status of jobs
	bounds map[string]bound
	wrong  map[string][]string
}

func (w *world) startWatch(t *testing.T) *watched {
	t.Helper()
	s := &watched{
		pods:   map[string]map[string]*corev1.Pod{},
		ever:   map[string]map[types.UID]bool{},
		jobs:   map[string]map[types.UID]bool{},
		counts: map[types.UID]int32{},
		bounds: map[string]bound{},
		wrong:  map[string][]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	pods, err := w.client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := w.client.BatchV1().Jobs("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range pods.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				s.pod(pod, e.Type)
			} else {
				s.end(ctx, t, "pods", e)
			}
		}
	})
	wg.Go(func() {
		for e := range jobs.ResultChan() {
			if job, ok := e.Object.(*batchv1.Job); ok {
				s.job(job)
			} else {
				s.end(ctx, t, "jobs", e)
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

func (s *watched) end(ctx context.Context, t *testing.T, what string, e watch.Event) {
	if ctx.Err() == nil {
		t.Errorf("the watch of %s ended: %v", what, e.Object)
	}
}

func (s *watched) pod(pod *corev1.Pod, kind watch.EventType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[pod.Namespace] == nil {
		s.pods[pod.Namespace], s.ever[pod.Namespace] = map[string]*corev1.Pod{}, map[types.UID]bool{}
	}
	added := !s.ever[pod.Namespace][pod.UID]
	s.ever[pod.Namespace][pod.UID] = true
	if kind == watch.Deleted {
		delete(s.pods[pod.Namespace], pod.Name)
	} else {
		s.pods[pod.Namespace][pod.Name] = pod
	}
	if bound := s.bounds[pod.Namespace]; bound != nil {
		if wrong := bound(s.pods[pod.Namespace], pod, added); wrong != "" {
			s.wrong[pod.Namespace] = append(
				s.wrong[pod.Namespace],
				fmt.Sprintf("at %s of pod %s, revision %s: %s", kind, pod.Name, pod.ResourceVersion, wrong),
			)
		}
	}
}

func (s *watched) job(job *batchv1.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[job.Namespace] == nil {
		s.jobs[job.Namespace] = map[types.UID]bool{}
	}
	s.jobs[job.Namespace][job.UID] = true
	was := s.counts[job.UID]
	if most := job.Spec.Completions; job.Status.Succeeded < was || most != nil && job.Status.Succeeded > *most {
		s.wrong[job.Namespace] = append(
			s.wrong[job.Namespace],
			fmt.Sprintf("job %s says %d succeeded after %d", job.Name, job.Status.Succeeded, was),
		)
	}
	s.counts[job.UID] = job.Status.Succeeded
}

func (s *watched) bind(namespace string, bound bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds[namespace] = bound
}

// broken returns the first few violations in a namespace.
func (s *watched) broken(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong[namespace][:min(5, len(s.wrong[namespace]))]
}

// everMade returns how many pods have existed in a namespace.
func (s *watched) everMade(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ever[namespace])
}

// live returns the pods that have neither ended nor are being deleted, and how many of them are ready.
func live(pods map[string]*corev1.Pod) (all []string, able int) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed {
			all = append(all, pod.Name)
			if isReady(pod) {
				able++
			}
		}
	}
	return all, able
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// within returns a bound: there are at most most live pods, and at least least ready pods after full were ready once.
func within(most, full, least int) bound {
	been := false
	return func(pods map[string]*corev1.Pod, _ *corev1.Pod, _ bool) string {
		all, able := live(pods)
		been = been || able >= full
		var wrong []string
		if len(all) > most {
			wrong = append(wrong, fmt.Sprintf("%d live pods where %d are the most: %s", len(all), most, all))
		}
		if been && able < least {
			wrong = append(wrong, fmt.Sprintf("%d ready pods where %d are the least", able, least))
		}
		return strings.Join(wrong, ", ")
	}
}
