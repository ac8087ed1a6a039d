package metrics

import (
	"errors"
	"io"
	"math"
	"time"
)

// reading holds an answer's samples about the node or one container.
type reading struct {
	name           string // of the container; empty for the node
	cpu, memory    float64
	start          float64 // start time in seconds since 1970
	at             int64   // time of the CPU sample in milliseconds since 1970
	hasCPU, hasMem bool
}

// podReading holds an answer's samples about one pod. It has an entry for each container that the API knows.
type podReading struct {
	uid        string
	containers []reading
}

// answer is the parsed answer of one kubelet.
type answer struct {
	node reading
	pods map[string]*podReading // by namespace/name
}

// parseAnswer parses a kubelet's answer. It only accepts samples about pods that are on this node according to the API.
// So a node cannot report about other nodes' pods, or fill the memory with pods that do not exist.
func parseAnswer(s *scanner, in io.Reader, pods []*Pod) (answer, error) {
	a := answer{pods: make(map[string]*podReading, len(pods))}
	for _, p := range pods {
		r := &podReading{uid: string(p.UID), containers: make([]reading, len(p.Containers))}
		for i, name := range p.Containers {
			r.containers[i].name = name
		}
		a.pods[p.key()] = r
	}
	s.reset(in)
	var l line
	var key []byte
	for {
		switch err := s.next(&l); {
		case errors.Is(err, io.EOF):
			return a, nil
		case err != nil:
			return answer{}, err
		}
		r := &a.node
		if l.series >= containerCPU {
			key = append(append(append(key[:0], l.namespace...), '/'), l.pod...)
			if r = a.pods[string(key)].container(l.container); r == nil {
				continue
			}
		}
		r.addSample(&l)
	}
}

func (p *podReading) container(name []byte) *reading {
	if p == nil {
		return nil
	}
	for i := range p.containers {
		if p.containers[i].name == string(name) {
			return &p.containers[i]
		}
	}
	return nil
}

func (r *reading) addSample(l *line) {
	switch l.series {
	case nodeCPU, containerCPU:
		r.cpu, r.at, r.hasCPU = l.value, l.millis, true
	case nodeMemory, containerMemory:
		r.memory, r.hasMem = l.value, true
	case containerStart:
		r.start = l.value
	}
}

// Limits of samples, so that they can be converted to integers.
const (
	maxSeconds = float64(math.MaxInt64 / int64(time.Second))
	maxBytes   = float64(1 << 62)
)

// toPoint converts a reading. It returns false if the reading is incomplete or out of range. came is when the answer
// arrived.
func (r *reading) toPoint(came time.Time) (Point, bool) {
	if !r.hasCPU || !r.hasMem || r.cpu >= maxSeconds || r.memory >= maxBytes || r.start >= maxSeconds ||
		float64(r.at)/1e3 >= maxSeconds {
		return Point{}, false
	}
	p := Point{At: came, CPU: time.Duration(r.cpu * 1e9), Memory: int64(r.memory)}
	if r.at > 0 {
		p.At = time.UnixMilli(r.at)
	}
	if r.start > 0 {
		p.Started = time.Unix(0, int64(r.start*1e9))
	}
	return p, true
}
