package kinds

import (
	"reflect"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// disabled are the fields of features that upstream's API server has turned off unless it is told otherwise, and that
// nothing here carries out or refuses: each by the name of the feature's gate, with what returns a pointer to the
// field, or nil. Such a field is dropped from what clients write, unless the stored object has it already.
var disabled = []struct {
	gate  string
	field func(obj runtime.Object) any
}{
	{"GenericWorkload", inPods(func(s *corev1.PodSpec) any { return &s.SchedulingGroup })},
	{"EvictionRequestAPI", inPods(func(s *corev1.PodSpec) any { return &s.EvictionResponders })},
	{"WorkloadWithJob", inJobs(func(s *batchv1.JobSpec) any { return &s.Scheduling })},
	{"CrossNamespaceVolumeDataSource", in(func(c *corev1.PersistentVolumeClaim) any {
		if d := c.Spec.DataSourceRef; d == nil || value(d.Namespace) == "" {
			return nil
		}
		return &c.Spec.DataSourceRef // all of it: without the namespace it would mean another object
	})},
	{
		"InPlacePodVerticalScalingSchedulerPreemption",
		in(func(n *corev1.Node) any { return &n.Spec.PodPreemptionPolicy }),
	},
	{"CoordinatedLeaderElection", in(func(l *coordinationv1.Lease) any { return &l.Spec.Strategy })},
	{"CoordinatedLeaderElection", in(func(l *coordinationv1.Lease) any { return &l.Spec.PreferredHolder })},
	{"CSIVolumeHealth", in(func(p *corev1.Pod) any { return &p.Status.VolumeHealth })},
	{"CSIVolumeHealth", in(func(c *corev1.PersistentVolumeClaim) any { return &c.Status.HealthStatus })},
	{"CSIVolumeHealth", in(func(n *storagev1.CSINode) any { return &n.Status.StorageHealth })},
	{
		"DRANodeAllocatableResources",
		in(func(p *corev1.Pod) any { return &p.Status.NodeAllocatableResourceClaimStatuses }),
	},
}

// DropDisabled empties the fields of features that are off in what a client writes. old is what is stored, nil for what
// is new: a field that it has stays, so that objects which came with one can still be changed.
func DropDisabled(obj, old runtime.Object) {
	for _, feature := range disabled {
		field := feature.field(obj)
		if field == nil || reflect.ValueOf(field).Elem().IsZero() {
			continue
		}
		if old != nil {
			if was := feature.field(old); was != nil && !reflect.ValueOf(was).Elem().IsZero() {
				continue
			}
		}
		reflect.ValueOf(field).Elem().SetZero()
	}
}

// in is for a field of one kind of object.
func in[T runtime.Object](field func(T) any) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		if typed, ok := obj.(T); ok {
			return field(typed)
		}
		return nil
	}
}

// inJobs is for a field of jobs, which CronJobs have in their templates.
func inJobs(field func(*batchv1.JobSpec) any) func(runtime.Object) any {
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

// inPods is for a field of pods, which many kinds have in their templates.
func inPods(field func(*corev1.PodSpec) any) func(runtime.Object) any {
	return func(obj runtime.Object) any {
		if spec := podSpecOf(obj); spec != nil {
			return field(spec)
		}
		return nil
	}
}
