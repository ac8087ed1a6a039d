package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
	"clusterctl/daemons/kinds/warn"
)

// Indexed jobs that exceed both limits may have more failed indexes than their status can list.
const (
	largeCompletions = 100_000
	largeParallelism = 10_000
	largeJobText     = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than " +
		"10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)

func jobSpecWarnings(spec *batchv1.JobSpec, at *field.Path) []string {
	var d warn.List
	if value.OrZero(spec.CompletionMode) == batchv1.IndexedCompletion &&
		value.OrZero(spec.Completions) > largeCompletions &&
		value.OrZero(spec.Parallelism) > largeParallelism {
		d.Addf(at, largeJobText)
	}
	return append(d, podspec.Warnings(&spec.Template.ObjectMeta, &spec.Template.Spec, at.Child("template"))...)
}

func jobWarnings(j, old *batchv1.Job) []string {
	if old != nil && old.Generation == j.Generation {
		return nil
	}
	return jobSpecWarnings(&j.Spec, field.NewPath("spec"))
}

func cronJobWarnings(c, old *batchv1.CronJob) []string {
	if old != nil && old.Generation == c.Generation {
		return nil
	}
	return jobSpecWarnings(&c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))
}

func statefulSetWarnings(obj, old runtime.Object) []string {
	s := obj.(*appsv1.StatefulSet)
	if before, ok := old.(*appsv1.StatefulSet); ok && before.Generation == s.Generation {
		return nil
	}
	d := warn.List(podspec.Warnings(&s.Spec.Template.ObjectMeta, &s.Spec.Template.Spec,
		field.NewPath("spec", "template")))
	for i := range s.Spec.VolumeClaimTemplates {
		// Upstream's path for new objects lacks the claim's spec, and its path for updates has it in upper case.
		at := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec")
		}
		volume.ClaimWarnings(&d, &s.Spec.VolumeClaimTemplates[i].Spec, at)
	}
	if value.OrZero(s.Spec.RevisionHistoryLimit) < 0 {
		d.Addf(field.NewPath("spec", "revisionHistoryLimit"),
			"a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return d
}
