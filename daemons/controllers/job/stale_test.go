package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"clusterctl/daemons/controllers/loop"
)

// laggingServer is a server, with a controller whose caches lag behind it.
type laggingServer struct {
	job    *batchv1.Job
	pods   map[string]*corev1.Pod
	events []event // not delivered yet

	seenJob         *batchv1.Job
	seenPods        map[string]*corev1.Pod
	expect          *loop.Expectations
	writtenVersions *loop.WrittenVersions

	now                  time.Time
	createdPods, maxPods int
	version              int
	stopped              int32
}

type event struct {
	name string
	pod  *corev1.Pod // nil means deleted
	job  *batchv1.Job
}

const jobKey = "n/j"

func (b *laggingServer) changed(name string) {
	e := event{name: name}
	if pod := b.pods[name]; pod != nil {
		e.pod = pod.DeepCopy()
	}
	b.events = append(b.events, e)
	active := 0
	for _, pod := range b.pods {
		if loop.IsActive(pod) {
			active++
		}
	}
	b.maxPods = max(b.maxPods, active)
}

// deliverEvent delivers one event. Events about the same object stay in order.
func (b *laggingServer) deliverEvent(i int) {
	e := b.events[i]
	first := slices.IndexFunc(b.events, func(o event) bool { return o.name == e.name })
	e = b.events[first]
	b.events = slices.Delete(b.events, first, first+1)
	if e.job != nil {
		b.seenJob = e.job
		return
	}
	before := b.seenPods[e.name]
	switch {
	case e.pod == nil && before != nil:
		b.expect.Deleted(jobKey, string(before.UID))
		delete(b.seenPods, e.name)
	case e.pod != nil:
		if before == nil {
			b.expect.Created(jobKey)
		}
		if e.pod.DeletionTimestamp != nil {
			b.expect.Deleted(jobKey, string(e.pod.UID))
		}
		b.seenPods[e.name] = e.pod
	}
}

// restart simulates a new leader, whose caches are current and which has no expectations.
func (b *laggingServer) restart() {
	b.events, b.seenJob, b.seenPods = nil, b.job.DeepCopy(), map[string]*corev1.Pod{}
	for name, pod := range b.pods {
		b.seenPods[name] = pod.DeepCopy()
	}
	b.writtenVersions = &loop.WrittenVersions{}
	b.expect = &loop.Expectations{
		Now: func() time.Time { return time.Unix(0, 0) },
	} // expectations never expire: events are late, not lost
}

func (b *laggingServer) sync(t *rapid.T) {
	job := b.seenJob.DeepCopy()
	if b.writtenVersions.IsBehind(jobKey, job.ResourceVersion) {
		return
	}
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(b.seenPods)) {
		pods = append(pods, b.seenPods[name])
	}
	released := func(*corev1.Pod) bool { return true }
	var d Decision
	if !IsFinished(job) {
		met := b.expect.IsMet(jobKey)
		before := job.Status.DeepCopy()
		d = Decide(job, pods, b.now)
		if !met {
			d.Create, d.Delete = nil, nil
		}
		if fmt.Sprint(before) != fmt.Sprint(&job.Status) {
			if job.ResourceVersion != b.job.ResourceVersion {
				return // a conflict
			}
			b.version++
			job.ResourceVersion = strconv.Itoa(b.version)
			b.writtenVersions.Record(jobKey, job.ResourceVersion)
			b.job = job.DeepCopy()
			b.events = append(b.events, event{name: "job", job: job.DeepCopy()})
		}
		released = func(pod *corev1.Pod) bool { return uncountedUIDs(job).Has(pod.UID) || d.Release[pod.UID] }
	}
	if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
		return
	}
	for _, pod := range pods {
		if live := b.pods[pod.Name]; live != nil && isTracked(pod) && released(pod) {
			if live.ResourceVersion != pod.ResourceVersion {
				return // a conflict
			}
			live.Finalizers, live.ResourceVersion = nil, live.ResourceVersion+"+"
			if live.DeletionTimestamp != nil {
				delete(b.pods, pod.Name)
			}
			b.changed(pod.Name)
		}
	}
	var uids []string
	for _, pod := range d.Delete {
		uids = append(uids, string(pod.UID))
	}
	b.expect.Expect(jobKey, len(d.Create), uids...)
	for _, pod := range d.Delete {
		live := b.pods[pod.Name]
		if live == nil || live.ResourceVersion != pod.ResourceVersion {
			b.expect.Deleted(jobKey, string(pod.UID))
			continue
		}
		live.DeletionTimestamp, live.Status.Phase, live.ResourceVersion = &metav1.Time{
			Time: b.now,
		}, corev1.PodFailed, live.ResourceVersion+"+"
		b.stopped++
		b.changed(pod.Name)
	}
	for _, i := range d.Create {
		b.createdPods++
		pod := newPod(job, i, d.Replaces[i])
		pod.Name = fmt.Sprintf("p%03d", b.createdPods)
		pod.UID, pod.Spec.NodeName, pod.Status.Phase = types.UID(pod.Name), "node", corev1.PodRunning
		pod.CreationTimestamp = metav1.NewTime(b.now)
		b.pods[pod.Name] = pod
		b.changed(pod.Name)
	}
}

// Proves S19.
func TestStaleCachesCauseNoExtraPodsOrDoubleCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		completions, parallelism := rapid.Int32Range(1, 5).
			Draw(t, "completions"),
			rapid.Int32Range(1, 4).
				Draw(t, "parallelism")
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"},
			Spec: batchv1.JobSpec{
				Completions:  &completions,
				Parallelism:  &parallelism,
				BackoffLimit: ptr.To[int32](1 << 30),
			},
		}
		if rapid.Bool().Draw(t, "indexed") {
			job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			if rapid.Bool().Draw(t, "per index") {
				job.Spec.BackoffLimitPerIndex = ptr.To[int32](1 << 20)
			}
		}
		job.ResourceVersion = "1"
		b := &laggingServer{job: job, version: 1, pods: map[string]*corev1.Pod{}, now: time.Unix(1_000_000, 0)}
		b.restart()
		var succeeded, failed int32
		step := func(calm bool) {
			b.now = b.now.Add(time.Hour)
			for range rapid.IntRange(0, 6).Draw(t, "events") {
				if len(b.events) > 0 {
					b.deliverEvent(rapid.IntRange(0, len(b.events)-1).Draw(t, "event"))
				}
			}
			if calm {
				for len(b.events) > 0 {
					b.deliverEvent(0)
				}
			} else if rapid.IntRange(0, 15).Draw(t, "restart") == 0 {
				b.restart()
			}
			b.sync(t)
			for _, name := range slices.Sorted(maps.Keys(b.pods)) {
				pod := b.pods[name]
				if !loop.IsActive(pod) {
					continue
				}
				ends := rapid.IntRange(0, 5).Draw(t, "ends")
				if calm {
					ends = 1
				}
				switch ends {
				case 0:
					pod.Status.Phase = corev1.PodFailed
					failed++
				case 1:
					pod.Status.Phase = corev1.PodSucceeded
					succeeded++
				default:
					continue
				}
				pod.ResourceVersion += "+"
				b.changed(name)
			}
		}
		for range 60 {
			step(false)
		}
		for range 60 {
			step(true)
		}
		b.checkCompletion(t, completions, parallelism, succeeded, failed)
	})
}

// checkCompletion checks that a job is complete, and that each end of a pod is counted once.
func (b *laggingServer) checkCompletion(t *rapid.T, completions, parallelism, succeeded, failed int32) {
	s := b.job.Status
	switch {
	case !hasCondition(s.Conditions, batchv1.JobComplete):
		t.Fatalf("not complete: %+v", s)
	case b.maxPods > int(parallelism):
		t.Fatalf("%d pods at once, parallelism is %d", b.maxPods, parallelism)
	case s.Succeeded != succeeded || s.Succeeded != completions:
		t.Fatalf("counted %d successes of %d, %d were asked for", s.Succeeded, succeeded, completions)
	case b.stopped > 0:
		t.Fatalf("%d pods were created and then stopped", b.stopped)
	case s.Failed != failed:
		t.Fatalf("counted %d failures of %d", s.Failed, failed)
	}
	for _, pod := range b.pods {
		if isTracked(pod) {
			t.Fatalf("pod %s waits to be counted", pod.Name)
		}
	}
}
