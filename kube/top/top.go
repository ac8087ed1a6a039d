// Package top reads what nodes and pods use, now and in the last hour, with the rights of the caller.
package top

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Row is what a node or a pod uses.
type Row struct {
	Namespace string  `json:"namespace,omitempty"` // of a pod
	Name      string  `json:"name"`
	CPU       float64 `json:"cpu"`    // cores
	Memory    int64   `json:"memory"` // bytes, of the working set
	// CPUCapacity and MemoryCapacity are what pods may use of a node; 0 for pods.
	CPUCapacity    float64 `json:"cpuCapacity,omitempty"`
	MemoryCapacity int64   `json:"memoryCapacity,omitempty"`
	// CPUHistory has the cores in each minute of the last hour, the oldest first; nil where no value is known.
	CPUHistory []*float64 `json:"cpuHistory,omitempty"`
}

// Report is what nodes or pods use.
type Report struct {
	Rows   []Row    `json:"rows"`
	Unseen []string `json:"unseen"` // what could not be read
}

// The limits of a report.
const (
	deadline       = 30 * time.Second // for all requests together
	historyMinutes = 60
	maxHistories   = 100 // each is a request
	metricsPath    = "/apis/metrics.k8s.io/v1beta1"
)

// metricsList is a list of NodeMetrics or PodMetrics.
type metricsList struct {
	Items []struct {
		Metadata   metav1.ObjectMeta   `json:"metadata"`
		Usage      corev1.ResourceList `json:"usage"` // of a node
		Containers []struct {
			Usage corev1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// Nodes returns what nodes use.
func Nodes(ctx context.Context, api rest.Interface) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	report, err := read(ctx, api, metricsPath+"/nodes")
	if err != nil {
		return nil, err
	}
	text, err := api.Get().AbsPath("/api/v1/nodes").SetHeader("Accept", "application/json").DoRaw(ctx)
	var nodes corev1.NodeList
	if err == nil {
		err = json.Unmarshal(text, &nodes)
	}
	if err != nil {
		report.Unseen = append(report.Unseen, fmt.Sprintf("capacities: %v", err))
	}
	for _, n := range nodes.Items {
		at := slices.IndexFunc(report.Rows, func(r Row) bool { return r.Name == n.Name })
		if at < 0 {
			report.Unseen = append(report.Unseen,
				fmt.Sprintf("node %s: the metrics server knows nothing of it", n.Name))
			continue
		}
		report.Rows[at].CPUCapacity = n.Status.Allocatable.Cpu().AsApproximateFloat64()
		report.Rows[at].MemoryCapacity = n.Status.Allocatable.Memory().Value()
	}
	report.addHistories(ctx, api, func(r Row) string { return metricsPath + "/nodes/" + url.PathEscape(r.Name) })
	return report, nil
}

// Pods returns what the pods of a namespace use; of all namespaces if it is empty.
func Pods(ctx context.Context, api rest.Interface, namespace string) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	path := metricsPath + "/pods"
	if namespace != "" {
		path = metricsPath + "/namespaces/" + url.PathEscape(namespace) + "/pods"
	}
	report, err := read(ctx, api, path)
	if err != nil {
		return nil, err
	}
	report.addHistories(ctx, api, func(r Row) string {
		return metricsPath + "/namespaces/" + url.PathEscape(r.Namespace) + "/pods/" + url.PathEscape(r.Name)
	})
	return report, nil
}

// read returns the present usage; what uses most CPU time comes first.
func read(ctx context.Context, api rest.Interface, path string) (*Report, error) {
	text, err := api.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the metrics server: %w", err)
	}
	var list metricsList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the answer of the metrics server: %w", err)
	}
	report := &Report{Rows: make([]Row, 0, len(list.Items)), Unseen: []string{}}
	for _, item := range list.Items {
		row := Row{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name}
		row.add(item.Usage)
		for _, c := range item.Containers {
			row.add(c.Usage)
		}
		report.Rows = append(report.Rows, row)
	}
	slices.SortFunc(report.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	return report, nil
}

func (r *Row) add(usage corev1.ResourceList) {
	value := func(name corev1.ResourceName) *resource.Quantity { q := usage[name]; return &q }
	r.CPU += value(corev1.ResourceCPU).AsApproximateFloat64()
	r.Memory += value(corev1.ResourceMemory).Value()
}

// addHistories adds the histories of the first rows. A metrics server that is not clusterctl's has none.
func (r *Report) addHistories(ctx context.Context, api rest.Interface, pathOf func(Row) string) {
	for i := range r.Rows[:min(len(r.Rows), maxHistories)] {
		text, err := api.Get().AbsPath(pathOf(r.Rows[i])).Param("history", "true").
			SetHeader("Accept", "application/json").DoRaw(ctx)
		var answer struct {
			Kind   string `json:"kind"`
			Series []struct {
				Name   string       `json:"name"`
				Points [][2]float64 `json:"points"` // seconds since 1970, and the value
			} `json:"series"`
		}
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || answer.Kind != "MetricsHistory" {
			r.Unseen = append(r.Unseen, "the last hour: the metrics server keeps no history")
			if err != nil {
				r.Unseen[len(r.Unseen)-1] = fmt.Sprintf("the last hour: %v", err)
			}
			return
		}
		for _, s := range answer.Series {
			if s.Name == "cpu" && len(s.Points) > 0 {
				r.Rows[i].CPUHistory = lastHour(s.Points)
			}
		}
	}
}

// lastHour returns the value of each minute of the hour that ends with the last point.
func lastHour(points [][2]float64) []*float64 {
	minutes := make([]*float64, historyMinutes)
	last := points[len(points)-1][0]
	for _, p := range points {
		if back := (last - p[0]) / 60; back >= 0 && back < historyMinutes {
			minutes[historyMinutes-1-int(back)] = &p[1]
		}
	}
	return minutes
}
