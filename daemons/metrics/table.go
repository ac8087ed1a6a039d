package metrics

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// columns are those of upstream's metrics-server.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"},
	{Name: "cpu", Type: "string", Format: "quantity"},
	{Name: "memory", Type: "string", Format: "quantity"},
	{Name: "Window", Type: "string", Format: "duration"},
}

// table converts an object or a list to a table.
func table(answer any, include metav1.IncludeObjectPolicy) *metav1.Table {
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ColumnDefinitions: columns,
		Rows:              []metav1.TableRow{},
	}
	row := func(obj runtime.Object, m metav1.ObjectMeta, window metav1.Duration, used ...corev1.ResourceList) {
		var cpu, memory = used[0].Cpu().DeepCopy(), used[0].Memory().DeepCopy()
		for _, u := range used[1:] {
			cpu.Add(*u.Cpu())
			memory.Add(*u.Memory())
		}
		r := metav1.TableRow{Cells: []any{m.Name, cpu.String(), memory.String(), window.Duration.String()}}
		switch include {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			r.Object.Object = obj
		default:
			r.Object.Object = &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
				ObjectMeta: m,
			}
		}
		t.Rows = append(t.Rows, r)
	}
	node := func(n *v1beta1.NodeMetrics) { row(n, n.ObjectMeta, n.Window, n.Usage) }
	pod := func(p *v1beta1.PodMetrics) {
		var used []corev1.ResourceList
		for _, c := range p.Containers {
			used = append(used, c.Usage)
		}
		row(p, p.ObjectMeta, p.Window, used...)
	}
	switch o := answer.(type) {
	case *v1beta1.NodeMetrics:
		node(o)
	case *v1beta1.NodeMetricsList:
		for i := range o.Items {
			node(&o.Items[i])
		}
	case *v1beta1.PodMetrics:
		pod(o)
	case *v1beta1.PodMetricsList:
		for i := range o.Items {
			pod(&o.Items[i])
		}
	}
	return t
}
