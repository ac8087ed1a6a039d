package metrics

import (
	"sync"
	"time"

	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// The limits of the history.
const (
	historyMinutes  = 60
	maxHistoryBytes = 32 << 20
	// seriesBytes is the memory of a series with its entry in the map, without the text of its key.
	seriesBytes = 640
)

// hourSeries has one point for each of the last minutes. A point of minute m is in the slot m % historyMinutes.
type hourSeries struct {
	uid     string // of the pod; empty for a node
	last    int64  // newest minute since 1970
	present uint64 // bit of each slot that has a point
	cpu     [historyMinutes]float32
	memory  [historyMinutes]float32
}

// set sets the point of a minute. A point that is older than the newest is dropped.
func (s *hourSeries) set(minute int64, u Usage) {
	if minute < s.last {
		return
	}
	if minute-s.last >= historyMinutes {
		s.present = 0
	} else {
		for m := s.last + 1; m <= minute; m++ {
			s.present &^= 1 << (m % historyMinutes)
		}
	}
	slot := minute % historyMinutes
	s.last = minute
	s.present |= 1 << slot
	s.cpu[slot], s.memory[slot] = float32(float64(u.NanoCPUs)/1e9), float32(u.Memory)
}

// historyPoint is the usage in one minute.
type historyPoint struct {
	minute      int64
	cpu, memory float64 // cores and bytes
}

// points returns the points since a minute.
func (s *hourSeries) points(since int64) (list []historyPoint) {
	for m := max(since, s.last-historyMinutes+1); m <= s.last; m++ {
		if slot := m % historyMinutes; s.present&(1<<slot) != 0 {
			list = append(list, historyPoint{m, float64(s.cpu[slot]), float64(s.memory[slot])})
		}
	}
	return list
}

// history has the usage of nodes and pods in the last hour, in bounded memory. At the limit, new nodes and pods are not
// recorded. It is safe for concurrent use.
type history struct {
	limit int // bytes

	mu     sync.Mutex
	series map[string]*hourSeries
	size   int   // bytes
	swept  int64 // minute in which old series were removed
}

func newHistory(limit int) *history { return &history{limit: limit, series: map[string]*hourSeries{}} }

func nodeKey(name string) string { return "node/" + name }
func podKey(name string) string  { return "pod/" + name }

func (h *history) record(key, uid string, u Usage) {
	minute := u.At.Unix() / 60
	h.mu.Lock()
	defer h.mu.Unlock()
	if minute > h.swept {
		h.sweep(minute)
	}
	s := h.series[key]
	if s == nil {
		cost := seriesBytes + len(key)
		if h.size+cost > h.limit {
			return
		}
		h.size += cost
		s = &hourSeries{uid: uid}
		h.series[key] = s
	}
	if s.uid != uid { // another pod that now has the name
		*s = hourSeries{uid: uid}
	}
	s.set(minute, u)
}

// sweep removes series without a point in the last hour. The mutex is held.
func (h *history) sweep(minute int64) {
	h.swept = minute
	for key, s := range h.series {
		if minute-s.last >= historyMinutes {
			delete(h.series, key)
			h.size -= seriesBytes + len(key)
		}
	}
}

// recordState records the newest usage of a node and its pods. A pod without the usage of a container is not recorded,
// since a partial sum would be misleading. A node may report an impossible time. It is replaced by the time of the
// node's answer, because one in the future would remove the history of all other nodes.
func (h *history) recordState(node string, s *State) {
	record := func(key, uid string, u Usage) {
		if age := s.AnsweredAt.Sub(u.At); age < 0 || age >= historyMinutes*time.Minute {
			u.At = s.AnsweredAt
		}
		h.record(key, uid, u)
	}
	if u, ok := s.Node.Usage(); ok {
		record(nodeKey(node), "", u)
	}
	for name, pod := range s.Pods {
		var sum Usage
		isWhole := true
		for _, c := range pod.Containers {
			u, ok := c.Usage()
			isWhole = isWhole && ok
			sum.NanoCPUs, sum.Memory, sum.At = sum.NanoCPUs+u.NanoCPUs, sum.Memory+u.Memory, u.At
		}
		if isWhole && len(pod.Containers) > 0 {
			record(podKey(name), pod.UID, sum)
		}
	}
}

// find returns the points of the last hour of one node or pod.
func (h *history) find(key, uid string, now time.Time) []historyPoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[key]
	if s == nil || s.uid != uid {
		return nil
	}
	return s.points(now.Unix()/60 - historyMinutes + 1)
}

// sum returns the sums of nodes' points. The present minute is left out, in which not all nodes have a point yet.
func (h *history) sum(nodes []string, now time.Time) []historyPoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	present := now.Unix() / 60
	first := present - historyMinutes
	var sums [historyMinutes]historyPoint
	for _, name := range nodes {
		s := h.series[nodeKey(name)]
		if s == nil {
			continue
		}
		for _, p := range s.points(first) {
			if p.minute < present {
				at := &sums[p.minute-first]
				at.minute, at.cpu, at.memory = p.minute, at.cpu+p.cpu, at.memory+p.memory
			}
		}
	}
	var list []historyPoint
	for _, p := range sums {
		if p.minute != 0 {
			list = append(list, p)
		}
	}
	return list
}

// usageHistory is the answer to a request with the parameter history: what a node, a pod or all nodes used in the last
// hour.
type usageHistory struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Interval   int             `json:"interval"` // seconds between points
	Series     []historySeries `json:"series"`
}

type historySeries struct {
	Name   string       `json:"name"`
	Unit   string       `json:"unit"`
	Points [][2]float64 `json:"points"` // seconds since 1970, and the value
}

func newUsageHistory(points []historyPoint) *usageHistory {
	cpu := historySeries{Name: "cpu", Unit: "cores", Points: [][2]float64{}}
	memory := historySeries{Name: "memory", Unit: "bytes", Points: [][2]float64{}}
	for _, p := range points {
		at := float64(p.minute * 60)
		cpu.Points = append(cpu.Points, [2]float64{at, p.cpu})
		memory.Points = append(memory.Points, [2]float64{at, p.memory})
	}
	return &usageHistory{Kind: "MetricsHistory", APIVersion: v1beta1.SchemeGroupVersion.String(), Interval: 60,
		Series: []historySeries{cpu, memory}}
}
