package gitops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/daemons/gitops/gitopstest"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// world is the project's API server over the store in memory, which has the GitSources; a cluster and a repository in
// memory; and a controller.
type world struct {
	t       *testing.T
	client  dynamic.Interface
	cluster *gitopstest.Cluster
	repo    *gitopstest.Repository
	clock   *clocktesting.FakeClock
	stop    func() // stops the controller

	controller *gitops.Controller
	sender     *recordingSender

	mu     sync.Mutex
	events []string
}

var (
	resource = schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

func newWorld(t *testing.T) *world {
	t.Helper()
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	s := memory.New()
	t.Cleanup(s.Close)
	server, err := apiserver.New(apiserver.Options{
		Storage: apiserver.OpenStorage(s, "", kinds.All(), env.Log), Env: env,
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
		Admission: apiserver.Admission{External: &write.External{}},
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
	w := &world{t: t, cluster: gitopstest.NewCluster(), repo: &gitopstest.Repository{},
		clock: clocktesting.NewFakeClock(time.Now()), sender: &recordingSender{}}
	w.client = dynamic.NewForConfigOrDie(&rest.Config{Host: web.URL, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	w.until("the API server is ready", func() error { return env.Health.Err(true) })
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(gitsource.Definition, &definition.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the definition: %v", err)
	}
	w.until("GitSources are served", func() error {
		_, err := w.client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.start()
	return w
}

// start starts a controller. A running one is stopped first, as when its process ends.
func (w *world) start() {
	if w.stop != nil {
		w.stop()
	}
	c := gitops.New(gitops.Config{Client: w.client, Cluster: w.cluster, Fetcher: w.repo, Renderer: gitops.Manifests{},
		Decrypter: unsealer{}, Recorder: w, Sender: w.sender, Clock: w.clock,
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	w.controller = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the controller ended: %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

// Event implements gitops.Recorder.
func (w *world) Event(o runtime.Object, eventType, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, eventType+" "+reason+": "+message)
}

// recorded returns the events that contain a text.
func (w *world) recorded(text string) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if strings.Contains(e, text) {
			list = append(list, e)
		}
	}
	return list
}

const limit = 3 * time.Minute // of real time; the clock of the controller runs faster

// until waits until a condition holds. Meanwhile the clock of the controller advances.
func (w *world) until(what string, holds func() error) {
	w.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
		w.step()
	}
}

// step advances the clock of the controller, and lets it work.
func (w *world) step() {
	w.clock.Step(time.Second)
	time.Sleep(5 * time.Millisecond)
}

// declare creates or changes a source. spec is YAML.
func (w *world) declare(name, spec string) {
	w.t.Helper()
	w.declareIn(gitsource.Namespace, name, spec)
}

func (w *world) declareIn(namespace, name, spec string) {
	w.t.Helper()
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte("url: https://git.example/platform.git\n"+spec), &content); err != nil {
		w.t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gitsource.APIVersion, "kind": gitsource.Kind,
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": content}}
	_, err := w.client.Resource(resource).Namespace(namespace).Apply(w.t.Context(), name, o,
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		w.t.Fatal(err)
	}
}

// annotate sets an annotation of a source.
func (w *world) annotate(name, annotation, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, err := w.client.Resource(resource).Namespace(gitsource.Namespace).Patch(w.t.Context(), name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// source returns a source, or nil.
func (w *world) source(name string) *gitops.Source { return w.sourceIn(gitsource.Namespace, name) }

func (w *world) sourceIn(namespace, name string) *gitops.Source {
	w.t.Helper()
	o, err := w.client.Resource(resource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := gitops.SourceOf(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// ready waits until a source has a Ready condition with a status and a reason, for its present generation. A reason
// that is empty matches any. commit is the ID of the commit that must be rendered, or "" for any.
func (w *world) ready(name, status, reason, commit string) *gitops.Source {
	w.t.Helper()
	return w.readyIn(gitsource.Namespace, name, status, reason, commit)
}

func (w *world) readyIn(namespace, name, status, reason, commit string) (s *gitops.Source) {
	w.t.Helper()
	w.until(fmt.Sprintf("source %s is Ready=%s %s", name, status, reason), func() error {
		if s = w.sourceIn(namespace, name); s == nil {
			return fmt.Errorf("it does not exist")
		}
		for _, c := range s.Status.Conditions {
			if c.Type == gitsource.ConditionReady && string(c.Status) == status &&
				(reason == "" || c.Reason == reason) &&
				s.Status.ObservedGeneration == s.Generation && strings.HasSuffix(s.Status.RenderedRevision, commit) {
				return nil
			}
		}
		text, err := json.Marshal(s.Status)
		return fmt.Errorf("the status is %s %v", text, err)
	})
	return s
}

// message returns the message of the Ready condition.
func message(s *gitops.Source) string {
	for _, c := range s.Status.Conditions {
		if c.Type == gitsource.ConditionReady {
			return c.Message
		}
	}
	return ""
}

// configMap returns a manifest.
func configMap(name, value string, annotations ...string) string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
	if len(annotations) > 0 {
		text += "  annotations:\n"
		for i := 0; i+1 < len(annotations); i += 2 {
			text += fmt.Sprintf("    %s: %q\n", annotations[i], annotations[i+1])
		}
	}
	return text + "data:\n  value: " + value + "\n"
}

func configMapID(name string) gitops.ObjectID {
	return gitops.ObjectID{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}
}

// value returns the value of a config map that configMap has declared, or "" if it does not exist.
func (w *world) value(name string) string {
	o := w.cluster.Live(configMapID(name))
	if o == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", "value")
	return text
}

// setValue changes a config map as another client.
func (w *world) setValue(name, value string) {
	w.cluster.Put(configMapID(name), func(content map[string]any) {
		content["data"] = map[string]any{"value": value}
	})
}

func (w *world) wantValue(name, value string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s is %q", name, value), func() error {
		if got := w.value(name); got != value {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (w *world) wantWrites(want ...string) {
	w.t.Helper()
	got := w.cluster.Writes()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("the writes are %q, want %q", got, want)
	}
}
