package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheProgrammingDelayIsMeasured(t *testing.T) {
	start := time.Unix(1_000_000, 0).UTC()
	p := newProgrammingMetrics(start)
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.collectors()...)
	slice := func(name string, at time.Time) any {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{"other": "x"}},
		}
		if !at.IsZero() {
			s.Annotations[corev1.EndpointsLastChangeTriggerTime] = at.Format(time.RFC3339Nano)
		}
		kept, err := trimObject(s)
		if err != nil {
			t.Fatal(err)
		}
		if kept.(*discoveryv1.EndpointSlice).Annotations["other"] != "" {
			t.Error("unused annotations are kept")
		}
		return kept
	}
	h := p.handler()
	h.OnAdd(slice("old", start.Add(-time.Hour)), true)
	h.OnAdd(slice("none", time.Time{}), false)
	a := slice("a", start.Add(time.Second))
	h.OnAdd(a, false)
	h.OnUpdate(a, slice("a", start.Add(2*time.Second))) // the first change counts
	b := slice("b", start.Add(3*time.Second))
	h.OnAdd(b, false)
	h.OnUpdate(b, b) // a change of something else
	failed := p.takePending()
	p.restorePending(failed)
	if taken := p.takePending(); len(taken) != 2 || len(p.takePending()) != 0 {
		t.Fatalf("changes: %v", taken)
	} else {
		p.recordProgrammed(taken, start.Add(5*time.Second))
	}
	h.OnUpdate(b, b)
	p.recordProgrammed(p.takePending(), start.Add(6*time.Second))
	want := `# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds When the rules were last brought up to date.
# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge
kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.000006e+06
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubeproxy_network_programming_duration_seconds" {
			if h := f.Metric[0].Histogram; h.GetSampleCount() != 2 || h.GetSampleSum() != 6 {
				t.Errorf("%d changes took %g s together, want 2 and 6 s", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
}
