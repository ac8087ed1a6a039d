package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/lab/machines"
	"clusterctl/tests/suites/chaos/check"
)

// settlingTime is how long a transient violation may last.
const settlingTime = time.Minute

// Observer takes a snapshot of objects and containers every few seconds and checks it.
type Observer struct {
	api             kubernetes.Interface
	lab             *machines.Lab
	healthyMachines func() map[string]bool // machines without a fault for the settling time

	mu        sync.Mutex
	findings  []string
	snapshots int
}

// Run takes snapshots until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	rules := check.Invariants{Settling: settlingTime}
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		world, err := o.takeSnapshot(ctx)
		if err != nil {
			continue // a fault makes the API unavailable
		}
		found := rules.Check(world)
		o.mu.Lock()
		o.snapshots++
		o.findings = append(o.findings, found...)
		o.mu.Unlock()
		for _, f := range found {
			fmt.Printf("%s FOUND %s\n", stamp(), f)
		}
	}
}

func (o *Observer) takeSnapshot(ctx context.Context) (check.World, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	// Containers are read before pods. Otherwise a container of a pod that is created in between would seem to have no
	// pod.
	w := check.World{
		At:      time.Now(),
		Running: map[string]map[string][]string{},
		Owners:  map[string]metav1.Time{},
		Trusted: o.healthyMachines(),
	}
	for _, name := range machineNames.Nodes {
		w.Running[name] = runningContainers(o.lab.Machine(name))
	}
	// Dependents are read before owners, for the same reason.
	pods, err := o.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	sets, err := o.api.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	deployments, err := o.api.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	daemonSets, err := o.api.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	nodes, err := o.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	w.Pods, w.Nodes = pods.Items, nodes.Items
	for _, p := range pods.Items {
		w.Dependents = append(w.Dependents, p.ObjectMeta)
	}
	for _, s := range sets.Items {
		w.Dependents = append(w.Dependents, s.ObjectMeta)
		w.Owners[string(s.UID)] = s.CreationTimestamp
	}
	for _, d := range daemonSets.Items {
		w.Owners[string(d.UID)] = d.CreationTimestamp
	}
	for _, d := range deployments.Items {
		w.Owners[string(d.UID)] = d.CreationTimestamp
	}
	return w, nil
}

// runningContainers returns the running containers of a machine by the UIDs of their pods. It works without the
// machine's network.
func runningContainers(m *machines.Machine) map[string][]string {
	found := map[string][]string{}
	root := m.Root()
	if root == "" {
		return found
	}
	// The bundle of a container exists as long as its task.
	configs, _ := filepath.Glob(root + "/run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json")
	for _, path := range configs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var spec struct {
			Annotations map[string]string `json:"annotations"`
		}
		if json.Unmarshal(text, &spec) == nil {
			if uid := spec.Annotations["io.kubernetes.cri.sandbox-uid"]; uid != "" {
				found[uid] = append(found[uid], filepath.Base(filepath.Dir(path))[:12])
			}
		}
	}
	return found
}
