package kubelet

import (
	"bufio"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/admitpod"
	"clusterctl/daemons/kubelet/nodeagent"
)

// fakePolicies answers the kubelet's admission requests in place of the network daemon.
type fakePolicies struct {
	mu       sync.Mutex
	blocked  bool
	requests []admitpod.Pod
}

func (p *fakePolicies) serve(t *testing.T, socket string) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var pod admitpod.Pod
			line, _ := bufio.NewReader(c).ReadBytes('\n')
			_ = json.Unmarshal(line, &pod)
			p.mu.Lock()
			p.requests = append(p.requests, pod)
			answer := admitpod.Answer{InEffect: p.blocked}
			if !p.blocked {
				answer.Error = "the rules are not in the kernel yet"
			}
			p.mu.Unlock()
			text, _ := json.Marshal(answer)
			_, _ = c.Write(append(text, '\n'))
			c.Close()
		}
	}()
}

func (p *fakePolicies) received() []admitpod.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Proves S27.
func TestNoContainerStartsBeforeTheNetworkPoliciesAreInEffect(t *testing.T) {
	web := simplePod("web")
	host := simplePod("host")
	host.Spec.HostNetwork = true
	n := newNode(t, web, host)
	n.cfg.NetworkPolicySocket = filepath.Join(t.TempDir(), "s")
	n.start()
	n.until("a pod of the machine's network to run",
		func() bool { return n.pod("host").Status.Phase == corev1.PodRunning })
	n.until("an event that nobody answers", n.hasEvent("NetworkNotReady", "no such file"))

	p := &fakePolicies{}
	p.serve(t, n.cfg.NetworkPolicySocket)
	n.until("an event that the policies do not hold", n.hasEvent("NetworkNotReady", "the rules are not in the kernel "+
		"yet"))
	n.until("another question", func() bool { return len(p.received()) > 1 })
	if made := n.runtime.Calls("CreateContainer"); made != 1 {
		t.Errorf("%d containers were made besides that of the machine's network", made-1)
	}
	q := p.received()[0]
	if q.UID != string(web.UID) || q.Namespace != "default" || q.Name != "web" || len(q.IPs) == 0 {
		t.Errorf("it was asked for %+v", q)
	}
	p.mu.Lock()
	p.blocked = true
	p.mu.Unlock()
	n.until("the pod to run", func() bool { return n.pod("web").Status.Phase == corev1.PodRunning })
	requests := len(p.received())
	n.runtime.Crash("web", "main", 0)
	n.until("its container to run again", func() bool {
		c := n.pod("web").Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount == 1 && c[0].State.Running != nil
	})
	if again := len(p.received()); again != requests {
		t.Errorf("it was asked %d times more for a sandbox whose policies hold", again-requests)
	}
}

// A pod that was deleted in the API uses no resources, even if it still terminates. An extended resource that the
// kubelet does not know yet is left to the scheduler.
// Proves S15.
func TestPodsDeletedFromTheAPIUseNoResources(t *testing.T) {
	n := newNode(t)
	k := &Kubelet{settings: settings{file: n.file}, pods: podWorkers{workers: map[types.UID]*worker{}},
		agent:     &nodeagent.Agent{},
		pressures: &nodeagent.Monitor{Machine: n.options.Machine, File: &n.file}}
	k.agent.SetNode(&corev1.Node{
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("110")},
		},
	})
	asking := func(name string, requests corev1.ResourceList) *corev1.Pod {
		p := simplePod(name)
		p.UID = types.UID(name)
		p.Spec.Containers[0].Resources.Requests = requests
		return p
	}
	three := corev1.ResourceList{"cpu": resource.MustParse("3")}
	existing := &worker{inbox: inbox{pod: asking("there", three)}}
	k.pods.workers["there"] = existing
	if end := k.checkAdmission(asking("next", three), nil); end == nil || end.Reason != "OutOfcpu" {
		t.Errorf("while the other runs: %v", end)
	}
	existing.inbox.removed = true
	if end := k.checkAdmission(asking("next", three), nil); end != nil {
		t.Errorf("when the other is gone from the API: %v", end)
	}
	if end := k.checkAdmission(asking("lent", corev1.ResourceList{"example.com/foo": resource.MustParse("1")}),
		nil); end != nil {
		t.Errorf("of what others lend: %v", end)
	}
}
