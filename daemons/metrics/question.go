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

// question is a parsed request for the group version.
type question struct {
	verb            string
	kind            string // nodes or pods
	namespace, name string
	labels, fields  string // as sent
}

func (q question) resource() schema.GroupResource {
	return schema.GroupResource{Group: v1beta1.GroupName, Resource: q.kind}
}

// where returns the end of a message about a missing permission.
func (q question) where() string {
	if q.namespace != "" {
		return fmt.Sprintf(" in the namespace %q", q.namespace)
	}
	return " at the cluster scope"
}

// parse parses a request's path. It returns false if the path does not exist.
func parse(r *http.Request) (question, bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+v1beta1.SchemeGroupVersion.String()+"/")
	parts := strings.Split(rest, "/")
	if !ok || slices.Contains(parts, "") {
		return question{}, false
	}
	var q question
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
		return question{}, false
	case len(parts) == 2:
		q.name = parts[1]
	}
	query := r.URL.Query()
	q.labels, q.fields = query.Get("labelSelector"), query.Get("fieldSelector")
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
func (q question) selectors() (labels.Selector, fields.Selector, error) {
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

// form is the format of an answer.
type form struct {
	table   bool
	include metav1.IncludeObjectPolicy // what each row contains
}

// plainly and tabular are the supported formats.
const (
	plainly = "application/json"
	tabular = "application/json;as=Table"
)

// formOf returns the first supported format that the client accepts.
func formOf(r *http.Request) (form, error) {
	if len(r.Header.Values("Accept")) == 0 {
		return form{}, nil
	}
	for one := range header.Elements(r.Header, "Accept") {
		switch offered(one) {
		case plainly:
			return form{}, nil
		case tabular:
			f := form{table: true, include: metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))}
			switch f.include {
			case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
				return f, nil
			}
			return form{}, apierrors.NewBadRequest(fmt.Sprintf("unrecognized includeObject value: %q", f.include))
		}
	}
	return form{}, notAcceptable()
}

// accepts reports whether a client accepts a format.
func accepts(r *http.Request, kind string) bool {
	if len(r.Header.Values("Accept")) == 0 {
		return true
	}
	for one := range header.Elements(r.Header, "Accept") {
		if offered(one) == kind {
			return true
		}
	}
	return false
}

// offered returns the format that matches a media range, or "".
func offered(mediaRange string) string {
	media, params, err := mime.ParseMediaType(mediaRange)
	if err != nil || media != plainly && media != "application/*" && media != "*/*" {
		return ""
	}
	if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
		return ""
	}
	switch {
	case params["as"] == "":
		return plainly
	case params["as"] == "Table" && params["g"] == metav1.GroupName &&
		(params["v"] == "v1" || params["v"] == "v1beta1"):
		return tabular
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
