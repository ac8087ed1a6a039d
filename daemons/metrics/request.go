package metrics

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"clusterctl/daemons/api/header"
)

// metricsRequest is a parsed request for the group version.
type metricsRequest struct {
	verb            string
	kind            string // nodes or pods
	namespace, name string
	labels, fields  string // as sent
	isHistory       bool   // asks for the last hour
}

func (q metricsRequest) resource() schema.GroupResource {
	return schema.GroupResource{Group: v1beta1.GroupName, Resource: q.kind}
}

// permissionScope returns the end of a message about a missing permission.
func (q metricsRequest) permissionScope() string {
	if q.namespace != "" {
		return fmt.Sprintf(" in the namespace %q", q.namespace)
	}
	return " at the cluster scope"
}

// parseRequest parses a request's path. It returns false if the path does not exist.
func parseRequest(r *http.Request) (metricsRequest, bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+v1beta1.SchemeGroupVersion.String()+"/")
	parts := strings.Split(rest, "/")
	if !ok || slices.Contains(parts, "") {
		return metricsRequest{}, false
	}
	var q metricsRequest
	namespaced := len(parts) > 2 && parts[0] == "namespaces"
	if namespaced {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.kind = parts[0]
	switch {
	case len(parts) > 2,
		q.kind != "pods" && q.kind != "nodes",
		q.kind == "nodes" && namespaced,
		q.kind == "pods" && len(parts) == 2 && !namespaced:
		return metricsRequest{}, false
	case len(parts) == 2:
		q.name = parts[1]
	}
	query := r.URL.Query()
	q.labels, q.fields = query.Get("labelSelector"), query.Get("fieldSelector")
	if on, err := strconv.ParseBool(query.Get("history")); err == nil {
		q.isHistory = on
	}
	q.verb = verb(r.Method, q.name != "")
	if watch, err := strconv.ParseBool(query.Get("watch")); q.verb == "list" && err == nil && watch {
		q.verb = "watch"
	}
	return q, true
}

func verb(method string, single bool) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		if single {
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if single {
			return "delete"
		}
		return "deletecollection"
	}
	return strings.ToLower(method)
}

// selectors parses the selectors of a list.
func (q metricsRequest) selectors() (labels.Selector, fields.Selector, error) {
	byLabel, err := labels.Parse(q.labels)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse labelSelector: %v", err))
	}
	byField, err := fields.ParseSelector(q.fields)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse fieldSelector: %v", err))
	}
	for _, one := range byField.Requirements() {
		if one.Field != "metadata.name" && (one.Field != "metadata.namespace" || q.kind == "nodes") {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", one.Field))
		}
	}
	return byLabel, byField, nil
}

// responseFormat is the format of an answer.
type responseFormat struct {
	isTable bool
	include metav1.IncludeObjectPolicy // what each row contains
}

// jsonFormat and tableFormat are the supported formats.
const (
	jsonFormat  = "application/json"
	tableFormat = "application/json;as=Table"
)

// formatOf returns the first supported format that the client accepts.
func formatOf(r *http.Request) (responseFormat, error) {
	if len(r.Header.Values("Accept")) == 0 {
		return responseFormat{}, nil
	}
	for one := range header.Elements(r.Header, "Accept") {
		switch matchFormat(one) {
		case jsonFormat:
			return responseFormat{}, nil
		case tableFormat:
			f := responseFormat{isTable: true, include: metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))}
			switch f.include {
			case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
				return f, nil
			}
			return responseFormat{}, apierrors.NewBadRequest(fmt.Sprintf("unrecognized includeObject value: "+
				"%q", f.include))
		}
	}
	return responseFormat{}, notAcceptable()
}

// isAccepted reports whether a client accepts a format.
func isAccepted(r *http.Request, kind string) bool {
	if len(r.Header.Values("Accept")) == 0 {
		return true
	}
	for one := range header.Elements(r.Header, "Accept") {
		if matchFormat(one) == kind {
			return true
		}
	}
	return false
}

// matchFormat returns the format that matches a media range, or "".
func matchFormat(mediaRange string) string {
	media, params, err := mime.ParseMediaType(mediaRange)
	if err != nil || media != jsonFormat && media != "application/*" && media != "*/*" {
		return ""
	}
	if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
		return ""
	}
	switch {
	case params["as"] == "":
		return jsonFormat
	case params["as"] == "Table" && params["g"] == metav1.GroupName &&
		(params["v"] == "v1" || params["v"] == "v1beta1"):
		return tableFormat
	}
	return ""
}

func notAcceptable() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: application/json, " +
			"application/json;as=Table;g=meta.k8s.io;v=v1",
	}}
}
