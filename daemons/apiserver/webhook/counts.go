package webhook

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run/measure"
)

// Counts holds upstream's metrics of webhooks. Their labels are the names of configured webhooks, and closed sets.
type Counts struct {
	duration             *prometheus.HistogramVec
	requests, rejections *prometheus.CounterVec
	failOpen             *prometheus.CounterVec
}

// NewCounts returns the metrics, registered.
func NewCounts(metrics prometheus.Registerer) (*Counts, error) {
	c := &Counts{
		duration: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_webhook_admission_duration_seconds", Help: "How long webhooks took to answer.",
			Buckets: []float64{.005, .025, .1, .5, 1, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_request_total", Help: "Calls of webhooks by the status that they " +
				"gave, 0 where they gave none.",
		}, []string{"name", "type", "operation", "code", "rejected"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_rejection_count", Help: "Writes that were refused by a webhook, or " +
				"because it failed.",
		}, []string{"name", "type", "operation", "error_type", "rejection_code"}),
		failOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_fail_open_count", Help: "Writes that went on although a webhook " +
				"failed, as its configuration says.",
		}, []string{"name", "type"}),
	}
	return c, errors.Join(metrics.Register(c.duration), metrics.Register(c.requests), metrics.Register(c.rejections),
		metrics.Register(c.failOpen))
}

// typeLabel returns the type label of webhooks.
func typeLabel(mutating bool) string {
	if mutating {
		return "admit"
	}
	return "validating"
}

// codeLabel returns the label of a status code. Invalid codes count as 600.
func codeLabel(code int) string {
	if code != 0 && (code < 100 || code > 599) {
		code = 600
	}
	return strconv.Itoa(code)
}

// recordCall records a call. failed is why the call returned no valid response, and refusal is the error that it causes
// for the write.
func (c *Counts) recordCall(w *matchedHook, a *api.Admission, mutating bool, start time.Time, failed, refusal error) {
	if c == nil {
		return
	}
	kind, rejected := typeLabel(mutating), strconv.FormatBool(refusal != nil)
	code, status := http.StatusOK, apierrors.APIStatus(nil)
	if errors.As(refusal, &status) {
		code = int(status.Status().Code)
	}
	if failed != nil {
		code = 0
	}
	c.duration.WithLabelValues(w.name, kind, a.Operation, rejected).Observe(time.Since(start).Seconds())
	c.requests.WithLabelValues(w.name, kind, a.Operation, codeLabel(code), rejected).Inc()
	switch {
	case refusal == nil && failed != nil:
		c.failOpen.WithLabelValues(w.name, kind).Inc()
	case refusal == nil:
	case failed == nil:
		c.rejections.WithLabelValues(w.name, kind, a.Operation, "no_error", codeLabel(code)).Inc()
	case strings.HasPrefix(failed.Error(), callFailedPrefix):
		c.rejections.WithLabelValues(w.name, kind, a.Operation, "calling_webhook_error", "0").Inc()
	default:
		c.rejections.WithLabelValues(w.name, kind, a.Operation, "apiserver_internal_error", "500").Inc()
	}
}
