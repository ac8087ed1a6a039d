package kubelet

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/hollow"
)

// registry is a runtime that records pulls and refuses those without a credential that it wants.
type registry struct {
	*hollow.Runtime
	wants map[string]string // by image: the user that may pull it

	mu    sync.Mutex
	pulls map[string][]*criapi.AuthConfig
}

func newRegistry(n *node) *registry {
	r := &registry{Runtime: n.runtime, wants: map[string]string{}, pulls: map[string][]*criapi.AuthConfig{}}
	n.options.Runtime = r
	return r
}

func (r *registry) PullImage(ctx context.Context, image string, auth *criapi.AuthConfig, box *criapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls[image] = append(r.pulls[image], auth)
	wants := r.wants[image]
	r.mu.Unlock()
	if wants != auth.GetUsername() && wants != "" {
		return "", fmt.Errorf("pull %s: unauthorized", image)
	}
	return r.Runtime.PullImage(ctx, image, auth, box)
}

// pulled returns the credentials with which pulls of an image were attempted.
func (r *registry) pulled(image string) []*criapi.AuthConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[image]
}

// pullSecret returns a secret with one credential.
func pullSecret(name, server, user string) *corev1.Secret {
	data := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": "secret"}}}`, server, user)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "secret-1"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)}}
}

// imagePod returns a pod of one container with an image.
func imagePod(name, image string, secrets ...string) *corev1.Pod {
	p := simplePod(name)
	p.Spec.Containers[0].Image = image
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return p
}

func TestPullSecretsAreSentToTheirRegistriesOnly(t *testing.T) {
	hub := pullSecret("hub", "https://index.docker.io/v1/", "me")
	n := newNode(t, hub)
	r := newRegistry(n)
	n.start()
	for i, row := range []struct{ image, server string }{
		{"registry:5000/web:1", ""}, {"localhost:5000/web:1", ""}, {"evildocker.io/web:1", ""},
		{"docker.io/private/web:1", "https://registry-1.docker.io"}, {"private/web:1", "https://registry-1.docker.io"},
	} {
		name := fmt.Sprintf("web-%d", i)
		n.create(imagePod(name, row.image, "hub"))
		n.until(row.image+" to run", func() bool { return isReady(n.pod(name)) })
		auths := r.pulled(row.image)
		switch {
		case row.server == "" && (len(auths) != 1 || auths[0] != nil):
			t.Errorf("%s was pulled with %v, want no credential", row.image, auths)
		case row.server != "" && (len(auths) != 1 || auths[0].GetUsername() != "me" || auths[0].ServerAddress != row.server):
			t.Errorf("%s was pulled with %v, want the secret's credential for %s", row.image, auths, row.server)
		}
	}
}
