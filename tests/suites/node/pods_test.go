package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Proves S09, S23, S25, S30.
func TestPodsGetVolumesLimitsAndIdentity(t *testing.T) {
	n := startNode(t)
	ctx := context.Background()
	if _, err := n.admin.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm"}, Data: map[string]string{"k": "v1"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.admin.CoreV1().Secrets("default").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
			Data: map[string][]byte{"password": []byte("hunter2")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := n.createPod(
		n.newShellPod(
			"web",
			`cat /cfg/k; echo; env; cat /etc/resolv.conf /etc/hosts; cat /secret/password; echo; ls -l /scratch/sub; id; mount | grep ' /secret '
cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; mkdir /www; echo hello >/www/index.html; httpd -p 8080 -h /www; sleep 1000`,
			setVolumesAndLimits,
		),
	)
	t.Logf("first pod, with its image pulled: ready after %v", n.waitFor("the pod to be ready",
		func() bool { return isReady(n.getPod("web")) }))
	ip := n.getPod("web").Status.PodIP
	text := n.logOf("web", corev1.PodLogOptions{})
	for _, want := range []string{"v1", "ME=" + ip, "URL=http://" + ip + "/$x", "KEY=v1", "CPU=500",
		"S_password=hunter2", "hunter2", "KUBERNETES_SERVICE_HOST=10.96.0.1",
		"nameserver 10.96.0.10", "search default.svc.cluster.local svc.cluster.local " +
			"cluster.local", "ndots:5", ip + "\tweb", "192.0.2.9\talias.example", "4242", "777", "tmpfs on /secret",
		"\ndefault\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q:\n%s", want, text)
		}
	}
	// The limits are set in the kernel.
	memory, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/memory", n.file.CgroupRoot, "kubepods",
		"pod"+string(p.UID), "memory.limit_in_bytes"))
	if len(memory) == 1 {
		if b, _ := os.ReadFile(memory[0]); strings.TrimSpace(string(b)) != fmt.Sprint(64<<20) {
			t.Errorf("the pod's memory limit is %s", b)
		}
	} else if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		t.Error("the pod has no cgroup")
	}
	// A change of the configMap reaches the running pod.
	cm, _ := n.admin.CoreV1().ConfigMaps("default").Get(ctx, "cm", metav1.GetOptions{})
	cm.Data["k"] = "v2"
	if _, err := n.admin.CoreV1().ConfigMaps("default").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the configMap's new value in the pod",
		func() bool { out, _, _ := n.exec("web", nil, "cat", "/cfg/k"); return out == "v2" })

	warm := n.createPod(n.newShellPod("warm", "sleep 1000", nil))
	t.Logf("warm pod: ready after %v", n.waitFor("the warm pod", func() bool { return isReady(n.getPod(warm.Name)) }))
	n.deletePod("web")
	n.deletePod("warm")
	t.Logf("gone after %v", n.waitFor("the pods to go",
		func() bool { return n.getPod("web") == nil && n.getPod("warm") == nil }))
	if boxes, err := n.cri.ListPodSandbox(ctx, nil); err != nil || len(boxes) != 0 {
		t.Errorf("%d sandboxes are left (%v)", len(boxes), err)
	}
	if left, _ := os.ReadDir(filepath.Join(n.cfg.RootDir, "pods")); len(left) != 0 {
		t.Errorf("left in the kubelet's directory: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", n.file.CgroupRoot, "kubepods", "pod*")); len(
		left,
	) != 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// setVolumesAndLimits gives a pod variables, limits, a probe and volumes.
func setVolumesAndLimits(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Env = []corev1.EnvVar{
		{
			Name: "ME",
			ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
			},
		},
		{Name: "URL", Value: "http://$(ME)/$$x"},
		{
			Name: "KEY",
			ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
					Key:                  "k",
				},
			},
		},
		{
			Name: "CPU",
			ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{
					Resource: "limits.cpu",
					Divisor:  resource.MustParse("1m"),
				},
			},
		},
	}
	c.EnvFrom = []corev1.EnvFromSource{
		{
			Prefix: "S_",
			SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"},
			},
		},
	}
	c.Resources.Limits = corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("64Mi"),
		corev1.ResourceCPU:    resource.MustParse("500m"),
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)},
		},
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "cfg", MountPath: "/cfg"},
		{Name: "tmp", MountPath: "/scratch/sub", SubPath: "a/b"},
		{Name: "secret", MountPath: "/secret"},
	}
	p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"alias.example"}}}
	group := int64(4242)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, SupplementalGroups: []int64{777}}
	p.Spec.Volumes = []corev1.Volume{
		{
			Name: "cfg",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
				},
			},
		},
		{
			Name:         "secret",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
		},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
}

// Proves S23.
func TestInitContainersSidecarsAndRestarts(t *testing.T) {
	n := startNode(t)
	always := corev1.ContainerRestartPolicyAlways
	n.createPod(
		n.newShellPod("flow", "cat /shared/log; sleep 1; echo last words >/dev/termination-log; exit "+
			"7", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyAlways
			mount := []corev1.VolumeMount{{Name: "w", MountPath: "/shared"}}
			init := func(name, script string) corev1.Container {
				return corev1.Container{
					Name:         name,
					Image:        n.containerd.Busybox,
					Command:      []string{"sh", "-c", script},
					VolumeMounts: mount,
				}
			}
			side := init("side", "echo side >>/shared/log; sleep 1000")
			side.RestartPolicy = &always
			side.StartupProbe = &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					Exec: &corev1.ExecAction{Command: []string{"grep", "-q", "side", "/shared/log"}},
				},
				PeriodSeconds: 1,
			}
			side.StartupProbe.Exec.Command = []string{"cat", "/shared/log"}
			p.Spec.InitContainers = []corev1.Container{
				init("first", "echo first >>/shared/log"),
				side,
				init("second", "echo second >>/shared/log"),
			}
			p.Spec.Containers[0].VolumeMounts = mount
			p.Spec.Volumes = []corev1.Volume{
				{Name: "w", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
		}),
	)
	n.waitFor("the second restart to wait", func() bool {
		p := n.getPod("flow")
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1 &&
			p.Status.ContainerStatuses[0].State.Waiting != nil
	})
	s := n.getPod("flow").Status
	if w := s.ContainerStatuses[0].State.Waiting; w.Reason != "CrashLoopBackOff" ||
		!strings.HasPrefix(w.Message, "back-off 10s restarting failed container=main pod=flow_default(") {
		t.Errorf("waiting: %+v", w)
	}
	if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 7 ||
		last.Message != "last words\n" {
		t.Errorf("last state: %+v", last)
	}
	if got := n.logOf("flow", corev1.PodLogOptions{Container: "main"}); got != "first\nside\nsecond\n" {
		t.Errorf("order of init containers is %q", got)
	}
	if got := n.logOf("flow", corev1.PodLogOptions{Container: "main", Previous: true}); got != "first\nside\nsecond\n" {
		t.Errorf("the log before is %q", got)
	}
	if s.InitContainerStatuses[1].State.Running == nil || s.InitContainerStatuses[0].State.Terminated == nil {
		t.Errorf("init containers: %+v", s.InitContainerStatuses)
	}
	events, err := n.admin.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, e := range events.Items {
		reasons = append(reasons, e.Reason)
	}
	for _, want := range []string{"Pulling", "Pulled", "Created", "Started", "BackOff"} {
		if !slices.Contains(reasons, want) {
			t.Errorf("event %s is missing among %v", want, reasons)
		}
	}
}

// Proves S05, S23.
func TestKubeletRestartLeavesPodsAloneAndCleansUp(t *testing.T) {
	n := startNode(t)
	stay := n.createPod(n.newShellPod("stay", "sleep 1000", nil))
	n.createPod(n.newShellPod("leave", "sleep 1000", nil))
	n.waitFor("the pods to be ready", func() bool { return isReady(n.getPod("stay")) && isReady(n.getPod("leave")) })
	before := n.getPod("stay").Status.ContainerStatuses[0].ContainerID
	n.stop()
	zero := int64(0)
	if err := n.admin.CoreV1().Pods("default").Delete(context.Background(), "leave",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	n.startKubelet()
	n.waitFor("the deleted pod's sandbox to go", func() bool {
		boxes, err := n.cri.ListPodSandbox(context.Background(), nil)
		return err == nil && len(boxes) == 1 && boxes[0].Metadata.Uid == string(stay.UID)
	})
	if p := n.getPod("stay"); !isReady(p) || p.Status.ContainerStatuses[0].ContainerID != before ||
		p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod: %+v", p.Status)
	}
	// When the runtime restarts, containers keep running too.
	n.containerd.Stop()
	n.containerd.Run(t)
	again := n.createPod(n.newShellPod("again", "sleep 1000", nil))
	n.waitFor("a pod after the runtime's restart", func() bool { return isReady(n.getPod(again.Name)) })
	if p := n.getPod("stay"); p.Status.ContainerStatuses[0].ContainerID != before {
		t.Error("a restart of the runtime restarted a pod")
	}
}

// Pods are deleted at forty different moments of their start, and the kubelet stops at three of these. The runtime
// completes what it has begun, so that no unknown containers remain.
// Proves S23.
func TestPodsDeletedWhileStartingLeaveNothing(t *testing.T) {
	n := startNode(t)
	for round := range 4 {
		for i := range 10 {
			n.createPod(n.newShellPod(fmt.Sprintf("brief-%d-%d", round, i), "exec sleep 1000", nil))
		}
		for i := range 10 {
			// The time of the deletion varies from 0 to 390 ms after the pods were created.
			<-time.After(time.Duration(10*round+i) * time.Millisecond)
			n.deletePod(fmt.Sprintf("brief-%d-%d", round, i))
		}
		if round < 3 {
			n.stop()
			n.startKubelet()
		}
		n.waitFor("all pods to be gone", func() bool {
			pods, err := n.admin.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
			return err == nil && len(pods.Items) == 0
		})
		// A sandbox that the runtime completed for a former kubelet goes when the present one has found it twice, in
		// an interval of 15 seconds.
		n.waitAtMost(time.Minute, "their sandboxes to be gone", func() bool {
			boxes, err := n.cri.ListPodSandbox(context.Background(), nil)
			return err == nil && len(boxes) == 0
		})
		n.waitFor("their shims to be gone", func() bool { return !n.hasShims() })
	}
}

// hasShims reports whether a shim of this test's containerd runs.
func (n *node) hasShims() bool {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		n.Fatal(err)
	}
	for _, line := range lines {
		args, err := os.ReadFile(line)
		if err == nil && bytes.Contains(args, []byte(n.containerd.Dir+"/containerd.sock")) &&
			bytes.Contains(args, []byte("shim")) {
			return true
		}
	}
	return false
}

// Proves S23.
func TestUnhealthyContainerIsRestartedAndUnreadyOneIsNot(t *testing.T) {
	n := startNode(t)
	n.createPod(n.newShellPod("sick", "touch /ok /ready; sleep 1000", func(p *corev1.Pod) {
		check := func(file string) *corev1.Probe {
			return &corev1.Probe{
				ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", file}}},
				PeriodSeconds:    1,
				FailureThreshold: 1,
			}
		}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = check("/ready"), check("/ok")
		p.Spec.Containers[0].LivenessProbe.InitialDelaySeconds = 1
	}))
	n.waitFor("the pod to be ready", func() bool { return isReady(n.getPod("sick")) })
	if _, _, err := n.exec("sick", nil, "sh", "-c", "kill -0 1; busybox rm /ready"); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the pod to be unready", func() bool { return !isReady(n.getPod("sick")) })
	if n.getPod("sick").Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("it was restarted for being unready")
	}
	if _, _, err := n.exec("sick", nil, "busybox", "rm", "/ok"); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the restart", func() bool {
		p := n.getPod("sick")
		return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
	})
}

// Proves S15, S23.
func TestStaticPodRunsAndIsMirrored(t *testing.T) {
	n := startNode(t)
	path := filepath.Join(n.file.StaticPodPath, "static.yaml")
	manifest := func(arg string) []byte {
		return []byte(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: static}\nspec:\n  "+
			"terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: %q, command: [sleep, %q]}\n",
			n.containerd.Busybox, arg))
	}
	writeFile(t, path, manifest("1000"))
	n.waitFor("the mirror to be ready", func() bool { return isReady(n.getPod("static-n1")) })
	first := n.getPod("static-n1")
	writeFile(t, path, manifest("1001"))
	n.waitFor("the new version's mirror to be ready",
		func() bool { p := n.getPod("static-n1"); return isReady(p) && p.UID != first.UID })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the mirror to go", func() bool { return n.getPod("static-n1") == nil })
	n.waitFor("the sandbox to go", func() bool {
		boxes, err := n.cri.ListPodSandbox(context.Background(), nil)
		return err == nil && len(boxes) == 0
	})
}

// Proves S23.
func TestPodsReportWhyTheyCannotStart(t *testing.T) {
	n := startNode(t)
	n.createPod(n.newShellPod("noimage", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "127.0.0.1:1/none:1" }))
	n.createPod(n.newShellPod("nocommand", "",
		func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/no/such"} }))
	n.createPod(n.newShellPod("noconfig", "", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
		}
	}))
	n.createPod(n.newShellPod("novolume", "", func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}}},
		}
	}))
	reason := func(name string) string {
		p := n.getPod(name)
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return ""
		}
		s := p.Status.ContainerStatuses[0].State
		switch {
		case s.Waiting != nil:
			return s.Waiting.Reason
		case s.Terminated != nil:
			return s.Terminated.Reason
		}
		return "running"
	}
	for name, want := range map[string][]string{
		"noimage":   {"ImagePullBackOff"},
		"nocommand": {"RunContainerError", "CreateContainerError", "CrashLoopBackOff", "StartError"},
		"noconfig":  {"CreateContainerConfigError"}, "novolume": {"ContainerCreating"},
	} {
		n.waitFor(name, func() bool { return slices.Contains(want, reason(name)) })
	}
	// When the missing objects are created, the pods start by themselves.
	if _, err := n.admin.CoreV1().Secrets("default").Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the pod whose volume has come", func() bool {
		r := reason("novolume")
		return r == "running" || r == "Completed" || r == "CrashLoopBackOff"
	})
}
