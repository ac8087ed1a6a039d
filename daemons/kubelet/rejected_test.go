package kubelet

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRejectedPodsSayWhyAndWaitForNothingS06(t *testing.T) {
	n := newNode(t)
	no := false
	p := simplePod("web")
	p.Spec.HostUsers = &no
	rejected := func() bool { p := n.pod("web"); return p != nil && p.Status.Phase == corev1.PodFailed }
	for range 2 { // and a kubelet that is started again says the same
		n.start()
		if n.pod("web") == nil {
			n.create(p)
		}
		n.until("the pod to be rejected", rejected)
		s := n.pod("web").Status
		if s.Reason != "UserNamespacesNotSupported" || !strings.HasPrefix(s.Message, "Pod was rejected: ") || len(s.ContainerStatuses) != 0 || podCondition(n.pod("web"), corev1.PodReady) != nil {
			t.Errorf("status is %+v", s)
		}
		n.stop()
	}
}

func TestParametersSayYesAsTheAPIServersDo(t *testing.T) {
	for text, want := range map[string]bool{"": false, "a=": true, "a": true, "a=1": true, "a=t": true, "a=T": true, "a=True": true, "a=TRUE": true, "a=true": true,
		"a=yes": true, "a=0": false, "a=false": false, "a=False": false, "a=FALSE": false, "a=0&a=1": false, "b=1": true, "a=0&b=True": true} {
		q, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := on(q, "a", "b"); got != want {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// mounting is a runtime that keeps what containers mount.
type mounting struct {
	*hollowRuntime
	mounts chan []*criapi.Mount
}

func (m mounting) CreateContainer(ctx context.Context, box string, config *criapi.ContainerConfig, sandbox *criapi.PodSandboxConfig) (string, error) {
	m.mounts <- config.Mounts
	return m.hollowRuntime.CreateContainer(ctx, box, config, sandbox)
}

func TestImagesOfVolumesArePulledByTheirPolicyS26(t *testing.T) {
	n := newNode(t)
	m := mounting{n.runtime, make(chan []*criapi.Mount, 8)}
	n.options.Runtime = m
	k := n.built()
	n.runs(k)
	with := func(name string, policy corev1.PullPolicy) *corev1.Pod {
		p := simplePod(name)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.org/data:1", PullPolicy: policy}}}}
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
	k.collectImages(context.Background(), nil)
	if image, err := n.runtime.ImageStatus(context.Background(), "example.org/data:1"); err != nil || image == nil {
		t.Errorf("the image was collected while a pod mounts it: %v", err)
	}
}
