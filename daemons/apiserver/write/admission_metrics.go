package write

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run/measure"
)

// admissionMetrics measures how long admission plugins take, each and in total.
type admissionMetrics struct {
	steps, plugins *prometheus.HistogramVec
	byPlugin       sync.Map // *pluginHistograms by name
	total          pluginHistograms
}

func (m *admissionMetrics) init() {
	buckets := []float64{.005, .025, .1, .5, 1, 2.5}
	m.steps = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_step_admission_duration_seconds", Help: "How long admission's plugins took " +
			"together.", Buckets: buckets,
	}, []string{"type", "operation", "rejected"})
	m.plugins = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_controller_admission_duration_seconds", Help: "How long each of admission's " +
			"plugins took.", Buckets: buckets,
	}, []string{"name", "type", "operation", "rejected"})
	m.total.vec = m.steps
}

// pluginHistograms holds the histograms of a plugin, or of all plugins together, looked up once. The index is made of
// the step, the operation, and whether the plugin refused.
type pluginHistograms struct {
	vec       *prometheus.HistogramVec
	name      []string // the plugin label; empty for the total
	histogram [len(admissionSteps) * len(admissionOperations) * 2]atomic.Pointer[prometheus.Observer]
}

var (
	admissionSteps      = [...]string{"admit", "validate"}
	admissionOperations = [...]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
)

func (p *pluginHistograms) observe(step, operation int, rejected bool, d time.Duration) {
	at, text := step*len(admissionOperations)+operation, "false"
	if at *= 2; rejected {
		at, text = at+1, "true"
	}
	h := p.histogram[at].Load()
	if h == nil {
		made := p.vec.WithLabelValues(
			append(p.name[:len(p.name):len(p.name)], admissionSteps[step], admissionOperations[operation], text)...)
		h = &made
		p.histogram[at].Store(h)
	}
	(*h).Observe(d.Seconds())
}

// stepTimer times the plugins of one step. A plugin begins when the previous one ends, so the clock is read once for
// each plugin.
type stepTimer struct {
	metrics            *admissionMetrics
	step, operation    int
	webhookTime        *atomic.Int64 // the request's total, in nanoseconds
	start, pluginBegan time.Time
}

func (m *admissionMetrics) startStep(a *api.Admission, step string) stepTimer {
	t := stepTimer{metrics: m, start: time.Now()}
	t.pluginBegan = t.start
	if step == admissionSteps[1] {
		t.step = 1
	}
	for i, name := range admissionOperations {
		if name == a.Operation {
			t.operation = i
		}
	}
	if o, ok := a.Origin.(*origin); ok {
		t.webhookTime = &o.q.Answer.WebhookTime
	}
	return t
}

// recordPlugin records the time of a plugin. If err is not nil, it also ends the step. It returns err. Plugins without
// a name are not recorded one by one, because in upstream they belong to the storage layer.
func (t *stepTimer) recordPlugin(plugin any, err error) error {
	now := time.Now()
	d := now.Sub(t.pluginBegan)
	t.pluginBegan = now
	if plugin, ok := plugin.(api.Named); ok {
		name := plugin.Name()
		counts, ok := t.metrics.byPlugin.Load(name)
		if !ok {
			counts, _ = t.metrics.byPlugin.LoadOrStore(name,
				&pluginHistograms{vec: t.metrics.plugins, name: []string{name}})
		}
		counts.(*pluginHistograms).observe(t.step, t.operation, err != nil, d)
		if _, outside := plugin.(api.ExternalCaller); outside && t.webhookTime != nil {
			t.webhookTime.Add(int64(d))
		}
	}
	if err != nil {
		t.end(err)
	}
	return err
}

// end records the time of all plugins together.
func (t *stepTimer) end(err error) {
	t.metrics.total.observe(t.step, t.operation, err != nil, t.pluginBegan.Sub(t.start))
}
