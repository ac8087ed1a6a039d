// Package realtest runs the kubelet over a real containerd.
package realtest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet"
	"clusterctl/daemons/kubelet/containerdtest"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/run"
)

func TestMain(m *testing.M) { containerdtest.Main(m) }

type node struct {
	*testing.T
	client *fake.Clientset
	engine *containerdtest.Containerd
	cri    *cri.Client
	cfg    config.Kubelet
	file   config.KubeletFile
	logs   string
	stop   func()
}

func start(t *testing.T, objects ...runtime.Object) *node {
	t.Helper()
	n := &node{T: t, engine: containerdtest.Start(t), client: fake.NewClientset(objects...)}
	n.client.PrependReactor("create", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if m, ok := a.(k8stesting.CreateAction).GetObject().(metav1.Object); ok && m.GetUID() == "" {
			m.SetUID(uuid.NewUUID())
		}
		return false, nil, nil
	})
	n.client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		d := a.(k8stesting.DeleteActionImpl)
		s := d.DeleteOptions.GracePeriodSeconds
		if s != nil && *s == 0 {
			return false, nil, nil
		}
		p, err := n.client.Tracker().Get(d.GetResource(), d.GetNamespace(), d.GetName())
		if err != nil {
			return true, nil, err
		}
		p = p.DeepCopyObject()
		now := metav1.Now()
		p.(*corev1.Pod).DeletionTimestamp, p.(*corev1.Pod).DeletionGracePeriodSeconds = &now, s
		return true, p, n.client.Tracker().Update(d.GetResource(), p, d.GetNamespace())
	})
	n.cfg, n.file = config.DefaultKubelet(), config.DefaultKubeletFile()
	n.cfg.RootDir, n.cfg.HostnameOverride, n.cfg.NodeIP = filepath.Join(n.engine.Dir, "kubelet"), "n1", []string{"127.0.0.1"}
	n.file.ContainerRuntimeEndpoint = n.engine.Endpoint
	n.file.ClusterDNS = []string{"10.96.0.10"}
	n.file.CgroupRoot = filepath.Base(n.engine.Dir)
	n.file.Authorization.Mode, n.file.Authentication.Anonymous.Enabled = "AlwaysAllow", true
	n.logs = filepath.Join(n.engine.Dir, "log", "pods")
	var err error
	if n.cri, err = cri.Dial(n.engine.Endpoint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop()
		ctx := context.Background()
		boxes, _ := n.cri.ListPodSandbox(ctx, nil)
		for _, b := range boxes {
			_ = n.cri.StopPodSandbox(ctx, b.Id)
			_ = n.cri.RemovePodSandbox(ctx, b.Id)
		}
		_ = n.cri.Close()
		for _, tree := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "unified", ""} {
			removeGroups(filepath.Join("/sys/fs/cgroup", tree, n.file.CgroupRoot))
		}
	})
	n.run()
	return n
}

func removeGroups(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	env := run.NewEnv(slog.New(slog.NewTextHandler(output{n.T}, &slog.HandlerOptions{Level: slog.LevelDebug})))
	go func() {
		done <- kubelet.RunWith(ctx, n.cfg, n.file, env, kubelet.Options{Client: n.client, LogRoot: n.logs})
	}()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.Errorf("kubelet ended with %v", err)
		}
		n.stop = func() {}
	}
}

type output struct{ t *testing.T }

func (o output) Write(b []byte) (int, error) { o.t.Log(string(bytes.TrimSpace(b))); return len(b), nil }

func (n *node) until(what string, ok func() bool) time.Duration {
	n.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 30*time.Second {
			n.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

func (n *node) pod(name string) *corev1.Pod {
	p, err := n.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (n *node) create(p *corev1.Pod) {
	n.Helper()
	if _, err := n.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		n.Fatal(err)
	}
}

func ready(p *corev1.Pod) bool {
	if p != nil {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
	}
	return false
}

func (n *node) shell(name, script string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uuid.NewUUID())},
		Spec: corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: corev1.DNSClusterFirst,
			Containers: []corev1.Container{{
				Name: "main", Image: n.engine.Busybox, Command: []string{"/bin/sh", "-c", script}, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}}},
	}
}

func (n *node) log(p *corev1.Pod, container string, attempt uint32) string {
	data, _ := os.ReadFile(filepath.Join(cri.LogDir(n.logs, p), cri.LogPath(container, attempt)))
	return string(data)
}

func TestPodRunsOverContainerdS23S26(t *testing.T) {
	n := start(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}, Data: map[string]string{"k": "v1"}})
	p := n.shell("web", "cat /cfg/k; echo; env; cat /etc/resolv.conf; mkdir /www; echo hello >/www/index.html; httpd -p 8080 -h /www; sleep 1000")
	c := &p.Spec.Containers[0]
	c.Env = []corev1.EnvVar{
		{Name: "ME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "URL", Value: "http://$(ME)/$$x"},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Key: "k"}}},
	}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("500m")}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10, FailureThreshold: 3}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "cfg", MountPath: "/cfg"}, {Name: "tmp", MountPath: "/scratch"}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "cfg", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	n.create(p)
	t.Logf("first pod, image pulled: ready after %v", n.until("the pod to be ready", func() bool { return ready(n.pod("web")) }))
	text := n.log(p, "main", 0)
	ip := n.pod("web").Status.PodIP
	for _, want := range []string{"v1", "ME=" + ip, "URL=http://" + ip + "/$x", "KEY=v1", "nameserver 10.96.0.10", "search default.svc.cluster.local svc.cluster.local cluster.local", "ndots:5"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q:\n%s", want, text)
		}
	}
	for i := range 3 {
		q := n.shell(fmt.Sprintf("warm%d", i), "sleep 1000")
		n.create(q)
		t.Logf("warm pod: ready after %v", n.until("the warm pod", func() bool { return ready(n.pod(q.Name)) }))
	}
	grace := int64(1)
	for _, name := range []string{"web", "warm0", "warm1", "warm2"} {
		if err := n.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all gone after %v", n.until("the pods to go", func() bool {
		list, err := n.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}))
	boxes, err := n.cri.ListPodSandbox(context.Background(), nil)
	if err != nil || len(boxes) != 0 {
		t.Errorf("%d sandboxes are left (%v)", len(boxes), err)
	}
}
