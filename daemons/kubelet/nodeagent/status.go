package nodeagent

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

	"clusterctl/daemons/version"
)

// kubeletVersion is the version that the node reports: the Kubernetes release whose API is implemented.
const kubeletVersion = version.Kubernetes

// MeasureStatus returns the node's current status. Unchanged conditions keep their transition times from before.
func (a *Agent) MeasureStatus(ctx context.Context, before *corev1.NodeStatus) corev1.NodeStatus {
	s := *before.DeepCopy()
	s.Addresses = nil
	for _, ip := range a.IPs {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	for _, a := range before.Addresses {
		if a.Type == corev1.NodeExternalIP || a.Type == corev1.NodeExternalDNS {
			s.Addresses = append(s.Addresses, a) // set by the cloud node controller
		}
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: a.Name})
	info := a.Machine.Info()
	info.KubeletVersion = kubeletVersion
	if v, err := a.Runtime.Version(ctx); err == nil {
		info.ContainerRuntimeVersion = v.RuntimeName + "://" + v.RuntimeVersion
	} else {
		info.ContainerRuntimeVersion = before.NodeInfo.ContainerRuntimeVersion
	}
	s.NodeInfo = info
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(a.File.Port)
	s.Capacity = addExtended(a.capacity(), before.Capacity)
	s.Allocatable = a.allocatable(s.Capacity)
	s.Images = a.statusImages(ctx, before.Images)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s.Conditions = nil
	for _, c := range before.Conditions {
		if !isOwnedCondition(c.Type) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	status, err := a.runtimeStatus(ctx)
	if err == nil { // if the runtime does not respond, keep the last known features
		s.RuntimeHandlers, s.Features = runtimeHandlers(status), runtimeFeatures(status)
	}
	for _, c := range a.conditions(status, err) {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		for _, old := range before.Conditions {
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
func addExtended(own, before corev1.ResourceList) corev1.ResourceList {
	for name, q := range before {
		if _, ours := own[name]; !ours && IsExtended(name) {
			own[name] = q
		}
	}
	return own
}

// IsExtended reports whether the name of a resource contains a domain.
func IsExtended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

func (a *Agent) capacity() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(a.Machine.CPUs()), resource.DecimalSI),
		corev1.ResourcePods: *resource.NewQuantity(int64(a.File.MaxPods), resource.DecimalSI),
		"hugepages-2Mi":     resource.Quantity{Format: resource.BinarySI},
	}
	if _, capacity, err := a.Machine.Memory(); err == nil {
		list[corev1.ResourceMemory] = *resource.NewQuantity(capacity, resource.BinarySI)
	}
	if d, err := a.Machine.Disk(); err == nil {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(d.Capacity, resource.BinarySI)
	}
	return list
}

// allocatable returns the capacity minus the reservations and minus the hard eviction thresholds.
func (a *Agent) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		for _, reserved := range []map[string]string{a.File.SystemReserved, a.File.KubeReserved} {
			if r, err := resource.ParseQuantity(reserved[string(name)]); err == nil {
				left.Sub(r)
			}
		}
		signal := map[corev1.ResourceName]string{corev1.ResourceMemory: "memory.available",
			corev1.ResourceEphemeralStorage: "nodefs.available"}[name]
		if floor := Threshold(a.File.EvictionHard[signal], q.Value()); floor > 0 {
			left.Sub(*resource.NewQuantity(floor, resource.BinarySI))
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, q.Format)
		}
		list[name] = left
	}
	return list
}

// Allocatable returns what the node gives to pods: the capacity minus reservations and hard eviction thresholds.
func (a *Agent) Allocatable() corev1.ResourceList { return a.allocatable(a.capacity()) }

// Threshold returns an eviction threshold, a quantity or a percentage of capacity.
func Threshold(s string, capacity int64) int64 {
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

// conditions returns the node's conditions in upstream's order and wording.
func (a *Agent) conditions(runtime *criapi.StatusResponse, err error) []corev1.NodeCondition {
	p := a.Pressures.Report(time.Now())
	list := []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, p.Memory, "KubeletHasInsufficientMemory",
			"kubelet has insufficient memory available", "KubeletHasSufficientMemory",
			"kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, p.Disk, "KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, p.PIDs, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available"),
	}
	found := runtimeProblems(runtime, err)
	return append(list, condition(corev1.NodeReady, len(found) == 0, "KubeletReady", "kubelet is posting ready status",
		"KubeletNotReady", strings.Join(found, ", ")))
}

func condition(
	t corev1.NodeConditionType,
	isTrue bool,
	reason, message, otherwise, otherMessage string,
) corev1.NodeCondition {
	if isTrue {
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	return corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: otherwise, Message: otherMessage}
}

func (a *Agent) runtimeStatus(ctx context.Context) (*criapi.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return a.Runtime.Status(ctx)
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
			found = append(found, fmt.Sprintf("%s%s=%t reason:%s message:%s", what, c.Type, c.Status, c.Reason,
				c.Message))
		}
	}
	return found
}

// maxImages is how many images the node status lists, largest first.
const maxImages = 50

func (a *Agent) statusImages(ctx context.Context, before []corev1.ContainerImage) []corev1.ContainerImage {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := a.Runtime.ListImages(ctx)
	if err != nil {
		return before
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
