package metrics

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const kubeletAnswer = `node_cpu_usage_seconds_total 100 1700000000000
node_memory_working_set_bytes 2048
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 3 1700000000000
container_memory_working_set_bytes{container="c",namespace="n",pod="p"} 1024
container_cpu_usage_seconds_total{container="half",namespace="n",pod="p"} 3 1700000000000
container_cpu_usage_seconds_total{container="c",namespace="n",pod="elsewhere"} 3 1700000000000
container_memory_working_set_bytes{container="c",namespace="n",pod="elsewhere"} 1024
container_cpu_usage_seconds_total{container="invented",namespace="n",pod="p"} 3 1700000000000
container_memory_working_set_bytes{container="invented",namespace="n",pod="p"} 1024
`

func TestNodesReportOnlyTheirOwnPods(t *testing.T) {
	a, err := parseAnswer(newScanner(), strings.NewReader(kubeletAnswer), []*Pod{pod("n", "p", "u", "c", "half")})
	if err != nil {
		t.Fatal(err)
	}
	s := (*State)(nil).next(a, pointAt(1), interval)
	if s.Node.Last.Memory != 2048 || s.Node.Last.CPU != 100*time.Second || !s.Node.Last.At.Equal(pointAt(0)) {
		t.Errorf("the node: %+v", s.Node)
	}
	if len(s.Pods) != 1 || len(s.Pods["n/p"].Containers) != 1 || s.Pods["n/p"].Containers[0].Name != "c" {
		t.Errorf("%+v", s.Pods)
	}
}

func TestUsageOfADeletedPodIsNotAttributedToItsSuccessor(t *testing.T) {
	answer := func(uid, cpu string, millis string) answer {
		text := `container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} ` + cpu + " " + millis + "\n" +
			`container_memory_working_set_bytes{container="c",namespace="n",pod="p"} 1` + "\n"
		a, err := parseAnswer(newScanner(), strings.NewReader(text), []*Pod{pod("n", "p", uid, "c")})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	before := (*State)(nil).next(answer("1", "1", "1000"), pointAt(0), interval)
	if u, ok := before.next(answer("1", "2", "11000"), pointAt(10), interval).Pods["n/p"].Containers[0].Usage(); !ok ||
		u.NanoCPUs != 100_000_000 {
		t.Errorf("the same pod: %+v, %v", u, ok)
	}
	if u, ok := before.next(answer("2", "2", "11000"), pointAt(10), interval).Pods["n/p"].Containers[0].Usage(); ok {
		t.Errorf("another pod: %+v", u)
	}
}

func TestOldAnswersAreNotServed(t *testing.T) {
	s := newStore(interval)
	s.record("a", answer{}, pointAt(0))
	if s.node("a", pointAt(45)) == nil {
		t.Error("forgotten too early")
	}
	if s.node("a", pointAt(46)) != nil {
		t.Error("still served")
	}
}

func pod(namespace, name, uid string, containers ...string) *Pod {
	return &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			UID:       types.UID(uid),
			Labels:    map[string]string{"app": name},
		},
		Node:       "a",
		Containers: containers,
	}
}
