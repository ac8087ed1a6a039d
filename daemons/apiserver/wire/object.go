package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/objectjson"
)

// partialKind returns the kind of the shape with only metadata.
func (m Media) partialKind(list bool) schema.GroupVersionKind {
	kind := "PartialObjectMetadata"
	if list {
		kind = "PartialObjectMetadataList"
	}
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: m.Version, Kind: kind}
}

// AppendEntry appends one object in the form of the response. rows is how much of the object the rows of a table
// include.
func (m Media) AppendEntry(
	to []byte,
	s Served,
	e *cache.Entry,
	rows metav1.IncludeObjectPolicy,
	headings bool,
) ([]byte, error) {
	switch {
	case m.Shape == "Table":
		to = m.appendTableHead(to, s, strconv.FormatInt(e.Revision, 10), "", nil, headings)
		to, err := appendRow(to, m, s, e, rows)
		return append(to, "]}"...), err
	case m.Shape != "" && m.Format == Protobuf:
		raw, err := protobufMetadata(e)
		return appendEnvelope(to, m.partialKind(false), raw), err
	case m.Shape != "":
		return m.appendPartial(to, e), nil
	case m.Format == Protobuf:
		raw, err := s.protobufOf(e)
		return appendEnvelope(to, s.Version(), raw), err
	}
	return s.AppendJSON(to, e)
}

func (m Media) appendPartial(to []byte, e *cache.Entry) []byte {
	to = append(to, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	to = append(to, m.Version...)
	to = append(to, `","metadata":`...)
	to = e.AppendMetadata(to)
	return append(to, '}')
}

// WriteEntry answers with one object.
func (m Media) WriteEntry(
	w http.ResponseWriter,
	code int,
	s Served,
	e *cache.Entry,
	rows metav1.IncludeObjectPolicy,
) error {
	if m.Format == Protobuf && m.Shape == "" && !s.HasProtobuf() {
		m.Format = JSON
	}
	pooled := responseBuffers.Get().(*[]byte)
	defer responseBuffers.Put(pooled)
	data, err := m.AppendEntry((*pooled)[:0], s, e, rows, true)
	if err != nil {
		return err
	}
	if cap(data) <= maxPooledBuffer {
		*pooled = data
	}
	return m.writeEncoded(w, code, data)
}

var responseBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBuffer is the largest buffer, in bytes, that is kept for later responses.
const maxPooledBuffer = 64 << 10

// WriteObject answers with an object that is not in the cache. It does not support tables or partial metadata.
func (m Media) WriteObject(w http.ResponseWriter, code int, gvk schema.GroupVersionKind, obj runtime.Object) error {
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if m.Format == Protobuf {
		if raw, err := ProtobufOf(obj); err == nil {
			return m.writeEncoded(w, code, appendEnvelope(nil, gvk, raw))
		}
		m.Format = JSON
	}
	data, err := objectjson.Append(nil, obj)
	if err != nil {
		return fmt.Errorf("encode a %s: %w", gvk.Kind, err)
	}
	return m.writeEncoded(w, code, data)
}

// WriteRow answers with an object that is not in the cache, or with its row if the client asks for a table.
func (m Media) WriteRow(
	w http.ResponseWriter,
	code int,
	gvk schema.GroupVersionKind,
	obj runtime.Object,
	columns []metav1.TableColumnDefinition,
	cells ...[]any,
) error {
	switch m.Shape {
	case "Table":
	case "":
		return m.WriteObject(w, code, gvk, obj)
	default:
		return m.writePartial(w, code, obj)
	}
	table := metav1.Table{ColumnDefinitions: columns, Rows: make([]metav1.TableRow, 0, len(cells))}
	table.SetGroupVersionKind(schema.GroupVersionKind{Group: metav1.GroupName, Version: m.Version, Kind: "Table"})
	for _, row := range cells {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: row})
	}
	data, err := json.Marshal(table)
	if err != nil {
		return fmt.Errorf("encode a table: %w", err)
	}
	return m.writeEncoded(w, code, data)
}

// writePartial answers with the metadata of an object, or of the objects of a list, that is not in the cache.
func (m Media) writePartial(w http.ResponseWriter, code int, obj runtime.Object) error {
	only := func(o metav1.Object) (p metav1.PartialObjectMetadata) {
		p.ObjectMeta = metav1.ObjectMeta{
			Name:              o.GetName(),
			Namespace:         o.GetNamespace(),
			UID:               o.GetUID(),
			ResourceVersion:   o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		}
		p.SetGroupVersionKind(m.partialKind(false))
		return p
	}
	if o, err := meta.Accessor(obj); err == nil {
		p := only(o)
		return m.WriteObject(w, code, m.partialKind(false), &p)
	}
	list := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{}}
	if err := meta.EachListItem(obj, func(item runtime.Object) error {
		o, err := meta.Accessor(item)
		if err == nil {
			list.Items = append(list.Items, only(o))
		}
		return err
	}); err != nil {
		return fmt.Errorf("take the metadata of a list: %w", err)
	}
	return m.WriteObject(w, code, m.partialKind(true), list)
}

// writeEncoded writes finished JSON or protobuf, after converting JSON to the requested format.
func (m Media) writeEncoded(w http.ResponseWriter, code int, data []byte) error {
	switch {
	case m.Format == YAML:
		text, err := yaml.JSONToYAML(data)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		data = text
	case m.Format == CBOR:
		text, err := appendCBOR(nil, data)
		if err != nil {
			return err
		}
		data = text
	case m.Format == JSON && m.Pretty:
		var out bytes.Buffer
		if err := json.Indent(&out, data, "", "  "); err == nil {
			data = append(out.Bytes(), '\n')
		}
	case m.Format == JSON:
		data = append(data, '\n')
	}
	w.Header().Set("Content-Type", m.ContentType())
	if shouldGzip(len(data), m.Codings) {
		return writeGzip(w, func(z io.Writer) error {
			w.WriteHeader(code)
			_, err := z.Write(data)
			return err
		})
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	_, err := w.Write(data)
	return err
}
