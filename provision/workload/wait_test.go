package workload

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

var jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

func newJob(status map[string]any) *unstructured.Unstructured {
	return newItem("batch/v1", "Job", "default", "migrate", map[string]any{
		"spec": map[string]any{"completions": int64(2)}, "status": status})
}

func jobStatus(condition, reason string) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{"type": condition, "status": "True", "reason": reason}}}
}

// newJobLive returns an API with a Job.
func newJobLive(status map[string]any) (l *Live, setStatus func(*testing.T, map[string]any)) {
	l, client := newFakeLive(newJob(status))
	l.mapper.(fakeMapper).Add(jobs.GroupVersion().WithKind("Job"), meta.RESTScopeNamespace)
	return l, func(t *testing.T, status map[string]any) {
		t.Helper()
		_, err := client.Resource(jobs).Namespace("default").Update(t.Context(), newJob(status), metav1.UpdateOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

// Proves P05.
func TestObjectsAreAppliedAfterTheJobsThatTheyDependOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, setStatus := newJobLive(map[string]any{"succeeded": int64(1)})
		desired := []Desired{{Address: "workload.migrate", Object: newJob(nil), HasDependents: true}}
		time.AfterFunc(time.Minute, func() { setStatus(t, jobStatus("Complete", "")) })
		began, notes := time.Now(), []string{}
		err := l.wait(t.Context(), desired, func(o plan.Object) { notes = append(notes, o.Note) })
		if waited := time.Since(began); err != nil || waited < time.Minute || waited > time.Minute+time.Second {
			t.Errorf("waited for %s: %v", waited, err)
		}
		if len(notes) == 0 || notes[0] != "1 of 2 completions" {
			t.Errorf("notes %q", notes)
		}
	})
}

func TestRunningJobsWithoutDependentsAreNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newJobLive(nil)
		began := time.Now()
		c := &config.Cluster{Name: "home", Objects: []config.Object{newDeclared("object.migrate", 1, newJob(nil))}}
		if err := l.Wait(t.Context(), c, nil); err != nil || time.Since(began) > 0 {
			t.Errorf("waited for %s: %v", time.Since(began), err)
		}
		if health, err := l.Health(t.Context(), c); err != nil || health["object.migrate  Job default/migrate"] != "" {
			t.Error(health, err)
		}
	})
}

func TestFailedJobsAreErrors(t *testing.T) {
	l, _ := newJobLive(jobStatus("Failed", "BackoffLimitExceeded"))
	c := &config.Cluster{Name: "home", Objects: []config.Object{newDeclared("object.migrate", 1, newJob(nil))}}
	const failure = "has failed: BackoffLimitExceeded"
	for _, hasDependents := range []bool{false, true} {
		desired := []Desired{{Address: "object.migrate", Object: newJob(nil), HasDependents: hasDependents}}
		if err := l.wait(t.Context(), desired, nil); err == nil || !strings.Contains(err.Error(), failure) {
			t.Error(err)
		}
	}
	if health, err := l.Health(t.Context(), c); err != nil || health["object.migrate  Job default/migrate"] != failure {
		t.Error(health, err)
	}
}

func TestADeadlineOfAJobLengthensTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newJobLive(nil)
		declared := newJob(nil)
		_ = unstructured.SetNestedField(declared.Object, int64(3600), "spec", "activeDeadlineSeconds")
		began := time.Now()
		err := l.wait(t.Context(), []Desired{{Address: "a", Object: declared, HasDependents: true}},
			func(plan.Object) {})
		if err == nil || time.Since(began) != healthTimeout+time.Hour {
			t.Errorf("waited for %s: %v", time.Since(began), err)
		}
	})
}

func TestJobsWithDependentsAreMarked(t *testing.T) {
	job, other, after := testWorkload, testWorkload, testWorkload
	job.Name, job.Address = "job", "workload.job"
	other.Name, other.Address = "other", "workload.other"
	after.Name, after.Address, after.DependsOn = "after", "workload.after", []string{"workload.job"}
	list, err := Objects(&config.Cluster{Workloads: []config.Workload{after, job, other}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.HasDependents != (d.Block == "workload.job") {
			t.Errorf("%s has dependents: %t", d.Address, d.HasDependents)
		}
	}
}
