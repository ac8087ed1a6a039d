package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod has three sizes: the wanted size in its spec, the size that its node has allocated, and the size that its
// containers run with. The node allocates a wanted size if it fits, and keeps the previous allocation until then.
// Facts.Pod has the allocated size.

// Resize is the state of a pod's resize.
type Resize struct {
	// Pending is why the node has not allocated the wanted size: corev1.PodReasonDeferred or PodReasonInfeasible. It is
	// empty if the node has.
	Pending, Message string
	Error            string // of the last attempt to apply the allocated size to the containers
	// NotBefore maps container names to the times before which they are not resized again.
	NotBefore map[string]time.Time
	// IsPodPending reports that the pod's cgroup does not have the allocated size yet.
	IsPodPending bool
	// Generation is the generation of the pod at which the node last allocated a new size, until all containers have
	// that size. 0 means none.
	Generation int64
}

// CompareResizes orders pods whose resize waits for room on the node: pods of higher priority first, then guaranteed
// pods, then those that have waited longest.
func CompareResizes(a, b *corev1.Pod) int {
	priority := func(p *corev1.Pod) int32 {
		if p.Spec.Priority != nil {
			return *p.Spec.Priority
		}
		return 0
	}
	class := func(p *corev1.Pod) int {
		if QOS(p) == corev1.PodQOSGuaranteed {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(priority(b), priority(a)), cmp.Compare(class(a), class(b)),
		waitingSince(a).Compare(waitingSince(b)))
}

// distantFuture is later than the time of any condition.
var distantFuture = time.Unix(1<<40, 0)

// waitingSince returns when a pod's resize was reported as pending. One that was not reported yet has waited least.
func waitingSince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending {
			return c.LastTransitionTime.Time
		}
	}
	return distantFuture
}

// Size is the CPU and memory that a container runs with. A zero limit means no limit.
type Size struct {
	CPUShares, CPUQuota, CPUPeriod int64
	Memory                         int64 // limit in bytes
}

// SizeOf returns the size of a container with the given requests and limits.
func SizeOf(r corev1.ResourceRequirements) Size {
	cpu := r.Requests[corev1.ResourceCPU]
	if cpu.IsZero() {
		cpu = r.Limits[corev1.ResourceCPU]
	}
	s := Size{
		CPUShares: CPUShares(cpu),
		CPUQuota:  CPUQuota(r.Limits[corev1.ResourceCPU]),
		Memory:    r.Limits.Memory().Value(),
	}
	if s.CPUQuota != 0 {
		s.CPUPeriod = CPUPeriod
	}
	return s
}

// Allocation maps container names to the resources that the node has allocated. The pod-level resources have the key
// podLevelKey.
type Allocation map[string]corev1.ResourceRequirements

// podLevelKey is the key of the pod-level resources in an Allocation.
const podLevelKey = ""

// resizableContainers returns the containers that can be resized while they run: sidecars and regular containers.
func resizableContainers(p *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; IsSidecar(c) {
			all = append(all, c)
		}
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	return all
}

// SpecAllocation returns the resources in a pod's spec.
func SpecAllocation(p *corev1.Pod) Allocation {
	a := Allocation{}
	for _, c := range resizableContainers(p) {
		a[c.Name] = c.Resources
	}
	if p.Spec.Resources != nil {
		a[podLevelKey] = *p.Spec.Resources
	}
	return a
}

// ReportedAllocation returns the resources that an earlier kubelet allocated to a pod, according to the pod's status.
// Resources that the status does not report have the wanted values.
func ReportedAllocation(p *corev1.Pod) Allocation {
	a := SpecAllocation(p)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if _, ours := a[s.Name]; !ours || s.Resources == nil {
			continue
		}
		before := corev1.ResourceRequirements{
			Requests: s.AllocatedResources,
			Limits:   s.Resources.Limits,
			Claims:   a[s.Name].Claims,
		}
		for name, limit := range before.Limits {
			// Status reports the limits that the container runs with, which a running resize may still have to change.
			if request, ok := before.Requests[name]; ok && request.Cmp(limit) > 0 {
				before.Limits = before.Limits.DeepCopy()
				before.Limits[name] = request
			}
		}
		a[s.Name] = before
	}
	if r := p.Spec.Resources; r != nil && p.Status.Resources != nil {
		a[podLevelKey] = corev1.ResourceRequirements{Requests: withoutOverhead(p, r.Requests,
			p.Status.AllocatedResources),
			Limits: withoutOverhead(p, r.Limits, p.Status.Resources.Limits), Claims: r.Claims}
	}
	return a
}

// withoutOverhead returns a pod's resources as its status reports them, without the pod overhead. Resources that the
// status does not report have the wanted values.
func withoutOverhead(p *corev1.Pod, wanted, reported corev1.ResourceList) corev1.ResourceList {
	out := wanted.DeepCopy()
	for name := range wanted {
		if q, ok := reported[name]; ok {
			q = q.DeepCopy()
			if cost, ok := p.Spec.Overhead[name]; ok {
				q.Sub(cost)
			}
			out[name] = q
		}
	}
	return out
}

// WithAllocation returns the pod with the allocated resources in its spec. It returns p itself if they equal the wanted
// ones.
func WithAllocation(p *corev1.Pod, a Allocation) *corev1.Pod {
	if len(a) == 0 || equality.Semantic.DeepEqual(SpecAllocation(p), a) {
		return p
	}
	p = p.DeepCopy()
	for _, c := range resizableContainers(p) {
		if r, ok := a[c.Name]; ok {
			c.Resources = *r.DeepCopy()
		}
	}
	p.Spec.Resources = nil
	if r, ok := a[podLevelKey]; ok {
		p.Spec.Resources = r.DeepCopy()
	}
	return p
}

// hasOtherSize reports whether a container runs with another size than the allocated one, and whether the change needs
// a restart.
func hasOtherSize(p *corev1.Pod, spec *corev1.Container, c *Container) (differs, restart bool) {
	if c.Size == nil ||
		!slices.ContainsFunc(resizableContainers(p), func(r *corev1.Container) bool { return r.Name == spec.Name }) {
		return false, false
	}
	want := SizeOf(spec.Resources)
	cpu := c.Size.CPUShares != want.CPUShares || max(c.Size.CPUQuota, 0) != want.CPUQuota
	memory := max(c.Size.Memory, 0) != want.Memory
	for _, policy := range spec.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			restart = restart || cpu && policy.ResourceName == corev1.ResourceCPU ||
				memory && policy.ResourceName == corev1.ResourceMemory
		}
	}
	return cpu || memory, restart
}

// IsResizing reports whether the pod's cgroup or one of its containers does not have the allocated size yet.
func IsResizing(f *Facts) bool { return f.Resize.IsPodPending || HasResizingContainers(f) }

// HasResizingContainers reports whether a container of the pod runs with another size than the allocated one.
func HasResizingContainers(f *Facts) bool {
	return slices.ContainsFunc(resizableContainers(f.Pod), func(spec *corev1.Container) bool {
		c := f.newestAttempt(spec.Name)
		if c == nil || c.State != Running {
			return false
		}
		differs, _ := hasOtherSize(f.Pod, spec, c)
		return differs
	})
}

// actualResources returns the resources that a container runs with, in the form of a spec. The memory request is the
// allocated one, because the runtime does not know it.
func actualResources(p *corev1.Pod, spec *corev1.Container, c *Container) *corev1.ResourceRequirements {
	r := spec.Resources.DeepCopy()
	if differs, _ := hasOtherSize(p, spec, c); !differs || c.State != Running {
		return r
	}
	want := SizeOf(spec.Resources)
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}
	if current := max(c.Size.Memory, 0); current != want.Memory {
		delete(r.Limits, corev1.ResourceMemory)
		if current > 0 {
			set(&r.Limits, corev1.ResourceMemory, resource.NewQuantity(current, resource.BinarySI))
		}
	}
	if current := max(c.Size.CPUQuota, 0); current != want.CPUQuota {
		delete(r.Limits, corev1.ResourceCPU)
		if current > 0 {
			set(&r.Limits, corev1.ResourceCPU, resource.NewMilliQuantity(current*1000/max(c.Size.CPUPeriod, 1),
				resource.DecimalSI))
		}
	}
	if c.Size.CPUShares != want.CPUShares {
		delete(r.Requests, corev1.ResourceCPU)
		if c.Size.CPUShares > MinShares {
			set(&r.Requests, corev1.ResourceCPU, resource.NewMilliQuantity((c.Size.CPUShares*1000+1023)/1024,
				resource.DecimalSI))
		}
	}
	return r
}

// withSizes adds the allocated and actual resources to a container's status.
func withSizes(f *Facts, spec *corev1.Container, s corev1.ContainerStatus) corev1.ContainerStatus {
	s.AllocatedResources = spec.Resources.Requests.DeepCopy()
	if c := f.newestAttempt(spec.Name); c != nil {
		s.Resources = actualResources(f.Pod, spec, c)
	} else {
		s.Resources = spec.Resources.DeepCopy()
	}
	if s.AllocatedResourcesStatus = f.Devices[spec.Name]; s.AllocatedResourcesStatus == nil {
		// After the devices were unprepared, keep their last health: it may be the reason why the pod ended.
		s.AllocatedResourcesStatus = lastDevices(f.Pod, spec.Name)
	}
	return s
}

// lastDevices returns the device health in a container's last written status.
func lastDevices(p *corev1.Pod, container string) []corev1.ResourceStatus {
	for _, last := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last.Name == container {
			return last.AllocatedResourcesStatus
		}
	}
	return nil
}

// resizeConditions returns the conditions of a pending or running resize. isOver means that the pod has ended.
func resizeConditions(f *Facts, isOver bool) []corev1.PodCondition {
	var list []corev1.PodCondition
	if isOver {
		return nil
	}
	if f.Resize.Pending != "" {
		list = append(
			list,
			corev1.PodCondition{
				Type:    corev1.PodResizePending,
				Status:  corev1.ConditionTrue,
				Reason:  f.Resize.Pending,
				Message: f.Resize.Message,
			},
		)
	}
	if IsResizing(f) {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if f.Resize.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, f.Resize.Error
		}
		list = append(list, c)
	}
	return list
}

// ResizeMessage returns the message of an event about a pod's resize, in upstream's wording with the sizes as JSON.
func ResizeMessage(what string, p *corev1.Pod, problem string) string {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`

		Resources  *corev1.ResourceRequirements `json:"resources,omitempty"`
		Generation int64                        `json:"generation"`
		Error      string                       `json:"error,omitempty"`
	}{Resources: p.Spec.Resources, Generation: p.Generation, Error: problem}
	for _, c := range p.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{c.Name, c.Resources})
	}
	for _, c := range p.Spec.Containers {
		summary.Containers = append(summary.Containers, container{c.Name, c.Resources})
	}
	data, err := json.Marshal(summary)
	if err != nil {
		return what
	}
	return fmt.Sprintf("%s: %s", what, data)
}
