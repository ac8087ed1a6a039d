package pod

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod has three sizes: the one that the API wants, the one that its node has given it, and the one that its
// containers run with. The node gives what fits, and holds the pod to what it was given before as long as that is not
// so. Facts.Pod has the given size.

// Resize is what is in the way of a pod's resize.
type Resize struct {
	// Pending is why the node does not give what the API wants: corev1.PodReasonDeferred or PodReasonInfeasible; empty
	// when it does.
	Pending, Message string
	Error            string // of the last try to give containers what the node gave the pod
	// Held are the times before which containers are not resized again, by their names.
	Held map[string]time.Time
	// Whole says that the group of all containers of the pod has another size than the node gave it.
	Whole bool
	// Begun is the generation of the pod at which the node last gave it another size, until its containers have that; 0
	// is none.
	Begun int64
}

// Size is how much CPU and memory a container runs with; a zero limit is none.
type Size struct {
	CPUShares, CPUQuota, CPUPeriod int64
	Memory                         int64 // limit, bytes
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

// Allocation is what a node has given the containers of a pod, by their names, and the pod as a whole where it says so.
type Allocation map[string]corev1.ResourceRequirements

// podLevel is the name of the pod as a whole in an Allocation.
const podLevel = ""

// resizable returns the containers whose size may change while they run: those proper, and sidecars.
func resizable(p *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; Sidecar(c) {
			all = append(all, c)
		}
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	return all
}

// Wanted returns what the API wants a pod to be given.
func Wanted(p *corev1.Pod) Allocation {
	a := Allocation{}
	for _, c := range resizable(p) {
		a[c.Name] = c.Resources
	}
	if p.Spec.Resources != nil {
		a[podLevel] = *p.Spec.Resources
	}
	return a
}

// Given returns what a kubelet before this one had given a pod, as far as the pod's status says so.
func Given(p *corev1.Pod) Allocation {
	a := Wanted(p)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if _, ours := a[s.Name]; !ours || s.Resources == nil {
			continue
		}
		was := corev1.ResourceRequirements{
			Requests: s.AllocatedResources,
			Limits:   s.Resources.Limits,
			Claims:   a[s.Name].Claims,
		}
		for name, limit := range was.Limits {
			// Status has the limits that the container runs with, which a resize may not have reached yet.
			if request, ok := was.Requests[name]; ok && request.Cmp(limit) > 0 {
				was.Limits = was.Limits.DeepCopy()
				was.Limits[name] = request
			}
		}
		a[s.Name] = was
	}
	if r := p.Spec.Resources; r != nil && p.Status.Resources != nil {
		a[podLevel] = corev1.ResourceRequirements{Requests: asReported(p, r.Requests, p.Status.AllocatedResources),
			Limits: asReported(p, r.Limits, p.Status.Resources.Limits), Claims: r.Claims}
	}
	return a
}

// asReported returns a pod's resources as its status reports them, without the pod overhead. Resources that the status
// does not report have the wanted values.
func asReported(p *corev1.Pod, wanted, reported corev1.ResourceList) corev1.ResourceList {
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

// Allocated returns the pod as the node has it: with what its containers were given. It is p itself when that is what p
// wants.
func Allocated(p *corev1.Pod, a Allocation) *corev1.Pod {
	if len(a) == 0 || equality.Semantic.DeepEqual(Wanted(p), a) {
		return p
	}
	p = p.DeepCopy()
	for _, c := range resizable(p) {
		if r, ok := a[c.Name]; ok {
			c.Resources = *r.DeepCopy()
		}
	}
	p.Spec.Resources = nil
	if r, ok := a[podLevel]; ok {
		p.Spec.Resources = r.DeepCopy()
	}
	return p
}

// misfit reports whether a container runs with another size than it was given, and whether only a restart brings the
// new one.
func misfit(p *corev1.Pod, spec *corev1.Container, c *Container) (is, restart bool) {
	if c.Size == nil ||
		!slices.ContainsFunc(resizable(p), func(r *corev1.Container) bool { return r.Name == spec.Name }) {
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

// Resizing reports whether the pod, or a container of it, has another size than it was given.
func Resizing(f *Facts) bool { return f.Resize.Whole || ContainersResizing(f) }

// ContainersResizing reports whether a container of the pod runs with another size than it was given.
func ContainersResizing(f *Facts) bool {
	return slices.ContainsFunc(resizable(f.Pod), func(spec *corev1.Container) bool {
		c := f.newest(spec.Name)
		if c == nil || c.State != Running {
			return false
		}
		is, _ := misfit(f.Pod, spec, c)
		return is
	})
}

// actual returns what a container runs with, in the words of what it was given. Requests of memory are the node's to
// know alone.
func actual(p *corev1.Pod, spec *corev1.Container, c *Container) *corev1.ResourceRequirements {
	r := spec.Resources.DeepCopy()
	if is, _ := misfit(p, spec, c); !is || c.State != Running {
		return r
	}
	want := SizeOf(spec.Resources)
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}
	if has := max(c.Size.Memory, 0); has != want.Memory {
		delete(r.Limits, corev1.ResourceMemory)
		if has > 0 {
			set(&r.Limits, corev1.ResourceMemory, resource.NewQuantity(has, resource.BinarySI))
		}
	}
	if has := max(c.Size.CPUQuota, 0); has != want.CPUQuota {
		delete(r.Limits, corev1.ResourceCPU)
		if has > 0 {
			set(
				&r.Limits,
				corev1.ResourceCPU,
				resource.NewMilliQuantity(has*1000/max(c.Size.CPUPeriod, 1), resource.DecimalSI),
			)
		}
	}
	if c.Size.CPUShares != want.CPUShares {
		delete(r.Requests, corev1.ResourceCPU)
		if c.Size.CPUShares > MinShares {
			set(
				&r.Requests,
				corev1.ResourceCPU,
				resource.NewMilliQuantity((c.Size.CPUShares*1000+1023)/1024, resource.DecimalSI),
			)
		}
	}
	return r
}

// sized adds to a container's status what it was given and what it runs with.
func sized(f *Facts, spec *corev1.Container, s corev1.ContainerStatus) corev1.ContainerStatus {
	s.AllocatedResources = spec.Resources.Requests.DeepCopy()
	if c := f.newest(spec.Name); c != nil {
		s.Resources = actual(f.Pod, spec, c)
	} else {
		s.Resources = spec.Resources.DeepCopy()
	}
	if s.AllocatedResourcesStatus = f.Devices[spec.Name]; s.AllocatedResourcesStatus == nil {
		// When the devices have been taken back, it says still how they were: that may be why the pod has ended.
		s.AllocatedResourcesStatus = lastDevices(f.Pod, spec.Name)
	}
	return s
}

// lastDevices is how the devices of a container were when its status was last written.
func lastDevices(p *corev1.Pod, container string) []corev1.ResourceStatus {
	for _, last := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last.Name == container {
			return last.AllocatedResourcesStatus
		}
	}
	return nil
}

// resizeConditions returns the conditions of a resize that is under way or cannot be.
func resizeConditions(f *Facts, over bool) []corev1.PodCondition {
	var list []corev1.PodCondition
	if over {
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
	if Resizing(f) {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if f.Resize.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, f.Resize.Error
		}
		list = append(list, c)
	}
	return list
}

// ResizeMessage is what events say of a pod's resize: upstream's words, with the sizes as JSON.
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
