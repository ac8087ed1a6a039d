package interrupt

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clusterctl/provision/state"
	"clusterctl/tests/lab/cluster"
)

// verify compares the state with the machines and the API: everything that it names exists and is as declared.
func (w *world) verify() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	folder := filepath.Join(w.Folder, state.DirName)
	if left, _ := filepath.Glob(filepath.Join(folder, "lock.json")); len(left) > 0 {
		w.t.Errorf("the lock is left behind: %v", left)
	}
	text, err := os.ReadFile(filepath.Join(folder, "state.json"))
	if w.isDestroying {
		if !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatalf("a state is left of a cluster that is no more: %v\n%s", err, text)
		}
		for _, m := range w.Lab.Machines {
			w.checkClean(ctx, m.Name)
		}
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var s state.State
	if err := json.Unmarshal(text, &s); err != nil {
		w.t.Fatal(err)
	}
	want := []string{"machine.control", `machine.node["a"]`}
	nodes := []string{"node-a"}
	if w.hasNodeB {
		want, nodes = append(want, `machine.node["b"]`), append(nodes, "node-b")
	} else {
		w.checkClean(ctx, "b")
	}
	var got []string
	for address, m := range s.Machines {
		got = append(got, address)
		if !m.HasJoined {
			w.t.Errorf("the state says that %s is not whole", address)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("the state names %v, want %v", got, want)
	}
	for _, o := range s.Objects {
		kind := o.Kind
		if group, version, ok := strings.Cut(o.APIVersion, "/"); ok {
			kind += "." + version + "." + group
		}
		args := []string{"get", kind, o.Name, "-o", "name"}
		if o.Namespace != "" {
			args = append(args, "-n", o.Namespace)
		}
		if _, err := cluster.Output(w.KubectlCommand(ctx, args...)); err != nil {
			w.t.Errorf("the state names %s, which is not there: %v", o.Address, err)
		}
	}
	w.checkNodes(ctx, nodes)
	maps, err := cluster.Output(w.KubectlCommand(ctx, "get", "configmap", "-n", "shop", "-l",
		"app.kubernetes.io/managed-by=clusterctl", "-o", "name"))
	if err != nil || strings.Count(maps, "turn-") != 1 {
		w.t.Errorf("config maps %q, %v: want the one that is declared", maps, err)
	}
	if w.t.Failed() {
		w.t.Fatalf("after\n%s", w.lastOutput)
	}
}

// checkNodes checks that the declared nodes exist, are schedulable and become ready.
func (w *world) checkNodes(ctx context.Context, want []string) {
	w.t.Helper()
	var list string
	err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
		list, err = cluster.Output(w.KubectlCommand(ctx, "get", "nodes", "--no-headers"))
		if err == nil && strings.Contains(list, "NotReady") {
			err = errors.New("a node is not ready")
		}
		return err
	})
	if err != nil {
		w.t.Errorf("nodes: %v\n%s", err, list)
	}
	var got []string
	for line := range strings.Lines(list) {
		got = append(got, strings.Fields(line)[0])
	}
	if !slices.Equal(got, want) || strings.Contains(list, "SchedulingDisabled") {
		w.t.Errorf("nodes %v, want %v that take pods:\n%s", got, want, list)
	}
}

// checkClean checks that nothing of the cluster is left on a machine.
func (w *world) checkClean(ctx context.Context, name string) {
	w.t.Helper()
	left, err := w.Lab.Machine(name).
		Run(ctx, `ls -d /etc/kubernetes /usr/local/lib/clusterctl /usr/local/bin/kubelet /etc/systemd/system/kube* /etc/systemd/system/etcd.service /etc/systemd/system/containerd.service /var/lib/kubelet/* /var/lib/etcd/* /var/lib/containerd/* 2>/dev/null
ps -eo comm | grep -E '^(kube|etcd|containerd|runc)'; grep -E ' (/var/lib/kubelet|/run/containerd)' /proc/mounts; true`)
	if err != nil || strings.TrimSpace(left) != "" {
		w.t.Errorf("%s is not clean: %v\n%s", name, err, left)
	}
}
