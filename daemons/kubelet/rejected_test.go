package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
)

// Proves S06.
func TestRejectedPodsReportTheReasonAtOnce(t *testing.T) {
	n := newNode(t)
	no := false
	p := simplePod("web")
	p.Spec.HostUsers = &no
	rejected := func() bool { p := n.pod("web"); return p != nil && p.Status.Phase == corev1.PodFailed }
	for range 2 { // a restarted kubelet rejects it again
		n.start()
		if n.pod("web") == nil {
			n.create(p)
		}
		n.until("the pod to be rejected", rejected)
		s := n.pod("web").Status
		if s.Reason != "UserNamespacesNotSupported" || !strings.HasPrefix(s.Message, "Pod was rejected: ") ||
			len(s.ContainerStatuses) != 0 ||
			podCondition(n.pod("web"), corev1.PodReady) != nil {
			t.Errorf("status is %+v", s)
		}
		n.stop()
	}
}

// A pod that did not pass the scheduler fails on a node where the scheduler would not have placed it. The reason is
// that of the scheduler's plugin.
//
//style:long one scenario: pods that fail or run on one node, in order
func TestAPodFailsOnANodeThatDoesNotMatch(t *testing.T) {
	n := newNode(t)
	n.cfg.NodeLabels = map[string]string{"disk": "ssd"}
	n.file.RegisterWithTaints = []config.Taint{
		{Key: "gpu", Effect: "NoExecute"},
		{Key: "advised", Effect: "NoSchedule"},
	}
	n.start()
	n.until("the node", func() bool {
		_, err := n.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		return err == nil
	})
	placed := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := simplePod(name)
		p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		change(&p.Spec)
		n.create(p)
		return p
	}
	port := func(protocol corev1.Protocol, ip string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{
				{ContainerPort: 80, HostPort: 8080, Protocol: protocol, HostIP: ip},
			}
		}
	}
	fails := func(name, reason, cause string) {
		t.Helper()
		n.until(name+" to have failed", func() bool { return n.pod(name).Status.Phase == corev1.PodFailed })
		if s := n.pod(name).Status; s.Reason != reason ||
			s.Message != "Pod was rejected: Predicate "+reason+" failed: "+cause ||
			len(s.ContainerStatuses) > 0 {
			t.Errorf("%s failed with %q: %q", name, s.Reason, s.Message)
		}
	}
	runs := func(name string) {
		t.Helper()
		n.until(name+" to run", func() bool { return n.pod(name).Status.Phase == corev1.PodRunning })
	}
	placed("suited", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} })
	runs("suited")
	placed("selector", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "tape"} })
	fails("selector", "NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	placed("affinity", func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{
						MatchFields: []corev1.NodeSelectorRequirement{
							{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}},
						},
					},
				}}},
		}
	})
	fails("affinity", "NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	placed("taint", func(s *corev1.PodSpec) { s.Tolerations = nil })
	fails("taint", "TaintToleration", "node(s) had taints that the pod didn't tolerate")
	placed("first", port("", ""))
	runs("first")
	placed("port", port(corev1.ProtocolTCP, "10.0.0.1"))
	fails("port", "NodePorts", "node(s) didn't have free ports for the requested pod ports")
	placed("udp", port(corev1.ProtocolUDP, ""))
	runs("udp")

	// The pod may rely on a label that the kubelet has not read yet.
	label := []byte(`{"metadata":{"labels":{"new":"yes"}}}`)
	if _, err := n.client.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, label,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	placed("early", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"new": "yes"} })
	runs("early")
	// A running pod is not ended when the node no longer suits it, even if the kubelet restarts.
	n.stop()
	label = []byte(`{"metadata":{"labels":{"new":null}}}`)
	if _, err := n.client.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, label,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.start()
	placed("last", func(*corev1.PodSpec) {})
	runs("last")
	if s := n.pod("early").Status; s.Phase != corev1.PodRunning {
		t.Errorf("a pod that has run is %s: %s", s.Phase, s.Reason)
	}
}

// A starting kubelet admits running pods first. A pod that came during the downtime is rejected if it conflicts with
// their ports or resources.
func TestANewPodDoesNotTakeThePortOfARunningOne(t *testing.T) {
	n := newNode(t)
	n.start()
	port := func(name string) *corev1.Pod {
		p := simplePod(name)
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		return p
	}
	n.create(port("first"))
	n.until("first to run", func() bool { return n.pod("first").Status.Phase == corev1.PodRunning })
	n.stop()
	for i := range 8 { // in any order
		n.create(port(string(rune('a' + i))))
	}
	n.start()
	for i := range 8 {
		name := string(rune('a' + i))
		n.until(name+" to have begun or failed",
			func() bool { p := n.pod(name).Status.Phase; return p == corev1.PodRunning || p == corev1.PodFailed })
		if s := n.pod(name).Status; s.Phase != corev1.PodFailed || s.Reason != "NodePorts" {
			t.Errorf("%s is %s (%s) beside another that has its port", name, s.Phase, s.Reason)
		}
	}
}

// A pod is not rejected because the node cannot be read.
func TestAPodIsAcceptedWhileTheNodeCannotBeRead(t *testing.T) {
	n := newNode(t)
	n.start()
	n.create(simplePod("first"))
	n.until("a pod to run", func() bool { return n.pod("first").Status.Phase == corev1.PodRunning })
	n.client.Lock()
	n.client.PrependReactor("get", "nodes",
		func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("nobody answers") })
	n.client.Unlock()
	p := simplePod("web")
	p.Spec.NodeSelector = map[string]string{"new": "yes"}
	n.create(p)
	n.until("the pod to run", func() bool { return n.pod("web").Status.Phase == corev1.PodRunning })
}

// mountingRuntime is a runtime that records the mounts of containers.
type mountingRuntime struct {
	*hollowRuntime
	mounts chan []*criapi.Mount
}

func (m mountingRuntime) CreateContainer(
	ctx context.Context,
	box string,
	config *criapi.ContainerConfig,
	sandbox *criapi.PodSandboxConfig,
) (string, error) {
	m.mounts <- config.Mounts
	return m.hollowRuntime.CreateContainer(ctx, box, config, sandbox)
}

// Proves S26.
func TestVolumeImagesArePulledByTheirPolicy(t *testing.T) {
	n := newNode(t)
	m := mountingRuntime{n.runtime, make(chan []*criapi.Mount, 8)}
	n.options.Runtime = m
	k := n.newKubelet()
	n.runKubelet(k)
	with := func(name string, policy corev1.PullPolicy) *corev1.Pod {
		p := simplePod(name)
		p.Spec.Volumes = []corev1.Volume{
			{
				Name: "v",
				VolumeSource: corev1.VolumeSource{
					Image: &corev1.ImageVolumeSource{Reference: "example.org/data:1", PullPolicy: policy},
				},
			},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "./a//b/"}}
		return p
	}
	n.create(with("never", corev1.PullNever))
	n.until("the pod to say that it is not there", func() bool {
		s := n.pod("never").Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
	n.create(with("web", corev1.PullIfNotPresent))
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	if image, err := n.runtime.ImageStatus(context.Background(), "example.org/data:1"); err != nil || image == nil {
		t.Errorf("the image was not pulled: %v", err)
	}
	mounts := <-m.mounts
	if !slices.ContainsFunc(mounts, func(m *criapi.Mount) bool {
		return m.ContainerPath == "/v" && m.Image.GetImage() == "example.org/data:1" && m.ImageSubPath == "a/b"
	}) {
		t.Errorf("mounts %v", mounts)
	}
	k.housekeepers.images.Collect(context.Background(), nil)
	if image, err := n.runtime.ImageStatus(context.Background(), "example.org/data:1"); err != nil || image == nil {
		t.Errorf("the image was collected while a pod mounts it: %v", err)
	}
}
