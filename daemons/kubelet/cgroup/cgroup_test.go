package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/pod"
)

func newPod(uid, request, limit string, static bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: "u"}}
	if static {
		p.Annotations = map[string]string{pod.SourceAnnotation: "file"}
	}
	c := corev1.Container{Name: "main"}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
	}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// tree creates the files that the kernel shows for a tree of version 1 or 2.
func tree(t *testing.T, unified bool, groups ...string) string {
	t.Helper()
	mount := t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !unified {
		for _, controller := range []string{"cpu", "memory", "pids"} {
			write(filepath.Join(mount, controller, "cgroup.procs"), "")
		}
		return mount
	}
	for _, g := range append([]string{""}, groups...) {
		write(filepath.Join(mount, g, "cgroup.controllers"), "cpu memory pids")
	}
	return mount
}

// Proves S25.
func TestPodSharesFollowTheirRequests(t *testing.T) {
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		shares string
		weight string
	}{
		{"burstable", newPod("a", "500m", "", false), "512", "59"},
		{"burstable with a limit", newPod("a", "2", "4", false), "2048", "174"},
		{"best effort", newPod("a", "", "", false), "2", "1"},
		{"static with a limit alone", newPod("a", "", "1", true), "1024", "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, unified := range []bool{false, true} {
				m := &Manager{}
				path := m.Parent(c.pod)
				m.Mount = tree(t, unified, "kubepods", filepath.Dir(path), path)
				if err := m.Make(path, ForPod(c.pod)); err != nil {
					t.Fatal(err)
				}
				file, want := filepath.Join(m.Mount, "cpu", path, "cpu.shares"), c.shares
				if unified {
					file, want = filepath.Join(m.Mount, path, "cpu.weight"), c.weight
				}
				if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != want {
					t.Errorf("%s is %q (%v), want %s", file, got, err, want)
				}
			}
		})
	}
}

// The Burstable class has the sum of its pods' CPU requests as its weight, as pods come and go.
// Proves S25.
func TestBurstableSharesAreTheSumOfTheRequests(t *testing.T) {
	for _, unified := range []bool{false, true} {
		m := &Manager{Mount: tree(t, unified, "kubepods", "kubepods/burstable", "kubepods/besteffort")}
		if err := m.Setup(Limits{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			pods   []*corev1.Pod
			shares string
			weight string
		}{
			{nil, "2", "1"},
			{[]*corev1.Pod{newPod("a", "500m", "", false), newPod("b", "1500m", "", false), newPod("c", "", "", false)},
				"2048", "174"},
			{[]*corev1.Pod{newPod("a", "500m", "", false)}, "512", "59"},
		} {
			if err := m.SetBurstableShares(BurstableShares(c.pods)); err != nil {
				t.Fatal(err)
			}
			file, want := filepath.Join(m.Mount, "cpu/kubepods/burstable/cpu.shares"), c.shares
			if unified {
				file, want = filepath.Join(m.Mount, "kubepods/burstable/cpu.weight"), c.weight
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s is %q (%v), want %s", file, got, err, want)
			}
		}
	}
}
