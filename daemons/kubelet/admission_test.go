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

	"clusterctl/daemons/api/admitpod"
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
	n.until(
		"a pod of the machine's network to run",
		func() bool { return n.pod("host").Status.Phase == corev1.PodRunning },
	)
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
	asked := len(p.received())
	n.runtime.Crash("web", "main", 0)
	n.until("its container to run again", func() bool {
		c := n.pod("web").Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount == 1 && c[0].State.Running != nil
	})
	if again := len(p.received()); again != asked {
		t.Errorf("it was asked %d times more for a sandbox whose policies hold", again-asked)
	}
}
