package autoscaler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"clusterctl/kube/discovery"
)

// newMetricsClient returns a client of metrics servers that give these answers, by path and query.
func newMetricsClient(t *testing.T, by map[string]string) metricsClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("timeout")
		requested := r.URL.EscapedPath()
		if len(query) > 0 {
			requested += "?" + query.Encode()
		}
		text, ok := by[requested]
		if !ok {
			t.Errorf("asked for %s", requested)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := discovery.New(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return metricsClient{client.RESTClient()}
}

func TestMetricsAreReadFromTheirAPIs(t *testing.T) {
	const resources = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Dweb"
	s := newMetricsClient(t, map[string]string{
		resources: `{"items": [
			{"metadata": {"name": "a"}, "timestamp": "2026-03-05T10:00:00Z", "window": "30s", "containers": [{"name": "c", "usage": {"cpu": "150m"}}, {"name": "d", "usage": {"cpu": "1"}}]},
			{"metadata": {"name": "b"}, "timestamp": "2026-03-05T10:00:00Z", "window": "30s", "containers": [{"name": "c", "usage": {"cpu": "1"}}, {"name": "d", "usage": {"memory": "1"}}]}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/pods/%2A/hits?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET": `{"items": [
			{"describedObject": {"name": "a"}, "value": "2500m", "windowSeconds": 5, "timestamp": "2026-03-05T10:00:00Z"}, {"describedObject": {"name": "b"}, "value": "3", "timestamp": "2026-03-05T10:00:00Z"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/ingresses.networking.k8s.io/i/hits": `{"items": [{"value": "7"}]}`,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue?labelSelector=name%3Dq":     `{"items": [{"value": "7"}, {"value": "500m"}]}`,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/n/none":                             `{"items": []}`,
	})
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	all, err := s.Resource(t.Context(), "n", web, corev1.ResourceCPU, "")
	if err != nil || len(all) != 1 || all["a"].Value != 1150 || all["a"].Window != 30*time.Second ||
		!all["a"].At.Equal(epoch) {
		t.Errorf("cpu of pods: %v, %v; the second pod's is not known whole", all, err)
	}
	one, err := s.Resource(t.Context(), "n", web, corev1.ResourceCPU, "c")
	if err != nil || len(one) != 2 || one["a"].Value != 150 || one["b"].Value != 1000 {
		t.Errorf("cpu of containers: %v, %v", one, err)
	}
	hits := autoscalingv2.MetricIdentifier{
		Name:     "hits",
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}},
	}
	pods, err := s.Pods(t.Context(), "n", web, hits)
	if err != nil || len(pods) != 2 || pods["a"].Value != 2500 || pods["a"].Window != 5*time.Second ||
		pods["b"].Window != time.Minute {
		t.Errorf("hits of pods: %v, %v", pods, err)
	}
	if got, err := s.Object(t.Context(), "namespaces/n/ingresses.networking.k8s.io/i",
		autoscalingv2.MetricIdentifier{Name: "hits"}); err != nil ||
		got != 7000 {
		t.Errorf("hits of an object: %d, %v", got, err)
	}
	queue := autoscalingv2.MetricIdentifier{
		Name:     "queue",
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "q"}},
	}
	if got, err := s.External(t.Context(), "n", queue); err != nil || got != 7500 {
		t.Errorf("queue: %d, %v", got, err)
	}
	if _, err := s.External(t.Context(), "n", autoscalingv2.MetricIdentifier{Name: "none"}); err == nil ||
		!strings.Contains(err.Error(), "no metrics returned from external metrics API") {
		t.Errorf("no answer: %v", err)
	}
}

// The error for a missing API has upstream's text, since users search for it.
func TestErrorsNameMissingAPIs(t *testing.T) {
	for _, c := range []struct {
		code                          int
		kind, body                    string
		resource, pods, object, queue string
	}{
		{404, "text/plain", "404 page not found\n",
			"unable to fetch metrics from resource metrics API: the server could not find the requested resource " +
				"(get pods.metrics.k8s.io)",
			"unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
			"unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
			"unable to fetch metrics from external metrics API: the server could not find the requested resource " +
				"(get queue.external.metrics.k8s.io)"},
		{503, "text/plain", "service unavailable\n",
			"unable to fetch metrics from resource metrics API: the server is currently unable to handle the request " +
				"(get pods.metrics.k8s.io)",
			"unable to fetch metrics from custom metrics API: the server is currently unable to handle the request " +
				"(get pods.custom.metrics.k8s.io)",
			"unable to fetch metrics from custom metrics API: the server is currently unable to handle the request " +
				"(get hits.custom.metrics.k8s.io)",
			"unable to fetch metrics from external metrics API: the server is currently unable to handle the request " +
				"(get queue.external.metrics.k8s.io)"},
		{404, "application/json", `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "nothing measures that"}`,
			"unable to fetch metrics from resource metrics API: nothing measures that",
			"unable to fetch metrics from custom metrics API: nothing measures that",
			"unable to fetch metrics from custom metrics API: nothing measures that",
			"unable to fetch metrics from external metrics API: nothing measures that"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.code)
			if _, err := w.Write([]byte(c.body)); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(server.Close)
		client, err := discovery.New(&rest.Config{Host: server.URL}, server.Client())
		if err != nil {
			t.Fatal(err)
		}
		s := metricsClient{client.RESTClient()}
		hits := autoscalingv2.MetricIdentifier{Name: "hits"}
		_, resource := s.Resource(t.Context(), "n", labels.Everything(), corev1.ResourceCPU, "")
		_, pods := s.Pods(t.Context(), "n", labels.Everything(), hits)
		_, object := s.Object(t.Context(), "namespaces/n/ingresses.networking.k8s.io/i", hits)
		_, queue := s.External(t.Context(), "n", autoscalingv2.MetricIdentifier{Name: "queue"})
		for _, one := range []struct {
			got  error
			want string
		}{{resource, c.resource}, {pods, c.pods}, {object, c.object}, {queue, c.queue}} {
			if one.got == nil || one.got.Error() != one.want {
				t.Errorf("%d %s: %v, want %s", c.code, c.kind, one.got, one.want)
			}
		}
	}
}
