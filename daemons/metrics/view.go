package metrics

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// objectView converts stored states to API objects.
type objectView struct {
	objects Objects
	store   *store
}

// answer returns the answer to a question. It contains only objects with known usage.
func (v *objectView) answer(q metricsRequest, now time.Time) (any, error) {
	byLabel, byField, err := q.selectors()
	if err != nil {
		return nil, err
	}
	chosen := func(m metav1.ObjectMeta) bool {
		return byLabel.Matches(labels.Set(m.Labels)) &&
			byField.Matches(fields.Set{"metadata.name": m.Name, "metadata.namespace": m.Namespace})
	}
	switch {
	case q.kind == "nodes" && q.name != "":
		if n := v.objects.Node(q.name); n != nil {
			if m, ok := v.node(n, now); ok {
				return &m, nil
			}
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1beta1.GroupName, Resource: "nodemetrics"},
			q.name)
	case q.kind == "nodes":
		list := &v1beta1.NodeMetricsList{TypeMeta: typeMeta("NodeMetricsList"), Items: []v1beta1.NodeMetrics{}}
		for _, n := range v.objects.Nodes() {
			if m, ok := v.node(n, now); ok && chosen(n.ObjectMeta) {
				list.Items = append(list.Items, m)
			}
		}
		slices.SortFunc(list.Items, func(a, b v1beta1.NodeMetrics) int { return cmp.Compare(a.Name, b.Name) })
		return list, nil
	case q.name != "":
		if p := v.objects.Pod(q.namespace, q.name); p != nil {
			if m, ok := v.pod(p, now); ok {
				return &m, nil
			}
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1beta1.GroupName, Resource: "podmetrics"},
			q.namespace+"/"+q.name)
	}
	list := &v1beta1.PodMetricsList{TypeMeta: typeMeta("PodMetricsList"), Items: []v1beta1.PodMetrics{}}
	for _, p := range v.objects.Pods(q.namespace) {
		if !chosen(p.ObjectMeta) {
			continue
		}
		if m, ok := v.pod(p, now); ok {
			list.Items = append(list.Items, m)
		}
	}
	slices.SortFunc(list.Items, func(a, b v1beta1.PodMetrics) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// history returns what a node, a pod or all nodes used in the last hour.
func (v *objectView) history(q metricsRequest, now time.Time) (*usageHistory, error) {
	past := v.store.history
	switch {
	case q.kind == "nodes" && q.name != "":
		if v.objects.Node(q.name) == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, q.name)
		}
		return newUsageHistory(past.find(nodeKey(q.name), "", now)), nil
	case q.kind == "nodes":
		var names []string
		for _, n := range v.objects.Nodes() {
			names = append(names, n.Name)
		}
		return newUsageHistory(past.sum(names, now)), nil
	case q.name == "":
		return nil, apierrors.NewBadRequest("the history is that of nodes or of one pod")
	}
	p := v.objects.Pod(q.namespace, q.name)
	if p == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, q.namespace+"/"+q.name)
	}
	return newUsageHistory(past.find(podKey(p.key()), string(p.UID), now)), nil
}

func (v *objectView) node(n *corev1.Node, now time.Time) (v1beta1.NodeMetrics, bool) {
	state := v.store.node(n.Name, now)
	if state == nil {
		return v1beta1.NodeMetrics{}, false
	}
	use, ok := state.Node.Usage()
	if !ok {
		return v1beta1.NodeMetrics{}, false
	}
	return v1beta1.NodeMetrics{
		TypeMeta: typeMeta(
			"NodeMetrics",
		), ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.NewTime(now)},
		Timestamp: metav1.NewTime(use.At), Window: metav1.Duration{Duration: use.Window}, Usage: resourceList(use),
	}, true
}

// pod returns the metrics of a pod. It returns false unless the usage of all running containers is known, since a
// partial sum would be misleading.
func (v *objectView) pod(p *Pod, now time.Time) (v1beta1.PodMetrics, bool) {
	state := v.store.node(p.Node, now)
	if state == nil {
		return v1beta1.PodMetrics{}, false
	}
	measured := state.Pods[p.key()]
	if measured.UID != string(p.UID) || len(measured.Containers) == 0 {
		return v1beta1.PodMetrics{}, false
	}
	m := v1beta1.PodMetrics{
		TypeMeta: typeMeta("PodMetrics"),
		ObjectMeta: metav1.ObjectMeta{
			Name:              p.Name,
			Namespace:         p.Namespace,
			Labels:            p.Labels,
			CreationTimestamp: metav1.NewTime(now),
		},
	}
	for i, c := range measured.Containers {
		use, ok := c.Usage()
		if !ok {
			return v1beta1.PodMetrics{}, false
		}
		if i == 0 || use.At.Before(m.Timestamp.Time) {
			m.Timestamp, m.Window = metav1.NewTime(use.At), metav1.Duration{Duration: use.Window}
		}
		m.Containers = append(m.Containers, v1beta1.ContainerMetrics{Name: c.Name, Usage: resourceList(use)})
	}
	return m, true
}

func resourceList(u Usage) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(u.NanoCPUs, resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(u.Memory, resource.BinarySI),
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: v1beta1.SchemeGroupVersion.String()}
}
