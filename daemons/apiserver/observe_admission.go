package apiserver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run/measure"
)

// admissions measures how long admission plugins take, each and in total.
type admissions struct {
	steps, plugins *prometheus.HistogramVec
	byPlugin       sync.Map // *pluginCounts by name
	together       pluginCounts
}

func (m *admissions) init() {
	buckets := []float64{.005, .025, .1, .5, 1, 2.5}
	m.steps = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_step_admission_duration_seconds", Help: "How long admission's plugins took " +
			"together.", Buckets: buckets,
	}, []string{"type", "operation", "rejected"})
	m.plugins = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_controller_admission_duration_seconds", Help: "How long each of admission's " +
			"plugins took.", Buckets: buckets,
	}, []string{"name", "type", "operation", "rejected"})
	m.together.vec = m.steps
}

// pluginCounts holds the histograms of a plugin, or of all plugins together, looked up once. The index is made of the
// step, the operation, and whether the plugin refused.
type pluginCounts struct {
	vec       *prometheus.HistogramVec
	name      []string // the plugin label; empty for the total
	histogram [len(steps) * len(operations) * 2]atomic.Pointer[prometheus.Observer]
}

var (
	steps      = [...]string{"admit", "validate"}
	operations = [...]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
)

func (p *pluginCounts) observe(step, operation int, rejected bool, d time.Duration) {
	at, text := step*len(operations)+operation, "false"
	if at *= 2; rejected {
		at, text = at+1, "true"
	}
	h := p.histogram[at].Load()
	if h == nil {
		made := p.vec.WithLabelValues(
			append(p.name[:len(p.name):len(p.name)], steps[step], operations[operation], text)...)
		h = &made
		p.histogram[at].Store(h)
	}
	(*h).Observe(d.Seconds())
}

// stepTimer times the plugins of one step. A plugin begins when the previous one ends, so the clock is read once for
// each plugin.
type stepTimer struct {
	o               *observed
	step, operation int
	outside         *atomic.Int64 // the request's total, in nanoseconds
	began, at       time.Time
}

func (o *observed) admit(a *api.Admission, step string) stepTimer {
	t := stepTimer{o: o, began: time.Now()}
	t.at = t.began
	if step == steps[1] {
		t.step = 1
	}
	for i, name := range operations {
		if name == a.Operation {
			t.operation = i
		}
	}
	if w, ok := a.Origin.(*write); ok {
		if rec, ok := w.q.w.(*recorder); ok {
			t.outside = &rec.outside
		}
	}
	return t
}

// took records the time of a plugin. If err is not nil, it also ends the step. It returns err. Plugins without a name
// are not recorded one by one, because in upstream they belong to the storage layer.
func (t *stepTimer) took(plugin any, err error) error {
	now := time.Now()
	d := now.Sub(t.at)
	t.at = now
	if plugin, ok := plugin.(api.Named); ok {
		name := plugin.Name()
		counts, ok := t.o.admissions.byPlugin.Load(name)
		if !ok {
			counts, _ = t.o.admissions.byPlugin.LoadOrStore(
				name,
				&pluginCounts{vec: t.o.admissions.plugins, name: []string{name}},
			)
		}
		counts.(*pluginCounts).observe(t.step, t.operation, err != nil, d)
		if _, outside := plugin.(api.Outside); outside && t.outside != nil {
			t.outside.Add(int64(d))
		}
	}
	if err != nil {
		t.end(err)
	}
	return err
}

// end records the time of all plugins together.
func (t *stepTimer) end(err error) {
	t.o.admissions.together.observe(t.step, t.operation, err != nil, t.at.Sub(t.began))
}
