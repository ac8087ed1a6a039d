package wire

import (
	"encoding/binary"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"clusterctl/daemons/apiserver/cache"
)

// WatchContentType returns the Content-Type of a stream of watch events.
func (m Media) WatchContentType() string {
	switch m.Format {
	case Protobuf:
		return m.ContentType() + ";stream=watch"
	case CBOR:
		return runtime.ContentTypeCBORSequence
	}
	return m.ContentType()
}

// EventMedia returns the part of a media type that matters for watch events. They are neither indented nor compressed.
func (m Media) EventMedia() Media {
	m.Pretty, m.Codings = false, ""
	return m
}

// asJSON returns the media type with JSON as its format.
func (m Media) asJSON() Media {
	m.Format = JSON
	return m
}

// AppendEvent appends a watch event for an entry. headings includes the columns of a table, which only the first event
// of a stream has.
func (m Media) AppendEvent(
	to []byte,
	t watch.EventType,
	s Served,
	e *cache.Entry,
	rows metav1.IncludeObjectPolicy,
	headings bool,
) ([]byte, error) {
	if m.Format == Protobuf {
		object, err := m.AppendEntry(nil, s, e, rows, headings)
		if err != nil {
			return to, err
		}
		return appendFrame(to, t, object)
	}
	if m.Format == CBOR {
		event, err := m.asJSON().AppendEvent(nil, t, s, e, rows, headings)
		if err != nil {
			return to, err
		}
		return appendCBOR(to, event)
	}
	to = append(to, `{"type":"`...)
	to = append(to, t...)
	to = append(to, `","object":`...)
	to, err := m.AppendEntry(to, s, e, rows, headings)
	return append(to, "}\n"...), err
}

// AppendStatus appends an error as a watch event.
func (m Media) AppendStatus(to []byte, status metav1.Status) ([]byte, error) {
	status.Kind, status.APIVersion = "Status", "v1"
	if m.Format == Protobuf {
		raw, err := status.Marshal()
		if err != nil {
			return to, err
		}
		return appendFrame(to, watch.Error, appendEnvelope(nil, schema.GroupVersionKind{Version: "v1", Kind: "Status"},
			raw))
	}
	event := append(appendValue([]byte(`{"type":"ERROR","object":`), status), "}\n"...)
	if m.Format == CBOR {
		return appendCBOR(to, event)
	}
	return append(to, event...), nil
}

// AppendBookmark appends a bookmark event, with the revision that the watch has reached. initial marks the end of the
// initial events.
func (m Media) AppendBookmark(to []byte, s Served, revision string, initial bool) ([]byte, error) {
	if m.Format == CBOR {
		event, err := m.asJSON().AppendBookmark(nil, s, revision, initial)
		if err != nil {
			return to, err
		}
		return appendCBOR(to, event)
	}
	meta := metav1.ObjectMeta{ResourceVersion: revision}
	if initial {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	gvk := s.Version()
	if m.Shape != "" && m.Shape != "Table" {
		gvk = m.partialKind(false)
	}
	if m.Format == Protobuf {
		// Metadata is field 1 of every object, so this encodes an empty object of any kind.
		raw, err := (&metav1.PartialObjectMetadata{ObjectMeta: meta}).Marshal()
		if err != nil {
			return to, err
		}
		return appendFrame(to, watch.Bookmark, appendEnvelope(nil, gvk, raw))
	}
	version, kind := gvk.ToAPIVersionAndKind()
	object := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":`, kind, version)
	object = append(appendValue(object, meta), '}')
	to = append(to, `{"type":"BOOKMARK","object":`...)
	if m.Shape == "Table" {
		to = m.appendTableHead(to, s, revision, "", nil, false)
		to = append(to, `{"cells":[],"object":`...)
		to = append(to, object...)
		to = append(to, "}]}"...)
	} else {
		to = append(to, object...)
	}
	return append(to, "}\n"...), nil
}

// appendFrame appends a protobuf watch event, preceded by its length.
func appendFrame(to []byte, t watch.EventType, object []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: string(t)}
	event.Object.Raw = object
	data, err := event.Marshal()
	if err != nil {
		return to, fmt.Errorf("encode a watch event: %w", err)
	}
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	return append(to, data...), nil
}
