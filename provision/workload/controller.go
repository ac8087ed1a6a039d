package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
)

// newController returns the object that runs the pods of a workload: a Deployment, or an object of the workload's kind.
// selector selects the pods.
func newController(w config.Workload, meta metav1.ObjectMeta, selector map[string]string,
	template corev1.PodTemplateSpec) (any, error) {
	pods := &metav1.LabelSelector{MatchLabels: selector}
	apps := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "apps/v1", Kind: kind} }
	batch := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "batch/v1", Kind: kind} }
	switch w.Kind {
	case "", config.KindDeployment:
		return &appsv1.Deployment{TypeMeta: apps(config.KindDeployment), ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: replicasOf(w), Selector: pods, Template: template,
				MinReadySeconds: int32(w.Rollout.MinReady), Strategy: deploymentStrategy(w.Rollout)}}, nil
	case config.KindStatefulSet:
		return newStatefulSet(w, meta, pods, template)
	case config.KindDaemonSet:
		return &appsv1.DaemonSet{TypeMeta: apps(config.KindDaemonSet), ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: pods, Template: template,
				MinReadySeconds: int32(w.Rollout.MinReady), UpdateStrategy: daemonStrategy(w.Rollout)}}, nil
	case config.KindJob:
		return &batchv1.Job{TypeMeta: batch(config.KindJob), ObjectMeta: meta, Spec: jobSpec(w.Job, template)}, nil
	case config.KindCronJob:
		return newCronJob(w, meta, template), nil
	}
	return nil, fmt.Errorf("%s is not a kind of workload", w.Kind)
}

// replicasOf returns the number of pods, or nil if an autoscaler sets it.
func replicasOf(w config.Workload) *int32 {
	if w.Autoscaling != nil {
		return nil
	}
	return new32(w.Replicas)
}

func new32(n int) *int32 { v := int32(n); return &v }

// optional32 returns a number, or nil if it is not set.
func optional32(n *int) *int32 {
	if n == nil {
		return nil
	}
	return new32(*n)
}

// optional64 returns a number, or nil if it is not set.
func optional64(n *int) *int64 {
	if n == nil {
		return nil
	}
	v := int64(*n)
	return &v
}

// share returns a number or a percentage, or nil if it is not set.
func share(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	v := intstr.Parse(text)
	return &v
}

func deploymentStrategy(r config.Rollout) (s appsv1.DeploymentStrategy) {
	s.Type = appsv1.DeploymentStrategyType(r.Strategy)
	if r.MaxSurge != "" || r.MaxUnavailable != "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: share(r.MaxSurge),
			MaxUnavailable: share(r.MaxUnavailable)}
	}
	return s
}

func daemonStrategy(r config.Rollout) (s appsv1.DaemonSetUpdateStrategy) {
	s.Type = appsv1.DaemonSetUpdateStrategyType(r.Strategy)
	if r.MaxSurge != "" || r.MaxUnavailable != "" {
		s.Type = appsv1.RollingUpdateDaemonSetStrategyType
		s.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: share(r.MaxSurge),
			MaxUnavailable: share(r.MaxUnavailable)}
		// The API allows either to be above 0, and its default of max_unavailable is 1.
		if r.MaxUnavailable == "" {
			s.RollingUpdate.MaxUnavailable = share("0")
		}
	}
	return s
}

func newStatefulSet(w config.Workload, meta metav1.ObjectMeta, pods *metav1.LabelSelector,
	template corev1.PodTemplateSpec) (any, error) {
	service, _ := w.GoverningService()
	set := &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: config.KindStatefulSet},
		ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{Replicas: replicasOf(w), Selector: pods, Template: template, ServiceName: service,
			PodManagementPolicy: appsv1.PodManagementPolicyType(w.StatefulSet.PodManagement),
			MinReadySeconds:     int32(w.Rollout.MinReady),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.StatefulSetUpdateStrategyType(w.Rollout.Strategy)}}}
	for _, c := range w.StatefulSet.Claims {
		spec, err := claimSpec(c)
		if err != nil {
			return nil, err
		}
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates,
			corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Spec: spec})
	}
	return set, nil
}

// claimSpec returns the spec of a PersistentVolumeClaim.
func claimSpec(c config.Claim) (spec corev1.PersistentVolumeClaimSpec, err error) {
	size, err := resource.ParseQuantity(c.Size)
	if err != nil {
		return spec, fmt.Errorf("size of %s: %w", c.Name, err)
	}
	spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	for _, mode := range c.AccessModes {
		spec.AccessModes = append(spec.AccessModes, corev1.PersistentVolumeAccessMode(mode))
	}
	if c.Class != "" {
		spec.StorageClassName = &c.Class
	}
	return spec, nil
}

func jobSpec(j config.Job, template corev1.PodTemplateSpec) batchv1.JobSpec {
	spec := batchv1.JobSpec{
		Completions: optional32(j.Completions), Parallelism: optional32(j.Parallelism),
		BackoffLimit: optional32(j.BackoffLimit), ActiveDeadlineSeconds: optional64(j.ActiveDeadline),
		TTLSecondsAfterFinished: optional32(j.TTLAfterFinished), Template: template,
	}
	if j.Indexed {
		mode := batchv1.IndexedCompletion
		spec.CompletionMode = &mode
	}
	return spec
}

func newCronJob(w config.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) *batchv1.CronJob {
	c := w.Cron
	job := &batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: config.KindCronJob},
		ObjectMeta: meta,
		Spec: batchv1.CronJobSpec{Schedule: c.Schedule, ConcurrencyPolicy: batchv1.ConcurrencyPolicy(c.Concurrency),
			StartingDeadlineSeconds:    optional64(c.StartingDeadline),
			SuccessfulJobsHistoryLimit: optional32(c.SuccessfulHistory),
			FailedJobsHistoryLimit:     optional32(c.FailedHistory),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
				Spec: jobSpec(w.Job, template)}}}
	if c.TimeZone != "" {
		job.Spec.TimeZone = &c.TimeZone
	}
	if c.Suspend {
		job.Spec.Suspend = &c.Suspend
	}
	return job
}
