package kinds

import (
	"reflect"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/value"
)

// disabledFields lists the fields of features that upstream's API server disables by default, and that nothing here
// implements or rejects. Each has its feature gate, and a function that returns a pointer to the field, or nil. Such a
// field is dropped from writes, unless the stored object has it already.
var disabledFields = []struct {
	gate  string
	field func(obj runtime.Object) any
}{
	{"GenericWorkload", fieldInPods(func(s *corev1.PodSpec) any { return &s.SchedulingGroup })},
	{"EvictionRequestAPI", fieldInPods(func(s *corev1.PodSpec) any { return &s.EvictionResponders })},
	{"WorkloadWithJob", fieldInJobs(func(s *batchv1.JobSpec) any { return &s.Scheduling })},
	{"CrossNamespaceVolumeDataSource", fieldIn(func(c *corev1.PersistentVolumeClaim) any {
		if d := c.Spec.DataSourceRef; d == nil || value.OrZero(d.Namespace) == "" {
			return nil
		}
		return &c.Spec.DataSourceRef // drop all of it: without the namespace it would refer to another object
	})},
	{
		"InPlacePodVerticalScalingSchedulerPreemption",
		fieldIn(func(n *corev1.Node) any { return &n.Spec.PodPreemptionPolicy }),
	},
	{"CoordinatedLeaderElection", fieldIn(func(l *coordinationv1.Lease) any { return &l.Spec.Strategy })},
	{"CoordinatedLeaderElection", fieldIn(func(l *coordinationv1.Lease) any { return &l.Spec.PreferredHolder })},
	{"CSIVolumeHealth", fieldIn(func(p *corev1.Pod) any { return &p.Status.VolumeHealth })},
	{"CSIVolumeHealth", fieldIn(func(c *corev1.PersistentVolumeClaim) any { return &c.Status.HealthStatus })},
	{"CSIVolumeHealth", fieldIn(func(n *storagev1.CSINode) any { return &n.Status.StorageHealth })},
	{
		"DRANodeAllocatableResources",
		fieldIn(func(p *corev1.Pod) any { return &p.Status.NodeAllocatableResourceClaimStatuses }),
	},
}

// ClearDisabled clears the fields of disabled features in a write. old is the stored object, or nil for a new one. A
// field that old has stays, so that objects with such a field can still be changed.
func ClearDisabled(obj, old runtime.Object) {
	for _, feature := range disabledFields {
		field := feature.field(obj)
		if field == nil || reflect.ValueOf(field).Elem().IsZero() {
			continue
		}
		if old != nil {
			if before := feature.field(old); before != nil && !reflect.ValueOf(before).Elem().IsZero() {
				continue
			}
		}
		reflect.ValueOf(field).Elem().SetZero()
	}
}

// fieldIn adapts a function for one kind to any object.
func fieldIn[T runtime.Object](field func(T) any) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		if typed, ok := obj.(T); ok {
			return field(typed)
		}
		return nil
	}
}

// fieldInJobs adapts a function for JobSpec to Jobs and CronJobs.
func fieldInJobs(field func(*batchv1.JobSpec) any) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		switch o := obj.(type) {
		case *batchv1.Job:
			return field(&o.Spec)
		case *batchv1.CronJob:
			return field(&o.Spec.JobTemplate.Spec)
		}
		return nil
	}
}

// fieldInPods adapts a function for PodSpec to pods and all kinds with a pod template.
func fieldInPods(field func(*corev1.PodSpec) any) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		if spec := podspec.SpecOf(obj); spec != nil {
			return field(spec)
		}
		return nil
	}
}
