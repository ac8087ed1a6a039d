package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// checks run one after the other, each on a tree without pods.
var checks = []struct {
	name string
	do   func(n *node) error
}{
	{"pods of every class have the limits that they are given", checkLimits},
	{"controllers are there for containers", checkControllers},
	{"a pod has no more processes than it may", checkProcesses},
	{"a container that takes too much memory is killed as a whole", checkOOMGroup},
	{"one that is to lose single processes loses those alone", checkSingleOOM},
	{"a pod is resized while it runs", checkResize},
	{"a pod that wants more CPU than it may is throttled", checkThrottling},
	{"memory is protected by the class of its pod", checkProtection},
	{"what is left in a group goes with it", checkRemoval},
	{"pods are found, and the tasks of all", checkFind},
}

// makeGroups creates the group of a pod and the group of a container in it.
func (n *node) makeGroups(p *corev1.Pod, l, container cgroup.Limits) (pod, inside string, err error) {
	pod = n.Parent(p)
	inside = filepath.Join(pod, "container")
	return pod, inside, errors.Join(n.Make(pod, l), n.Make(inside, container))
}

func checkLimits(n *node) error {
	guaranteed := newPod("g", resourceList("500m", "64Mi"), resourceList("500m", "64Mi"))
	burstable := newPod("b", resourceList("250m", "32Mi"), resourceList("", "64Mi"))
	least := newPod("l", nil, nil)
	for p, row := range map[*corev1.Pod]struct {
		path  string
		files map[string]string
	}{
		guaranteed: {"/kubepods/podg", map[string]string{"cpu.weight": "59", "cpu.max": "50000 100000",
			"memory.max": strconv.Itoa(64 * mebibyte), "pids.max": "100"}},
		burstable: {"/kubepods/burstable/podb", map[string]string{"cpu.weight": "35", "cpu.max": "max 100000",
			"memory.max": strconv.Itoa(64 * mebibyte), "pids.max": "100"}},
		least: {"/kubepods/besteffort/podl", map[string]string{"cpu.weight": "1", "cpu.max": "max 100000",
			"memory.max": "max", "pids.max": "100"}},
	} {
		l := cgroup.ForPod(p)
		l.Pids = 100
		if path := n.Parent(p); path != row.path {
			return fmt.Errorf("pod %s is at %s", p.Name, path)
		}
		if err := errors.Join(n.Make(row.path, l), checkFiles(row.path, row.files)); err != nil {
			return err
		}
	}
	if err := n.SetBurstableShares(cgroup.BurstableShares([]*corev1.Pod{guaranteed, burstable, least})); err != nil {
		return err
	}
	return errors.Join(
		checkFiles("/kubepods", map[string]string{"cpu.weight": "174", "memory.max": strconv.Itoa(400 * mebibyte),
			"pids.max": "5000"}),
		checkFiles("/kubepods/burstable", map[string]string{"cpu.weight": "35"}),
		checkFiles("/kubepods/besteffort", map[string]string{"cpu.weight": "1"}))
}

func checkControllers(n *node) error {
	_, inside, err := n.makeGroups(newPod("p", resourceList("1", "64Mi"), nil), cgroup.Limits{CPUShares: 1024},
		cgroup.Limits{CPUShares: 1024})
	if err != nil {
		return err
	}
	has, err := readFile(inside, "cgroup.controllers")
	for _, c := range []string{"cpu", "io", "memory", "pids"} {
		if !strings.Contains(" "+has+" ", " "+c+" ") {
			err = errors.Join(err, fmt.Errorf("a container has the controllers %q", has))
		}
	}
	return err
}

func checkProcesses(n *node) error {
	const most = 10
	_, inside, err := n.makeGroups(newPod("p", nil, nil), cgroup.Limits{Pids: most}, cgroup.Limits{})
	if err != nil {
		return err
	}
	for i := range 2 * most {
		_, err := n.start(inside, "/bin/sleep", "100000")
		switch {
		case errors.Is(err, syscall.EAGAIN) && i == most:
			return nil
		case err != nil:
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	return fmt.Errorf("%d processes run, and %d may", 2*most, most)
}

// startOverLimit starts two processes in a container of 64 MiB, of which one exceeds that memory, and one process in
// another container.
func (n *node) startOverLimit(oomGroup string) (idle, taking, neighbour *testProcess, inside string, err error) {
	_, inside, err = n.makeGroups(newPod("p", nil, resourceList("", "128Mi")),
		cgroup.Limits{MemoryLimit: 128 * mebibyte},
		cgroup.Limits{MemoryLimit: 64 * mebibyte})
	if err != nil {
		return nil, nil, nil, "", err
	}
	other := filepath.Join(filepath.Dir(inside), "other")
	if err := errors.Join(n.Make(other, cgroup.Limits{}),
		os.WriteFile(filepath.Join(groupPath(inside), "memory.oom.group"), []byte(oomGroup), 0o644)); err != nil {
		return nil, nil, nil, "", err
	}
	if idle, err = n.start(inside, "/bin/sleep", "100000"); err == nil {
		if neighbour, err = n.start(other, "/bin/sleep", "100000"); err == nil {
			taking, err = n.start(inside, "/proc/self/exe", "hold", strconv.Itoa(200*mebibyte))
		}
	}
	return idle, taking, neighbour, inside, err
}

func checkOOMGroup(n *node) error {
	idle, taking, neighbour, inside, err := n.startOverLimit("1")
	if err != nil {
		return err
	}
	if err := errors.Join(taking.awaitKill(), idle.awaitKill()); err != nil {
		return err
	}
	if !neighbour.isRunning() {
		return errors.New("another container of the pod ended as well")
	}
	if kills, err := readCounter(inside, "memory.events", "oom_group_kill"); err != nil || kills < 1 {
		return fmt.Errorf("%d kills of the group, %w", kills, err)
	}
	return nil
}

func checkSingleOOM(n *node) error {
	idle, taking, neighbour, inside, err := n.startOverLimit("0")
	if err != nil {
		return err
	}
	if err := taking.awaitKill(); err != nil {
		return err
	}
	if kills, err := readCounter(inside, "memory.events", "oom_kill"); err != nil || kills != 1 || !idle.isRunning() ||
		!neighbour.isRunning() {
		return fmt.Errorf("%d kills, the idle process runs: %t, the neighbour: %t, %w", kills, idle.isRunning(),
			neighbour.isRunning(), err)
	}
	return nil
}

func checkResize(n *node) error {
	p := newPod("p", resourceList("500m", "64Mi"), resourceList("500m", "64Mi"))
	pod, inside, err := n.makeGroups(p, cgroup.ForPod(p), cgroup.Limits{MemoryLimit: 64 * mebibyte})
	if err != nil {
		return err
	}
	holds, err := n.start(inside, "/bin/sleep", "100000")
	if err != nil {
		return err
	}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: resourceList("1", "256Mi"),
		Limits: resourceList("1", "256Mi")}
	if err := errors.Join(n.Make(pod, cgroup.ForPod(p)),
		n.Make(inside, cgroup.Limits{MemoryLimit: 256 * mebibyte})); err != nil {
		return err
	}
	if err := checkFiles(pod, map[string]string{"cpu.max": "100000 100000", "cpu.weight": "100",
		"memory.max": strconv.Itoa(256 * mebibyte)}); err != nil {
		return err
	}
	// The amount that was too large before fits now.
	if err := n.allocate(inside, 128*mebibyte); err != nil {
		return err
	}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: resourceList("250m", "256Mi"),
		Limits: resourceList("250m", "256Mi")}
	if err := n.Make(pod, cgroup.ForPod(p)); err != nil {
		return err
	}
	if !holds.isRunning() {
		return errors.New("a process ended when its pod was resized")
	}
	return checkFiles(pod, map[string]string{"cpu.max": "25000 100000"})
}

// allocate starts a process that allocates memory, and waits until it has done so.
func (n *node) allocate(path string, bytes int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := n.startTo(w, path, "/proc/self/exe", "hold", strconv.Itoa(bytes))
	w.Close()
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || line != "held\n" || !p.isRunning() {
		return fmt.Errorf("it says %q: %w", line, err)
	}
	return nil
}

func checkThrottling(n *node) error {
	pod, inside, err := n.makeGroups(newPod("p", resourceList("100m", ""), resourceList("100m", "")),
		cgroup.Limits{CPUShares: 102, CPUQuota: 10000}, cgroup.Limits{})
	if err != nil {
		return err
	}
	if _, err := n.start(inside, "/proc/self/exe", "spin"); err != nil {
		return err
	}
	return waitFor("the pod to be throttled", func() (bool, error) {
		times, err := readCounter(pod, "cpu.stat", "nr_throttled")
		return times > 2, err
	})
}

func checkProtection(n *node) error {
	guaranteed, burstable := "/kubepods/podg", "/kubepods/burstable/podb"
	if err := errors.Join(n.Make(guaranteed, cgroup.Limits{MemoryMin: 32 * mebibyte}),
		n.Make(burstable, cgroup.Limits{MemoryLow: 16 * mebibyte}), n.Protect(32*mebibyte, 16*mebibyte)); err != nil {
		return err
	}
	text := func(n int) string { return strconv.Itoa(n * mebibyte) }
	if err := errors.Join(checkFiles(guaranteed, map[string]string{"memory.min": text(32), "memory.low": "0"}),
		checkFiles(burstable, map[string]string{"memory.min": "0", "memory.low": text(16)}), checkFiles("/kubepods",
			map[string]string{"memory.min": text(32), "memory.low": text(16)}), checkFiles("/kubepods/burstable",
			map[string]string{"memory.min": "0", "memory.low": text(16)})); err != nil {
		return err
	}
	// A kubelet that protects no memory removes the protection of a former kubelet.
	if err := errors.Join(n.Make(guaranteed, cgroup.Limits{}), n.Make(burstable, cgroup.Limits{}),
		n.Protect(0, 0)); err != nil {
		return err
	}
	return errors.Join(checkFiles(guaranteed, map[string]string{"memory.min": "0"}),
		checkFiles(burstable, map[string]string{"memory.low": "0"}),
		checkFiles("/kubepods", map[string]string{"memory.min": "0", "memory.low": "0"}),
		checkFiles("/kubepods/burstable", map[string]string{"memory.low": "0"}))
}

func checkRemoval(n *node) error {
	pod, inside, err := n.makeGroups(newPod("p", nil, nil), cgroup.Limits{}, cgroup.Limits{})
	if err != nil {
		return err
	}
	left, err := n.start(inside, "/bin/sleep", "100000")
	if err != nil {
		return err
	}
	if err := errors.Join(n.Remove(pod), left.awaitKill()); err != nil {
		return err
	}
	if _, err := os.Stat(groupPath(pod)); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the group is there still: %w", err)
	}
	return nil
}

func checkFind(n *node) error {
	for _, p := range []*corev1.Pod{newPod("g", resourceList("1", "1Mi"), resourceList("1", "1Mi")),
		newPod("b", resourceList("1", ""), nil),
		newPod("l", nil, nil)} {
		if err := n.Make(n.Parent(p), cgroup.Limits{}); err != nil {
			return err
		}
	}
	pods, err := n.Pods()
	if err != nil || len(pods) != 3 || pods["b"] != "/kubepods/burstable/podb" {
		return fmt.Errorf("pods are %v, %w", pods, err)
	}
	if _, err := n.start("/kubepods/podg", "/bin/sleep", "100000"); err != nil {
		return err
	}
	if current, most, ok := n.Tasks(); !ok || current != 1 || most != allLimits.Pids {
		return fmt.Errorf("%d of %d tasks, %t", current, most, ok)
	}
	return nil
}
