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

const mebi = 1 << 20

// all is what all pods together may use.
var all = cgroup.Limits{CPUShares: 2048, MemoryLimit: 400 * mebi, Pids: 5000}

// node is a kubelet's control groups, with the processes that were started in them.
type node struct {
	*cgroup.Manager
	running []*process
}

func newNode() *node { return &node{Manager: &cgroup.Manager{}} }

// process is a process of a container.
type process struct {
	*exec.Cmd
	done chan error
}

// pod is a pod of one container.
func pod(uid string, requests, limits corev1.ResourceList) *corev1.Pod {
	c := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			out[name] = resource.MustParse(q)
		}
	}
	return out
}

// at returns where the kernel has a group.
func at(path string) string { return filepath.Join("/sys/fs/cgroup", path) }

// read returns what a file of a group says.
func read(path, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(at(path), file))
	return strings.TrimSpace(string(data)), err
}

// says demands what files of a group say.
func says(path string, files map[string]string) error {
	var errs []error
	for file, want := range files {
		if got, err := read(path, file); err != nil || got != want {
			errs = append(errs, fmt.Errorf("%s of %s says %q, want %q: %w", file, path, got, want, err))
		}
	}
	return errors.Join(errs...)
}

// counter returns a number of a file of a group that has a name and a number in each line.
func counter(path, file, name string) (int64, error) {
	text, err := read(path, file)
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
func (n *node) start(path string, args ...string) (*process, error) {
	return n.startTo(nil, path, args...)
}

// startTo starts a program that writes into a file.
func (n *node) startTo(out *os.File, path string, args ...string) (*process, error) {
	dir, err := os.Open(at(path))
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
	p := &process{cmd, make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	n.running = append(n.running, p)
	return p, nil
}

// patience is how long it is waited for what must come.
const patience = time.Minute

// killed waits until a process was killed.
func (p *process) killed() error {
	select {
	case err := <-p.done:
		p.done <- err
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			return fmt.Errorf("%v ended with %v, and not by being killed", p.Args, err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%v still runs", p.Args)
	}
}

// runs reports whether a process has not ended.
func (p *process) runs() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return false
	default:
		return true
	}
}

// until waits for a condition.
func until(what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		is, err := ok()
		if err != nil || is {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
}

// end kills what runs still and removes all groups.
func (n *node) end() error {
	for _, p := range n.running {
		if p.runs() {
			_ = p.Process.Kill()
			<-p.done
		}
	}
	return n.Remove("/" + cgroup.PodsName)
}

// hold takes an amount of memory and keeps it.
func hold(amount string) {
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
