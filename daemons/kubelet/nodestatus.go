package kubelet

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/version"
)

// kubeletVersion is the version that the node reports: the Kubernetes release whose API is implemented.
const kubeletVersion = version.Kubernetes

// measureStatus returns the node's current status. Conditions that did not change keep their transition times from was.
func (k *Kubelet) measureStatus(ctx context.Context, was *corev1.NodeStatus) corev1.NodeStatus {
	s := *was.DeepCopy()
	s.Addresses = nil
	for _, ip := range k.ips {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	for _, a := range was.Addresses {
		if a.Type == corev1.NodeExternalIP || a.Type == corev1.NodeExternalDNS {
			s.Addresses = append(s.Addresses, a) // set by the cloud node controller
		}
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.name})
	info := k.machine.Info()
	info.KubeletVersion = kubeletVersion
	if v, err := k.runtime.Version(ctx); err == nil {
		info.ContainerRuntimeVersion = v.RuntimeName + "://" + v.RuntimeVersion
	} else {
		info.ContainerRuntimeVersion = was.NodeInfo.ContainerRuntimeVersion
	}
	s.NodeInfo = info
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(k.file.Port)
	s.Capacity = addExtended(k.capacity(), was.Capacity)
	s.Allocatable = k.allocatable(s.Capacity)
	s.Images = k.statusImages(ctx, was.Images)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s.Conditions = nil
	for _, c := range was.Conditions {
		if !isOwnedCondition(c.Type) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	status, err := k.runtimeStatus(ctx)
	if err == nil { // if the runtime does not respond, keep the last known features
		s.RuntimeHandlers, s.Features = runtimeHandlers(status), runtimeFeatures(status)
	}
	for _, c := range k.conditions(status, err) {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		for _, old := range was.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

func isOwnedCondition(t corev1.NodeConditionType) bool {
	switch t {
	case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
		return true
	}
	return false
}

// addExtended adds the extended resources that other components have put into the node's capacity. Their names contain
// a domain. All of their capacity is allocatable.
func addExtended(own, was corev1.ResourceList) corev1.ResourceList {
	for name, q := range was {
		if _, ours := own[name]; !ours && isExtended(name) {
			own[name] = q
		}
	}
	return own
}

func isExtended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

func (k *Kubelet) capacity() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(k.machine.CPUs()), resource.DecimalSI),
		corev1.ResourcePods: *resource.NewQuantity(int64(k.file.MaxPods), resource.DecimalSI),
		"hugepages-2Mi":     resource.Quantity{Format: resource.BinarySI},
	}
	if _, capacity, err := k.machine.Memory(); err == nil {
		list[corev1.ResourceMemory] = *resource.NewQuantity(capacity, resource.BinarySI)
	}
	if d, err := k.machine.Disk(); err == nil {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(d.Capacity, resource.BinarySI)
	}
	return list
}

// allocatable returns the capacity minus the reservations and minus the hard eviction thresholds.
func (k *Kubelet) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		for _, reserved := range []map[string]string{k.file.SystemReserved, k.file.KubeReserved} {
			if r, err := resource.ParseQuantity(reserved[string(name)]); err == nil {
				left.Sub(r)
			}
		}
		signal := map[corev1.ResourceName]string{corev1.ResourceMemory: "memory.available",
			corev1.ResourceEphemeralStorage: "nodefs.available"}[name]
		if floor := threshold(k.file.EvictionHard[signal], q.Value()); floor > 0 {
			left.Sub(*resource.NewQuantity(floor, resource.BinarySI))
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, q.Format)
		}
		list[name] = left
	}
	return list
}

// threshold returns an eviction threshold, a quantity or a percentage of capacity.
func threshold(s string, capacity int64) int64 {
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		var p float64
		if _, err := fmt.Sscanf(percent, "%f", &p); err == nil {
			return int64(p / 100 * float64(capacity))
		}
		return 0
	}
	if q, err := resource.ParseQuantity(s); err == nil {
		return q.Value()
	}
	return 0
}

// podCgroupLimits returns the resource limits of a pod's cgroup.
func (k *Kubelet) podCgroupLimits(p *corev1.Pod) cgroup.Limits {
	l := cgroup.ForPod(p)
	l.Pids = max(int64(k.file.PodPidsLimit), 0)
	if k.isMemoryProtected() {
		l.MemoryMin, l.MemoryLow = cgroup.ProtectedMemory(p)
	}
	return l
}

// isMemoryProtected reports whether the memory that pods request is protected.
func (k *Kubelet) isMemoryProtected() bool {
	return k.file.MemoryReservationPolicy == config.ReserveTiered
}

// containerMemory returns the memory settings of containers. It returns nil on a node with cgroup version 1.
func (k *Kubelet) containerMemory() *cri.Memory {
	if !k.cgroups.IsUnified() {
		return nil
	}
	single := k.file.SingleProcessOOMKill
	m := &cri.Memory{KillGroup: single == nil || !*single, Reserve: k.isMemoryProtected(),
		Throttle: k.file.MemoryThrottlingFactor}
	if memory, ok := k.fieldNode().Allocatable[corev1.ResourceMemory]; ok {
		m.Allocatable = memory.Value()
	}
	return m
}

// allPodsLimits returns the resource limits of all pods together.
func (k *Kubelet) allPodsLimits() cgroup.Limits {
	a := k.allocatable(k.capacity())
	l := cgroup.Limits{CPUShares: min(a.Cpu().MilliValue()*1024/1000, 262144)}
	floor := threshold(k.file.EvictionHard["memory.available"], 0)
	if m := a.Memory().Value(); m > 0 && len(k.file.SystemReserved)+len(k.file.KubeReserved) > 0 {
		l.MemoryLimit = m + floor // eviction starts before the limit is reached
	}
	return l
}

func (k *Kubelet) memoryCapacity() int64 {
	_, capacity, _ := k.machine.Memory()
	return capacity
}

// conditions returns the node's conditions in upstream's order and wording.
func (k *Kubelet) conditions(runtime *criapi.StatusResponse, err error) []corev1.NodeCondition {
	p := k.reportedPressures()
	list := []corev1.NodeCondition{
		condition(
			corev1.NodeMemoryPressure,
			p.memory,
			"KubeletHasInsufficientMemory",
			"kubelet has insufficient memory available",
			"KubeletHasSufficientMemory",
			"kubelet has sufficient memory available",
		),
		condition(corev1.NodeDiskPressure, p.disk, "KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, p.pids, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available"),
	}
	found := runtimeProblems(runtime, err)
	return append(list, condition(corev1.NodeReady, len(found) == 0, "KubeletReady", "kubelet is posting ready status",
		"KubeletNotReady", strings.Join(found, ", ")))
}

func condition(
	t corev1.NodeConditionType,
	is bool,
	reason, message, otherwise, otherMessage string,
) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	return corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: otherwise, Message: otherMessage}
}

func (k *Kubelet) runtimeStatus(ctx context.Context) (*criapi.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return k.runtime.Status(ctx)
}

// runtimeProblems returns the reasons why the node cannot run pods now.
func runtimeProblems(runtime *criapi.StatusResponse, err error) []string {
	if err != nil {
		return []string{"container runtime is down: " + err.Error()}
	}
	var found []string
	for _, c := range runtime.GetStatus().GetConditions() {
		if (c.Type == "RuntimeReady" || c.Type == "NetworkReady") && !c.Status {
			what := "container runtime not ready: "
			if c.Type == "NetworkReady" {
				what = "container runtime network not ready: "
			}
			found = append(
				found,
				fmt.Sprintf("%s%s=%t reason:%s message:%s", what, c.Type, c.Status, c.Reason, c.Message),
			)
		}
	}
	return found
}

// maxImages is how many images the node status lists, largest first.
const maxImages = 50

func (k *Kubelet) statusImages(ctx context.Context, was []corev1.ContainerImage) []corev1.ContainerImage {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := k.runtime.ListImages(ctx)
	if err != nil {
		return was
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Size != list[j].Size {
			return list[i].Size > list[j].Size
		}
		return list[i].Id < list[j].Id
	})
	var images []corev1.ContainerImage
	for _, i := range list[:min(len(list), maxImages)] {
		names := append(append([]string{}, i.RepoDigests...), i.RepoTags...)
		if len(names) > 5 {
			names = names[:5]
		}
		images = append(images, corev1.ContainerImage{Names: names, SizeBytes: int64(i.Size)})
	}
	return images
}
