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
	{"pods of every class have the limits that they are given", limits},
	{"controllers are there for containers", controllers},
	{"a pod has no more processes than it may", processes},
	{"a container that takes too much memory is killed as a whole", group},
	{"one that is to lose single processes loses those alone", single},
	{"a pod is resized while it runs", resized},
	{"a pod that wants more CPU than it may is throttled", throttled},
	{"memory is protected by the class of its pod", protected},
	{"what is left in a group goes with it", removed},
	{"pods are found, and the tasks of all", found},
}

// made creates the group of a pod and the group of a container in it.
func (n *node) made(p *corev1.Pod, l, container cgroup.Limits) (pod, inside string, err error) {
	pod = n.Parent(p)
	inside = filepath.Join(pod, "container")
	return pod, inside, errors.Join(n.Make(pod, l), n.Make(inside, container))
}

func limits(n *node) error {
	guaranteed := pod("g", list("500m", "64Mi"), list("500m", "64Mi"))
	burstable := pod("b", list("250m", "32Mi"), list("", "64Mi"))
	least := pod("l", nil, nil)
	for p, row := range map[*corev1.Pod]struct {
		path  string
		files map[string]string
	}{
		guaranteed: {"/kubepods/podg", map[string]string{"cpu.weight": "59", "cpu.max": "50000 100000",
			"memory.max": strconv.Itoa(64 * mebi), "pids.max": "100"}},
		burstable: {"/kubepods/burstable/podb", map[string]string{"cpu.weight": "35", "cpu.max": "max 100000",
			"memory.max": strconv.Itoa(64 * mebi), "pids.max": "100"}},
		least: {"/kubepods/besteffort/podl", map[string]string{"cpu.weight": "1", "cpu.max": "max 100000",
			"memory.max": "max", "pids.max": "100"}},
	} {
		l := cgroup.ForPod(p)
		l.Pids = 100
		if path := n.Parent(p); path != row.path {
			return fmt.Errorf("pod %s is at %s", p.Name, path)
		}
		if err := errors.Join(n.Make(row.path, l), says(row.path, row.files)); err != nil {
			return err
		}
	}
	if err := n.Burstable(cgroup.BurstableShares([]*corev1.Pod{guaranteed, burstable, least})); err != nil {
		return err
	}
	return errors.Join(
		says("/kubepods", map[string]string{"cpu.weight": "174", "memory.max": strconv.Itoa(400 * mebi),
			"pids.max": "5000"}),
		says("/kubepods/burstable", map[string]string{"cpu.weight": "35"}),
		says("/kubepods/besteffort", map[string]string{"cpu.weight": "1"}))
}

func controllers(n *node) error {
	_, inside, err := n.made(pod("p", list("1", "64Mi"), nil), cgroup.Limits{CPUShares: 1024},
		cgroup.Limits{CPUShares: 1024})
	if err != nil {
		return err
	}
	has, err := read(inside, "cgroup.controllers")
	for _, c := range []string{"cpu", "io", "memory", "pids"} {
		if !strings.Contains(" "+has+" ", " "+c+" ") {
			err = errors.Join(err, fmt.Errorf("a container has the controllers %q", has))
		}
	}
	return err
}

func processes(n *node) error {
	const most = 10
	_, inside, err := n.made(pod("p", nil, nil), cgroup.Limits{Pids: most}, cgroup.Limits{})
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

// taking starts two processes in a container of 64 MiB, of which one exceeds that memory, and one process in another
// container.
func (n *node) taking(oomGroup string) (idle, taking, neighbour *process, inside string, err error) {
	_, inside, err = n.made(pod("p", nil, list("", "128Mi")), cgroup.Limits{MemoryLimit: 128 * mebi},
		cgroup.Limits{MemoryLimit: 64 * mebi})
	if err != nil {
		return nil, nil, nil, "", err
	}
	other := filepath.Join(filepath.Dir(inside), "other")
	if err := errors.Join(n.Make(other, cgroup.Limits{}),
		os.WriteFile(filepath.Join(at(inside), "memory.oom.group"), []byte(oomGroup), 0o644)); err != nil {
		return nil, nil, nil, "", err
	}
	if idle, err = n.start(inside, "/bin/sleep", "100000"); err == nil {
		if neighbour, err = n.start(other, "/bin/sleep", "100000"); err == nil {
			taking, err = n.start(inside, "/proc/self/exe", "hold", strconv.Itoa(200*mebi))
		}
	}
	return idle, taking, neighbour, inside, err
}

func group(n *node) error {
	idle, taking, neighbour, inside, err := n.taking("1")
	if err != nil {
		return err
	}
	if err := errors.Join(taking.killed(), idle.killed()); err != nil {
		return err
	}
	if !neighbour.runs() {
		return errors.New("another container of the pod ended as well")
	}
	if kills, err := counter(inside, "memory.events", "oom_group_kill"); err != nil || kills < 1 {
		return fmt.Errorf("%d kills of the group, %w", kills, err)
	}
	return nil
}

func single(n *node) error {
	idle, taking, neighbour, inside, err := n.taking("0")
	if err != nil {
		return err
	}
	if err := taking.killed(); err != nil {
		return err
	}
	if kills, err := counter(inside, "memory.events", "oom_kill"); err != nil || kills != 1 || !idle.runs() ||
		!neighbour.runs() {
		return fmt.Errorf("%d kills, the idle process runs: %t, the neighbour: %t, %w", kills, idle.runs(),
			neighbour.runs(), err)
	}
	return nil
}

func resized(n *node) error {
	p := pod("p", list("500m", "64Mi"), list("500m", "64Mi"))
	pod, inside, err := n.made(p, cgroup.ForPod(p), cgroup.Limits{MemoryLimit: 64 * mebi})
	if err != nil {
		return err
	}
	holds, err := n.start(inside, "/bin/sleep", "100000")
	if err != nil {
		return err
	}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("1", "256Mi"),
		Limits: list("1", "256Mi")}
	if err := errors.Join(n.Make(pod, cgroup.ForPod(p)),
		n.Make(inside, cgroup.Limits{MemoryLimit: 256 * mebi})); err != nil {
		return err
	}
	if err := says(pod, map[string]string{"cpu.max": "100000 100000", "cpu.weight": "100",
		"memory.max": strconv.Itoa(256 * mebi)}); err != nil {
		return err
	}
	// The amount that was too large before fits now.
	if err := n.holds(inside, 128*mebi); err != nil {
		return err
	}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("250m", "256Mi"),
		Limits: list("250m", "256Mi")}
	if err := n.Make(pod, cgroup.ForPod(p)); err != nil {
		return err
	}
	if !holds.runs() {
		return errors.New("a process ended when its pod was resized")
	}
	return says(pod, map[string]string{"cpu.max": "25000 100000"})
}

// holds starts a process that allocates memory, and waits until it has done so.
func (n *node) holds(path string, bytes int) error {
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
	if err != nil || line != "held\n" || !p.runs() {
		return fmt.Errorf("it says %q: %w", line, err)
	}
	return nil
}

func throttled(n *node) error {
	pod, inside, err := n.made(pod("p", list("100m", ""), list("100m", "")),
		cgroup.Limits{CPUShares: 102, CPUQuota: 10000}, cgroup.Limits{})
	if err != nil {
		return err
	}
	if _, err := n.start(inside, "/proc/self/exe", "spin"); err != nil {
		return err
	}
	return until("the pod to be throttled", func() (bool, error) {
		times, err := counter(pod, "cpu.stat", "nr_throttled")
		return times > 2, err
	})
}

func protected(n *node) error {
	guaranteed, burstable := "/kubepods/podg", "/kubepods/burstable/podb"
	if err := errors.Join(n.Make(guaranteed, cgroup.Limits{MemoryMin: 32 * mebi}),
		n.Make(burstable, cgroup.Limits{MemoryLow: 16 * mebi}), n.Protect(32*mebi, 16*mebi)); err != nil {
		return err
	}
	text := func(n int) string { return strconv.Itoa(n * mebi) }
	if err := errors.Join(
		says(guaranteed, map[string]string{"memory.min": text(32), "memory.low": "0"}),
		says(burstable, map[string]string{"memory.min": "0", "memory.low": text(16)}),
		says("/kubepods", map[string]string{"memory.min": text(32), "memory.low": text(16)}),
		says("/kubepods/burstable", map[string]string{"memory.min": "0", "memory.low": text(16)}),
	); err != nil {
		return err
	}
	// A kubelet that protects no memory removes the protection of a former kubelet.
	if err := errors.Join(n.Make(guaranteed, cgroup.Limits{}), n.Make(burstable, cgroup.Limits{}),
		n.Protect(0, 0)); err != nil {
		return err
	}
	return errors.Join(says(guaranteed, map[string]string{"memory.min": "0"}),
		says(burstable, map[string]string{"memory.low": "0"}),
		says("/kubepods", map[string]string{"memory.min": "0", "memory.low": "0"}),
		says("/kubepods/burstable", map[string]string{"memory.low": "0"}))
}

func removed(n *node) error {
	pod, inside, err := n.made(pod("p", nil, nil), cgroup.Limits{}, cgroup.Limits{})
	if err != nil {
		return err
	}
	left, err := n.start(inside, "/bin/sleep", "100000")
	if err != nil {
		return err
	}
	if err := errors.Join(n.Remove(pod), left.killed()); err != nil {
		return err
	}
	if _, err := os.Stat(at(pod)); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the group is there still: %w", err)
	}
	return nil
}

func found(n *node) error {
	for _, p := range []*corev1.Pod{pod("g", list("1", "1Mi"), list("1", "1Mi")), pod("b", list("1", ""), nil),
		pod("l", nil, nil)} {
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
	if current, most, ok := n.Tasks(); !ok || current != 1 || most != all.Pids {
		return fmt.Errorf("%d of %d tasks, %t", current, most, ok)
	}
	return nil
}
