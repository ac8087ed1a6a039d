package cronjob

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// testCluster is a server with caches of random age.
type testCluster struct {
	cj          *batchv1.CronJob
	jobs        map[string]*batchv1.Job
	started     map[string]int // by name: how often a job was created
	cacheStates []cacheState   // states that caches may show
}

type cacheState struct {
	cj   *batchv1.CronJob
	jobs []*batchv1.Job
}

func (w *testCluster) snapshot() {
	w.cacheStates = append(w.cacheStates, cacheState{cj: w.cj.DeepCopy(), jobs: w.live()})
}

func (w *testCluster) live() (out []*batchv1.Job) {
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		out = append(out, w.jobs[name].DeepCopy())
	}
	return out
}

func (w *testCluster) running() (n int) {
	for _, job := range w.jobs {
		if _, finished := finishedCondition(job); !finished {
			n++
		}
	}
	return n
}

// sync syncs like the controller, with caches of random age. It may be interrupted at any point.
func (w *testCluster) sync(t *rapid.T, now time.Time) {
	age := rapid.IntRange(0, min(4, len(w.cacheStates)-1)).Draw(t, "age")
	jobAge := rapid.IntRange(0, min(4, len(w.cacheStates)-1)).Draw(t, "age of jobs")
	cached, jobs := w.cacheStates[len(w.cacheStates)-1-age].cj.DeepCopy(),
		w.cacheStates[len(w.cacheStates)-1-jobAge].jobs
	look := func(cj *batchv1.CronJob) (*batchv1.CronJob, Decision) {
		cj = cj.DeepCopy()
		var seen []*batchv1.Job
		here := map[types.UID]bool{}
		for _, job := range jobs {
			seen, here[job.UID] = append(seen, job), true
		}
		removed := map[types.UID]bool{}
		for _, r := range cj.Status.Active {
			if live := w.jobs[r.Name]; here[r.UID] {
				continue
			} else if live == nil || live.UID != r.UID {
				removed[r.UID] = true
			} else {
				seen = append(seen, live)
			}
		}
		return cj, Decide(cj, seen, removed, now)
	}
	cj, d := look(cached)
	if !d.Start.IsZero() {
		if w.cj.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent {
			jobs = w.live()
		}
		cj, d = look(w.cj)
	}
	cut := rapid.IntRange(0, 4).Draw(t, "cut") // 0: before any write, 1: before the status
	if cut == 0 {
		return
	}
	for _, r := range d.Stop {
		delete(w.jobs, r.Name)
	}
	if len(d.Stop) > 0 {
		cj.Status.Active = nil
	}
	if !d.Start.IsZero() {
		job := newJob(cj, d.Start)
		if live := w.jobs[job.Name]; live != nil {
			job = live
		} else {
			w.started[job.Name]++
			job.UID = types.UID(fmt.Sprint(job.Name, "/", w.started[job.Name]))
			w.jobs[job.Name] = job
		}
		if _, finished := finishedCondition(job); !finished {
			cj.Status.Active = append(cj.Status.Active, reference(job))
		}
		cj.Status.LastScheduleTime = &metav1.Time{Time: d.Start}
		w.snapshot()
	}
	if cut > 1 && cj.ResourceVersion == w.cj.ResourceVersion {
		w.cj = cj.DeepCopy()
		w.cj.ResourceVersion += "+"
	}
}

func TestEachScheduledTimeCreatesOneJobDespiteStaleCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
		cj := cronJob(now, "*/5 * * * *")
		cj.Spec.ConcurrencyPolicy = rapid.SampledFrom([]batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent,
			batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}).
			Draw(t, "policy")
		w := &testCluster{cj: cj, jobs: map[string]*batchv1.Job{}, started: map[string]int{}}
		w.snapshot()
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
			for range rapid.IntRange(1, 3).Draw(t, "syncs") {
				w.sync(t, now)
				w.snapshot()
			}
			for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
				job := w.jobs[name]
				if _, finished := finishedCondition(job); !finished && rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
					finishJob(job, batchv1.JobComplete, now)
				}
			}
			w.snapshot()
			if n := w.running(); n > 1 && cj.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent {
				t.Fatalf("%d jobs run at once", n)
			}
		}
		for name, n := range w.started {
			if n != 1 {
				t.Fatalf("job %s was started %d times", name, n)
			}
		}
		// Without further interruptions, the result is the same as without any: one job for the last time.
		for _, job := range w.jobs {
			finishJob(job, batchv1.JobComplete, now)
		}
		w.cacheStates = nil
		w.snapshot()
		now = now.Add(5 * time.Minute).Truncate(5 * time.Minute)
		for range 50 {
			w.sync(t, now)
			w.cacheStates = nil
			w.snapshot()
		}
		if want := jobName(cj, now); w.started[want] != 1 || !w.cj.Status.LastScheduleTime.Time.Equal(now) ||
			len(w.cj.Status.Active) != 1 {
			t.Fatalf("started %v, want %s; status %+v", w.started, want, w.cj.Status)
		}
	})
}
