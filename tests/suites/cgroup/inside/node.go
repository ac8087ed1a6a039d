package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/cgroup"
)

const mebibyte = 1 << 20

// allLimits is the limits of all pods together.
var allLimits = cgroup.Limits{CPUShares: 2048, MemoryLimit: 400 * mebibyte, Pids: 5000}

// node is a kubelet's cgroups, with the processes that were started in them.
type node struct {
	*cgroup.Manager
	running []*testProcess
}

func newNode() *node { return &node{Manager: &cgroup.Manager{}} }

// testProcess is a process of a container.
type testProcess struct {
	*exec.Cmd
	done chan error
}

// newPod returns a pod with one container.
func newPod(uid string, requests, limits corev1.ResourceList) *corev1.Pod {
	c := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

func resourceList(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			out[name] = resource.MustParse(q)
		}
	}
	return out
}

// groupPath returns the path of a group in the kernel's file system.
func groupPath(path string) string { return filepath.Join("/sys/fs/cgroup", path) }

// readFile returns the trimmed content of a group's file.
func readFile(path, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(groupPath(path), file))
	return strings.TrimSpace(string(data)), err
}

// checkFiles returns an error if files of a group do not have the given contents.
func checkFiles(path string, files map[string]string) error {
	var errs []error
	for file, want := range files {
		if got, err := readFile(path, file); err != nil || got != want {
			errs = append(errs, fmt.Errorf("%s of %s says %q, want %q: %w", file, path, got, want, err))
		}
	}
	return errors.Join(errs...)
}

// readCounter returns a number from a group's file in which each line has a name and a number.
func readCounter(path, file, name string) (int64, error) {
	text, err := readFile(path, file)
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if key, value, _ := strings.Cut(line, " "); key == name {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s of %s has no %s", file, path, name)
}

// start starts a program in a group.
func (n *node) start(path string, args ...string) (*testProcess, error) {
	return n.startTo(nil, path, args...)
}

// startTo starts a program in a group with out as its standard output.
func (n *node) startTo(out *os.File, path string, args ...string) (*testProcess, error) {
	dir, err := os.Open(groupPath(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	cmd := exec.Command(args[0], args[1:]...)
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &testProcess{cmd, make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	n.running = append(n.running, p)
	return p, nil
}

// waitTimeout is the longest wait for an expected event.
const waitTimeout = time.Minute

// awaitKill waits until a process ends, and returns an error if SIGKILL did not end it.
func (p *testProcess) awaitKill() error {
	select {
	case err := <-p.done:
		p.done <- err
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			return fmt.Errorf("%v ended with %v, and not by being killed", p.Args, err)
		}
		return nil
	case <-time.After(waitTimeout):
		return fmt.Errorf("%v still runs", p.Args)
	}
}

// isRunning reports whether a process has not ended.
func (p *testProcess) isRunning() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return false
	default:
		return true
	}
}

// waitFor waits for a condition.
func waitFor(what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		isMet, err := ok()
		if err != nil || isMet {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
}

// cleanUp kills the processes that still run and removes all groups.
func (n *node) cleanUp() error {
	for _, p := range n.running {
		if p.isRunning() {
			_ = p.Process.Kill()
			<-p.done
		}
	}
	return n.Remove("/" + cgroup.PodsName)
}

// holdMemory allocates an amount of memory and keeps it.
func holdMemory(amount string) {
	bytes, err := strconv.Atoi(amount)
	if err != nil {
		os.Exit(2)
	}
	data := make([]byte, bytes)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	fmt.Println("held")
	for {
		time.Sleep(time.Hour)
		data[0]++
	}
}
