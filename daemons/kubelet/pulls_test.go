package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/hollow"
)

// fakeRegistry is a runtime that records pulls, and rejects those without the required credential.
type fakeRegistry struct {
	*hollow.Runtime
	users map[string]string // by image: the user that may pull it

	mu    sync.Mutex
	pulls map[string][]*criapi.AuthConfig
}

func newFakeRegistry(n *node) *fakeRegistry {
	r := &fakeRegistry{Runtime: n.runtime, users: map[string]string{}, pulls: map[string][]*criapi.AuthConfig{}}
	n.options.Runtime = r
	return r
}

func (r *fakeRegistry) PullImage(ctx context.Context, image string, auth *criapi.AuthConfig,
	box *criapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls[image] = append(r.pulls[image], auth)
	wants := r.users[image]
	r.mu.Unlock()
	if wants != auth.GetUsername() && wants != "" {
		return "", fmt.Errorf("pull %s: unauthorized", image)
	}
	return r.Runtime.PullImage(ctx, image, auth, box)
}

// credentials returns the credentials with which pulls of an image were attempted.
func (r *fakeRegistry) credentials(image string) []*criapi.AuthConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[image]
}

// pullSecret returns a pull secret with one credential.
func pullSecret(name, server, user string) *corev1.Secret {
	data := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": "secret"}}}`, server, user)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "secret-1"},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)}}
}

// imagePod returns a pod with one container that uses an image.
func imagePod(name, image string, secrets ...string) *corev1.Pod {
	p := simplePod(name)
	p.Spec.Containers[0].Image = image
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return p
}

func TestPullSecretsAreSentOnlyToTheirRegistries(t *testing.T) {
	hub := pullSecret("hub", "https://index.docker.io/v1/", "me")
	n := newNode(t, hub)
	r := newFakeRegistry(n)
	n.start()
	for i, row := range []struct{ image, server string }{
		{"registry:5000/web:1", ""}, {"localhost:5000/web:1", ""}, {"evildocker.io/web:1", ""},
		{"docker.io/private/web:1", "https://registry-1.docker.io"}, {"private/web:1", "https://registry-1.docker.io"},
	} {
		name := fmt.Sprintf("web-%d", i)
		n.create(imagePod(name, row.image, "hub"))
		n.until(row.image+" to run", func() bool { return isReady(n.pod(name)) })
		auths := r.credentials(row.image)
		switch {
		case row.server == "" && (len(auths) != 1 || auths[0] != nil):
			t.Errorf("%s was pulled with %v, want no credential", row.image, auths)
		case row.server != "" && (len(auths) != 1 || auths[0].GetUsername() != "me" ||
			auths[0].ServerAddress != row.server):
			t.Errorf("%s was pulled with %v, want the secret's credential for %s", row.image, auths, row.server)
		}
	}
}

// containerState returns the state of a pod's first container, once it runs or waits with a reason.
func (n *node) containerState(name string) *corev1.ContainerState {
	p := n.pod(name)
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return nil
	}
	s := &p.Status.ContainerStatuses[0].State
	if s.Running == nil && (s.Waiting == nil || s.Waiting.Reason == "ContainerCreating") {
		return nil
	}
	return s
}

func TestAnImagePulledWithASecretNeedsTheSecret(t *testing.T) {
	const image = "registry.example/web:1"
	for _, row := range []struct {
		name, policy string
		second       *corev1.Pod
		runs         bool
	}{
		{"without the secret", "", imagePod("second", image), false},
		{"with the secret", "", imagePod("second", image, "pull"), true},
		{"without the secret, which is never verified", "NeverVerify", imagePod("second", image), true},
		{"that never pulls", "", withPolicy(imagePod("second", image), corev1.PullNever), false},
		{"as a volume", "", withImageVolume(imagePod("second", "busybox:1"), image), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t, pullSecret("pull", "registry.example", "me"))
			if row.policy != "" {
				n.file.ImagePullCredentialsVerificationPolicy = row.policy
			}
			r := newFakeRegistry(n)
			r.users[image] = "me"
			n.start()
			n.create(imagePod("first", image, "pull"))
			n.until("the first pod to run", func() bool { return isReady(n.pod("first")) })
			n.create(row.second)
			var state *corev1.ContainerState
			n.until("what comes of the second pod",
				func() bool { state = n.containerState("second"); return state != nil })
			if runs := state.Running != nil; runs != row.runs {
				t.Errorf("a second pod %s runs: %t (%+v)", row.name, runs, state)
			}
			if want := 1; row.runs && len(r.credentials(image)) != want {
				t.Errorf("the image was pulled %d times", len(r.credentials(image)))
			}
		})
	}
}

// Every pod on the node may use an image that was pulled with the node's own credential.
func TestNodeCredentialsServeAllPods(t *testing.T) {
	const image = "registry.example/web:1"
	n := newNode(t, pullSecret("pull", "registry.example", "somebody"))
	if err := os.MkdirAll(n.cfg.RootDir, 0o750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.cfg.RootDir, "config.json")
	if err := os.WriteFile(file, []byte(`{"auths": {"registry.example": {"username": "node", "password": "secret"}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	r := newFakeRegistry(n)
	r.users[image] = "node"
	n.start()
	n.create(imagePod("first", image, "pull"))
	n.until("the first pod to run", func() bool { return isReady(n.pod("first")) })
	var users []string
	for _, a := range r.credentials(image) {
		users = append(users, a.GetUsername())
	}
	if want := []string{"somebody", "node"}; !slices.Equal(users, want) {
		t.Errorf("the image was pulled as %q, want %q", users, want)
	}
	n.create(imagePod("second", image))
	n.until("the second pod to run", func() bool { return isReady(n.pod("second")) })
	if got := len(r.credentials(image)); got != 2 {
		t.Errorf("for the second pod the image was pulled again: %d attempts", got)
	}
}

func withPolicy(p *corev1.Pod, policy corev1.PullPolicy) *corev1.Pod {
	p.Spec.Containers[0].ImagePullPolicy = policy
	return p
}

func withImageVolume(p *corev1.Pod, image string) *corev1.Pod {
	p.Spec.Volumes = []corev1.Volume{{Name: "data",
		VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image,
			PullPolicy: corev1.PullIfNotPresent}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return p
}

func TestEventsAndStatusNameTheMissingImage(t *testing.T) {
	const data = "registry.example/data:1"
	n := newNode(t)
	r := newFakeRegistry(n)
	r.users[data] = "nobody"
	n.start()
	n.create(withImageVolume(imagePod("web", "busybox:1"), data))
	n.until("the back-off of the volume's image", n.hasEvent("BackOff", `Back-off pulling image "`+data+`"`))
	if n.hasEvent("BackOff", "busybox:1")() {
		t.Error("the image of the container is said to be missing")
	}
	n.create(imagePod("wrong", "registry.example/UPPER:1"))
	n.until("the reason", func() bool {
		s := n.containerState("wrong")
		return s != nil && s.Waiting != nil && s.Waiting.Reason == "InvalidImageName" &&
			strings.Contains(s.Waiting.Message, `couldn't parse image name "registry.example/UPPER:1"`)
	})
	n.until("the event", n.hasEvent("InspectFailed", "Failed to apply default image tag"))
	if len(r.credentials("registry.example/UPPER:1")) > 0 {
		t.Error("an image was pulled whose name is invalid")
	}
}
