package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
)

// pipelineStage acts as every part of the pipeline. It refuses objects that are named after a part.
type pipelineStage struct {
	mu    sync.Mutex // the server's own writes call it concurrently
	order []string
}

// record records the part's name for the test's own objects. The server writes others at any time.
func (s *pipelineStage) record(what string, a *api.Admission) {
	if a.Namespace != "default" || a.Resource.Resource != "configmaps" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, what)
}

// takeRecorded returns what was recorded since its last call.
func (s *pipelineStage) takeRecorded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := s.order
	s.order = nil
	return order
}

func (s *pipelineStage) Authenticate(r *http.Request) (api.User, bool, error) {
	switch r.Header.Get("Authorization") {
	case "":
		return api.User{}, false, nil
	case "Bearer good":
		return api.User{Name: "jane"}, true, nil
	}
	return api.User{}, false, errors.New("unknown token")
}

func (s *pipelineStage) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	if r.GroupVersionResource.Resource == "secrets" {
		return api.NoOpinion, "", nil
	}
	return api.Allow, "", nil
}

func (s *pipelineStage) Admit(_ context.Context, a *api.Admission) error {
	s.record("admit", a)
	if m, ok := a.Object.(*corev1.ConfigMap); ok {
		m.Labels = map[string]string{"mutated": "yes"}
	}
	if a.Name == "refused-by-mutator" {
		return apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, errors.New("mutators say no"))
	}
	return nil
}

func (s *pipelineStage) Validate(_ context.Context, a *api.Admission) error {
	s.record("validate", a)
	if a.Name == "refused-by-validator" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, a.Name,
			errors.New("validators say no"))
	}
	return nil
}

// Proves S12.
func TestEachStageRejectsWithItsStatus(t *testing.T) {
	s := &pipelineStage{}
	cfg := startConfig(t, stores["memory"](t), func(o *apiserver.Options) {
		o.Access.Authenticators, o.Access.Authorizers, o.Access.Anonymous = []api.Authenticator{
			s,
		}, []api.Authorizer{
			s,
		}, func(_ string, usual bool) bool { return usual }
		o.Admission.Mutators, o.Admission.Validators = []api.Mutator{s}, []api.Validator{s}
	})
	ctx := timeoutContext(t)
	noClient, wrong := *cfg, *cfg
	wrong.BearerToken = "bad"
	cfg.BearerToken = "good"
	for name, c := range map[string]*kubernetes.Clientset{"nobody": kubernetes.NewForConfigOrDie(&noClient),
		"wrong": kubernetes.NewForConfigOrDie(&wrong)} {
		if _, err := c.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/version"} {
		if answer, _ := sendRaw(t, &noClient, "GET", path, "", nil); answer.StatusCode != 200 {
			t.Errorf("%s for anybody: %d", path, answer.StatusCode)
		}
	}
	if answer, _ := sendRaw(t, &noClient, "GET", "/metrics", "", nil); answer.StatusCode != 401 {
		t.Errorf("metrics for anybody: %d", answer.StatusCode)
	}
	client := kubernetes.NewForConfigOrDie(cfg)
	_, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) ||
		err.Error() != `secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "default"` {
		t.Errorf("not allowed: %v", err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"refused-by-mutator", "refused-by-validator"} {
		if _, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.takeRecorded()
	if _, err := maps.Create(ctx, configMap("Invalid_"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("invalid: %v", err)
	}
	if order := s.takeRecorded(); len(order) != 1 || order[0] != "admit" {
		t.Errorf("an invalid object went through %v", order)
	}
	made, err := maps.Create(ctx, configMap("good"), metav1.CreateOptions{})
	if order := s.takeRecorded(); err != nil || made.Labels["mutated"] != "yes" || len(order) != 2 ||
		order[0] != "admit" {
		t.Errorf("created %+v through %v: %v", made, order, err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("what was refused is stored: %v, %v", list, err)
	}
}
