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

// podBound returns the violation after an event of a pod, given the pods of its namespace, or "". added is true if the
// pod is new.
type podBound func(pods map[string]*corev1.Pod, event *corev1.Pod, added bool) string

// watchRecord is what the watch without faults has received, event by event.
type watchRecord struct {
	mu         sync.Mutex
	pods       map[string]map[string]*corev1.Pod // by namespace and name
	allPods    map[string]map[types.UID]bool     // all pods that have existed, by namespace
	jobs       map[string]map[types.UID]bool     // all jobs that have existed, by namespace
	counts     map[types.UID]int32               // the number of succeeded pods in the status of jobs
	bounds     map[string]podBound
	violations map[string][]string
}

func (w *world) startWatch(t *testing.T) *watchRecord {
	t.Helper()
	s := &watchRecord{
		pods:       map[string]map[string]*corev1.Pod{},
		allPods:    map[string]map[types.UID]bool{},
		jobs:       map[string]map[types.UID]bool{},
		counts:     map[types.UID]int32{},
		bounds:     map[string]podBound{},
		violations: map[string][]string{},
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
				s.recordPod(pod, e.Type)
			} else {
				s.endWatch(ctx, t, "pods", e)
			}
		}
	})
	wg.Go(func() {
		for e := range jobs.ResultChan() {
			if job, ok := e.Object.(*batchv1.Job); ok {
				s.recordJob(job)
			} else {
				s.endWatch(ctx, t, "jobs", e)
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

func (s *watchRecord) endWatch(ctx context.Context, t *testing.T, what string, e watch.Event) {
	if ctx.Err() == nil {
		t.Errorf("the watch of %s ended: %v", what, e.Object)
	}
}

func (s *watchRecord) recordPod(pod *corev1.Pod, kind watch.EventType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[pod.Namespace] == nil {
		s.pods[pod.Namespace], s.allPods[pod.Namespace] = map[string]*corev1.Pod{}, map[types.UID]bool{}
	}
	added := !s.allPods[pod.Namespace][pod.UID]
	s.allPods[pod.Namespace][pod.UID] = true
	if kind == watch.Deleted {
		delete(s.pods[pod.Namespace], pod.Name)
	} else {
		s.pods[pod.Namespace][pod.Name] = pod
	}
	if bound := s.bounds[pod.Namespace]; bound != nil {
		if wrong := bound(s.pods[pod.Namespace], pod, added); wrong != "" {
			s.violations[pod.Namespace] = append(s.violations[pod.Namespace], fmt.Sprintf(
				"at %s of pod %s, revision %s: %s", kind, pod.Name, pod.ResourceVersion, wrong))
		}
	}
}

func (s *watchRecord) recordJob(job *batchv1.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[job.Namespace] == nil {
		s.jobs[job.Namespace] = map[types.UID]bool{}
	}
	s.jobs[job.Namespace][job.UID] = true
	before := s.counts[job.UID]
	if most := job.Spec.Completions; job.Status.Succeeded < before || most != nil && job.Status.Succeeded > *most {
		s.violations[job.Namespace] = append(s.violations[job.Namespace], fmt.Sprintf(
			"job %s says %d succeeded after %d", job.Name, job.Status.Succeeded, before))
	}
	s.counts[job.UID] = job.Status.Succeeded
}

func (s *watchRecord) setBound(namespace string, bound podBound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds[namespace] = bound
}

// firstViolations returns the first few violations in a namespace.
func (s *watchRecord) firstViolations(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.violations[namespace][:min(5, len(s.violations[namespace]))]
}

// countPods returns how many pods have existed in a namespace.
func (s *watchRecord) countPods(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.allPods[namespace])
}

// livePods returns the pods that have neither ended nor are being deleted, and how many of them are ready.
func livePods(pods map[string]*corev1.Pod) (all []string, able int) {
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

// podsWithin returns a bound: there are at most most live pods, and at least least ready pods after full were ready
// once.
func podsWithin(most, full, least int) podBound {
	been := false
	return func(pods map[string]*corev1.Pod, _ *corev1.Pod, _ bool) string {
		all, able := livePods(pods)
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
