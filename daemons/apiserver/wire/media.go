// Package wire defines how objects appear on the wire. It negotiates media types, and encodes objects, lists, tables
// and watch events from the cache's encoded entries. It makes no decisions about access.
package wire

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api/header"
)

// Format is an encoding.
type Format int

// The formats.
const (
	JSON Format = iota
	YAML
	Protobuf
	CBOR
)

// Media is the form of a response: an encoding and a shape.
type Media struct {
	Format  Format
	Shape   string // "", Table, PartialObjectMetadata or PartialObjectMetadataList
	Version string // version of the meta.k8s.io shape: v1 or v1beta1
	Pretty  bool
	Codings string // the client's Accept-Encoding
}

// contentTypes are the content types, by format.
var contentTypes = [...]string{
	runtime.ContentTypeJSON,
	runtime.ContentTypeYAML,
	runtime.ContentTypeProtobuf,
	runtime.ContentTypeCBOR,
}

// ContentType returns the Content-Type of a response.
func (m Media) ContentType() string { return contentTypes[m.Format] }

// Negotiate returns the media type of the Accept header that the client prefers and that can be sent. protobuf reports
// whether whole objects of the kind have a protobuf form, and tables whether the response can be a table.
func Negotiate(r *http.Request, protobuf, tables bool) (Media, error) {
	m := Media{Pretty: wantsPretty(r), Codings: header.Joined(r.Header, "Accept-Encoding")}
	accept := header.Joined(r.Header, "Accept")
	if accept == "" {
		return m, nil
	}
	take := func(kind string, params map[string]string) (Media, bool) {
		found, ok := m.mediaFor(kind, params)
		return found, ok && (protobuf || found.Format != Protobuf || found.Shape != "") &&
			(tables || found.Shape != "Table")
	}
	if strings.Contains(accept, ",") && strings.ContainsAny(accept, "*q") {
		for _, l := range parseAccept(accept) {
			if found, ok := take(l.mediaType, l.params); ok {
				return found, nil
			}
		}
	} else {
		for clause := range strings.SplitSeq(accept, ",") {
			if kind, params, ok := mediaType(strings.TrimSpace(clause)); ok {
				if found, ok := take(kind, params); ok {
					return found, nil
				}
			}
		}
	}
	offered := contentTypes[:]
	if !protobuf {
		offered = []string{contentTypes[JSON], contentTypes[YAML], contentTypes[CBOR]}
	}
	return m, notAcceptable("only the following media types are accepted: " + strings.Join(offered, ", "))
}

// wantsPretty reports whether JSON is indented, because the client asks for that or is usually read by people.
func wantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if requested := r.URL.Query().Get("pretty"); requested != "" {
			pretty, _ := strconv.ParseBool(requested) // other values count as false
			return pretty
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") ||
		strings.HasPrefix(agent, "Mozilla/5.0")
}

// acceptRange is a media type of a header, with its quality value.
type acceptRange struct {
	mediaType string
	params    map[string]string
	quality   float64
}

// parseAccept parses a header with quality values or wildcards. Media types with a higher quality come first, and those
// without wildcards before those with them.
func parseAccept(accept string) []acceptRange {
	var list []acceptRange
	for clause := range strings.SplitSeq(accept, ",") {
		kind, params, ok := mediaType(strings.TrimSpace(clause))
		if !ok {
			continue
		}
		l := acceptRange{kind, params, 1}
		if q, ok := params["q"]; ok {
			l.quality, _ = strconv.ParseFloat(q, 64)
		}
		list = append(list, l)
	}
	slices.SortStableFunc(list, func(a, b acceptRange) int {
		return cmp.Or(cmp.Compare(b.quality, a.quality),
			cmp.Compare(strings.Count(a.mediaType, "*"), strings.Count(b.mediaType, "*")))
	})
	return list
}

// CheckStreamable returns an error if a media type cannot be used for watches. YAML cannot, because its documents do
// not mark their end.
func (m Media) CheckStreamable() error {
	if m.Format != YAML {
		return nil
	}
	offered := []string{
		contentTypes[JSON] + ";stream=watch",
		contentTypes[Protobuf] + ";stream=watch",
		runtime.ContentTypeCBORSequence,
	}
	return notAcceptable("only the following media types are accepted: " + strings.Join(offered, ", "))
}

// mediaType parses one media type of a header. Common ones need no parsing.
func mediaType(text string) (kind string, params map[string]string, ok bool) {
	for _, supported := range contentTypes {
		if text == supported {
			return supported, nil, true
		}
	}
	kind, params, err := mime.ParseMediaType(text)
	return kind, params, err == nil
}

func (m Media) mediaFor(kind string, params map[string]string) (Media, bool) {
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
	m.Pretty = m.Pretty || params["pretty"] == "1"
	as := params["as"]
	if as == "" {
		return m, true
	}
	if params["g"] != metav1.GroupName || params["v"] != "v1" && params["v"] != "v1beta1" {
		return m, false
	}
	m.Shape, m.Version = as, params["v"]
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
