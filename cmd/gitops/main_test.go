package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"clusterctl/cmd/gitops/apply"
	"clusterctl/cmd/gitops/fetch"
	"clusterctl/cmd/gitops/render"
	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/admission"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// allowAll allows every request, also the impersonation of accounts.
type allowAll struct{}

// Authorize implements api.Authorizer.
func (allowAll) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Allow, "", nil
}

// startServer starts the project's API server over the store in memory.
func startServer(t *testing.T) *rest.Config {
	t.Helper()
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	s := memory.New()
	t.Cleanup(s.Close)
	storage := apiserver.OpenStorage(s, "", kinds.All(), env.Log)
	mutators, validators, err := admission.All(config.DefaultAPIServer(), storage.Objects(), allowAll{}, env.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Options{
		Storage: storage, Env: env,
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
		Access:    apiserver.Access{Authorizers: []api.Authorizer{allowAll{}}},
		Admission: apiserver.Admission{Mutators: mutators, Validators: validators,
			Quota: admission.NewQuota(storage.Objects()), External: &write.External{Authorizer: allowAll{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	until(t, "the API server is ready", func() error { return env.Health.Err(true) })
	return &rest.Config{Host: web.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var (
	sources = schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

// The parts of the program work together: a folder is read, rendered by kustomize and applied with the engine of apply.
// Proves P06.
func TestAFolderIsReconciledWithTheAPIServer(t *testing.T) {
	cfg := startServer(t)
	client := dynamic.NewForConfigOrDie(cfg)
	createDefinition(t, client)
	dir := t.TempDir()
	write := func(files map[string]string) {
		t.Helper()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(map[string]string{
		"kustomization.yaml": "namespace: shop\nresources: [ns.yaml, widgets.yaml, w.yaml, a.yaml, b.yaml]\n",
		"ns.yaml":            "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: one}\n",
		"b.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {value: one}\n",
		"w.yaml":             "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
		"widgets.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
			"metadata: {name: widgets.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n" +
			"  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}\n  versions:\n" +
			"  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n",
	})
	startController(t, cfg, client)
	source := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gitsource.APIVersion,
		"kind":     gitsource.Kind,
		"metadata": map[string]any{"name": "platform", "namespace": "kube-system"},
		"spec":     map[string]any{"url": "file://" + dir, "interval": "24h"}}}
	in := client.Resource(sources).Namespace("kube-system")
	until(t, "the source is created", func() error {
		_, err := in.Create(t.Context(), source, metav1.CreateOptions{})
		return err
	})
	value := func(name string) string {
		o, err := client.Resource(configMaps).Namespace("shop").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", "value")
		return text
	}
	if s := requestSync(t, in, "1"); s.Status.Objects != 5 ||
		!strings.HasPrefix(s.Status.AppliedRevision, "folder@sha256:") {
		t.Errorf("the status is %+v", s.Status)
	}
	if value("a") != "one" || value("b") != "one" {
		t.Errorf("a is %q, b is %q", value("a"), value("b"))
	}
	_, err := client.Resource(configMaps).Namespace("shop").Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"data":{"value":"edited"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requestSync(t, in, "2")
	if got := value("a"); got != "one" {
		t.Errorf("after an edit, a is %q", got)
	}
	write(map[string]string{"kustomization.yaml": "namespace: shop\nresources: [ns.yaml, widgets.yaml, w.yaml, " +
		"a.yaml]\n"})
	requestSync(t, in, "3")
	if got := value("b"); got != "" {
		t.Errorf("after its removal, b is %q", got)
	}
	if err := in.Delete(t.Context(), "platform", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the source and its objects are deleted", func() error {
		if value("a") != "" {
			return errors.New("a exists")
		}
		return nil
	})
}

// requestSync requests a sync of the source "platform" and waits until it is done.
func requestSync(t *testing.T, in dynamic.ResourceInterface, request string) *gitops.Source {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, gitsource.SyncAnnotation, request)
	if _, err := in.Patch(t.Context(), "platform", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var s *gitops.Source
	until(t, "the request "+request+" is carried out", func() error {
		o, err := in.Get(t.Context(), "platform", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s, err = gitops.SourceOf(o); err != nil {
			return err
		}
		if s.Status.HandledSync != request || len(s.Status.Conditions) != 1 ||
			s.Status.Conditions[0].Status != "True" {
			return fmt.Errorf("the status is %+v", s.Status)
		}
		return nil
	})
	return s
}

// TestMain renders a source where a test has started this program for it.
func TestMain(m *testing.M) {
	if render.IsProcess(os.Args) {
		if err := render.RunProcess(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// newRenderer returns the renderer of the controller.
func newRenderer(t *testing.T) render.Renderer {
	t.Helper()
	processes, err := render.NewProcesses(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return render.Renderer{KubeVersion: "v1.37.0", Processes: processes}
}

// startController runs a controller until the test ends.
func startController(t *testing.T, cfg *rest.Config, client dynamic.Interface) {
	fetcher, err := fetch.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := gitops.New(gitops.Config{Client: client, Cluster: apply.New(cfg), Fetcher: fetcher,
		Renderer: newRenderer(t), Recorder: noEvents{},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		Observe: gitops.NewMeasures(run.NewEnv(slog.Default()).Metrics)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// createDefinition creates the kind of sources.
func createDefinition(t *testing.T, client dynamic.Interface) {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(gitsource.Definition, &definition.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
