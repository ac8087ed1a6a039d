package dashboard

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// usageHistory is the answer of /api/metrics.
type usageHistory struct {
	Interval int           `json:"interval"` // seconds between points
	Series   []usageSeries `json:"series"`
	Message  string        `json:"message,omitempty"` // why there is no series
}

type usageSeries struct {
	Name   string       `json:"name"`   // cpu or memory
	Unit   string       `json:"unit"`   // cores or bytes
	Points [][2]float64 `json:"points"` // seconds since 1970, and the value
}

// servePlots answers /api/metrics with the last hour of the cluster, a node or a pod, as the metrics server has it.
func servePlots(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	path, err := plotPath(q.Get("scope"), q.Get("namespace"), q.Get("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	out, err := sessionOf(r).visitor.usageHistory(r.Context(), path)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// plotPath returns the path of a request to the metrics server.
func plotPath(scope, namespace, name string) (string, error) {
	const nodes, namespaces = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/namespaces/"
	switch {
	case scope == "cluster":
		return nodes + "?history=true", nil
	case scope == "node" && isName(name):
		return nodes + "/" + name + "?history=true", nil
	case scope == "pod" && isName(namespace) && isName(name):
		return namespaces + namespace + "/pods/" + name + "?history=true", nil
	}
	return "", apierrors.NewBadRequest("scope is cluster, node with a name, or pod with a namespace and a name")
}

// isName reports whether a text can be the name of an object, and so part of a path.
func isName(text string) bool {
	return text != "" && len(text) < 254 && text[0] != '.' && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}

// usageHistory reads from the metrics server. An answer without series has a message with the reason.
func (v *visitor) usageHistory(ctx context.Context, path string) (*usageHistory, error) {
	var answer struct {
		Kind string `json:"kind"`
		usageHistory
	}
	err := v.get(ctx, path, &answer)
	out := &usageHistory{Interval: 60, Series: []usageSeries{}}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case apierrors.IsForbidden(err):
		out.Message = "You may not read the metrics: " + err.Error()
	case apierrors.IsNotFound(err):
		out.Message = "There are no metrics: the cluster has no metrics server, or the object does not exist."
	case err != nil:
		out.Message = "The metrics server does not answer: " + err.Error()
	case answer.Kind != "MetricsHistory":
		out.Message = "The cluster's metrics server keeps no history."
	default:
		out.Interval = answer.Interval
		out.Series = append(out.Series, answer.Series...)
	}
	return out, nil
}
