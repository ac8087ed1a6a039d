package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// fillNodes creates nodes in three zones that look ready. It removes the taint that admission puts on new nodes, which
// a controller normally removes.
func (c *controlPlane) fillNodes(ctx context.Context, n int) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return eachParallel(ctx, n, func(ctx context.Context, i int) error {
		now := metav1.Now()
		made, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
				corev1.LabelHostname: nodeName(i), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelTopologyZone: "zone-" + strconv.Itoa(i%3),
			}},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
				LastTransitionTime: now,
			}}},
		}, metav1.CreateOptions{})
		if err != nil || len(made.Spec.Taints) == 0 {
			return err
		}
		_, err = c.CoreV1().
			Nodes().
			Patch(ctx, made.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		return err
	})
}

// fillSets creates ReplicaSets for n pods, and returns them.
func (c *controlPlane) fillSets(ctx context.Context, n, perSet int) ([]*appsv1.ReplicaSet, error) {
	sets := make([]*appsv1.ReplicaSet, (n+perSet-1)/perSet)
	return sets, eachParallel(ctx, len(sets), func(ctx context.Context, i int) (err error) {
		name := "set-" + strconv.Itoa(i)
		replicas, labels := int32(min(perSet, n-i*perSet)), map[string]string{"app": name}
		sets[i], err = c.AppsV1().ReplicaSets(benchNamespace).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}},
		}, metav1.CreateOptions{})
		return err
	})
}

// podSpec returns a pod spec with small requests, so that the nodes do not fill up.
func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "registry.invalid/pause:1",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}}}
}

// podOf returns a pod as the ReplicaSet controller creates it.
func podOf(set *appsv1.ReplicaSet, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%05d", set.Name, i), GenerateName: set.Name + "-", Labels: set.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
			},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
}

// fillPending creates pods without a node.
func (c *controlPlane) fillPending(ctx context.Context, n, perSet int) error {
	sets, err := c.fillSets(ctx, n, perSet)
	if err != nil {
		return err
	}
	return eachParallel(ctx, n, func(ctx context.Context, i int) error {
		_, err := c.CoreV1().Pods(benchNamespace).Create(ctx, podOf(sets[i/perSet], i), metav1.CreateOptions{})
		return err
	})
}

// fillRunning creates pods that are bound to nodes and whose status is that of running pods.
func (c *controlPlane) fillRunning(ctx context.Context, n, perSet, nodes int) error {
	sets, err := c.fillSets(ctx, n, perSet)
	if err != nil {
		return err
	}
	return eachParallel(ctx, n, func(ctx context.Context, i int) error {
		pod := podOf(sets[i/perSet], i)
		pod.Spec.NodeName = nodeName(i % nodes)
		made, err := c.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Status = runningStatus(made, i)
		_, err = c.CoreV1().Pods(benchNamespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
}

func runningStatus(pod *corev1.Pod, i int) corev1.PodStatus {
	now, yes := metav1.Now(), true
	address := fmt.Sprintf("10.%d.%d.%d", 128+i/62500, i/250%250, 1+i%250)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "192.0.2.9", HostIPs: []corev1.HostIP{{IP: "192.0.2.9"}}, PodIP: address,
		PodIPs:    []corev1.PodIP{{IP: address}},
		StartTime: &now, QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "registry.invalid/pause:1", ImageID: "registry.invalid/pause@sha256:" +
				strings.Repeat("0", 64), Ready: true, Started: &yes,
			ContainerID: "containerd://" + strings.Repeat(string(pod.UID[:8]),
				8), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return status
}

// fillConfigMaps creates n ConfigMaps of the given size. Their owner is owner, unless it is nil.
func (c *controlPlane) fillConfigMaps(ctx context.Context, n, bytes int, owner *corev1.ConfigMap) error {
	text := strings.Repeat("x", bytes)
	return eachParallel(ctx, n, func(ctx context.Context, i int) error {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "map-" + strconv.Itoa(i)},
			Data:       map[string]string{"text": text},
		}
		if owner != nil {
			m.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
			}
		}
		_, err := c.CoreV1().ConfigMaps(benchNamespace).Create(ctx, m, metav1.CreateOptions{})
		return err
	})
}
