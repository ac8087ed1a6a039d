// Package wire is how objects look on the wire: which media type a client gets, and
// the bytes of objects, lists, tables and watch events in it. It works from the
// cache's encoded entries and decides nothing about who may have what.
package wire

import (
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Format is an encoding.
type Format int

// Formats.
const (
	JSON Format = iota
	YAML
	Protobuf
	CBOR
)

// Media is what a client gets: an encoding and a shape.
type Media struct {
	Format  Format
	As      string // "", Table, PartialObjectMetadata or PartialObjectMetadataList
	Version string // of the meta.k8s.io shape: v1 or v1beta1
	Pretty  bool
}

// types are the content types by format.
var types = [...]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR}

// ContentType is the answer's header.
func (m Media) ContentType() string { return types[m.Format] }

// Negotiate finds the first media type of the Accept header that can be sent. Whole
// objects of kinds without a protobuf form cannot be sent in it.
func Negotiate(r *http.Request, protobuf bool) (Media, error) {
	m := Media{}
	if strings.Contains(r.URL.RawQuery, "pretty") {
		pretty := r.URL.Query().Get("pretty")
		m.Pretty = pretty == "true" || pretty == "1"
	}
	accept := r.Header.Get("Accept")
	if several := r.Header.Values("Accept"); len(several) > 1 {
		accept = strings.Join(several, ",")
	}
	if accept == "" {
		return m, nil
	}
	for clause := range strings.SplitSeq(accept, ",") {
		kind, params, ok := mediaType(strings.TrimSpace(clause))
		if !ok {
			continue
		}
		if found, ok := m.offer(kind, params); ok && (protobuf || found.Format != Protobuf || found.As != "") {
			return found, nil
		}
	}
	return m, notAcceptable("only the following media types are accepted: " + strings.Join(types[:], ", "))
}

// mediaType reads one of a header's media types. Those that clients send all the time need no reading.
func mediaType(text string) (kind string, params map[string]string, ok bool) {
	for _, known := range types {
		if text == known {
			return known, nil, true
		}
	}
	kind, params, err := mime.ParseMediaType(text)
	return kind, params, err == nil
}

func (m Media) offer(kind string, params map[string]string) (Media, bool) {
	switch kind {
	case runtime.ContentTypeJSON, "*/*", "application/*":
		m.Format = JSON
	case runtime.ContentTypeYAML, "text/yaml", "application/x-yaml":
		m.Format = YAML
	case runtime.ContentTypeProtobuf:
		m.Format = Protobuf
	case runtime.ContentTypeCBOR:
		m.Format = CBOR
	default:
		return m, false
	}
	as := params["as"]
	if as == "" {
		return m, true
	}
	if params["g"] != metav1.GroupName || params["v"] != "v1" && params["v"] != "v1beta1" {
		return m, false
	}
	m.As, m.Version = as, params["v"]
	switch as {
	case "Table":
		return m, m.Format != Protobuf
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return m, true
	}
	return m, false
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}
