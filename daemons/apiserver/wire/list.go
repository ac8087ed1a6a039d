package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
)

// List is a page of a list: its objects and its metadata.
type List struct {
	Meta    metav1.ListMeta
	Entries []*cache.Entry
	Rows    metav1.IncludeObjectPolicy // how much of each object the rows of a table include
}

// WriteList answers with a list. It streams the entries' encoded bytes.
func (m Media) WriteList(w http.ResponseWriter, s Served, l List) error {
	if m.Format == Protobuf && m.Shape == "" && !s.HasProtobuf() {
		m.Format = JSON
	}
	if m.Format == YAML || m.Format == CBOR || m.Format == JSON && m.Pretty {
		return m.writeBuffered(w, s, l)
	}
	w.Header().Set("Content-Type", m.ContentType())
	size := 0
	for _, e := range l.Entries {
		size += e.Size()
	}
	if !shouldGzip(size, m.Codings) {
		return m.stream(w, s, l)
	}
	return writeGzip(w, func(z io.Writer) error { return m.stream(z, s, l) })
}

// chunkSize is how many bytes of a list are buffered before they are written.
const chunkSize = 32 << 10

// chunkBuffers is a pool of buffers for lists.
var chunkBuffers = sync.Pool{New: func() any {
	buf := make([]byte, 0, chunkSize+chunkSize/4)
	return &buf
}}

func (m Media) writeBuffered(w http.ResponseWriter, s Served, l List) error {
	var text bytes.Buffer
	plain := m
	plain.Format, plain.Pretty = JSON, false
	if err := plain.stream(&text, s, l); err != nil {
		return err
	}
	return m.writeEncoded(w, http.StatusOK, text.Bytes())
}

// stream writes a list in chunks.
func (m Media) stream(out io.Writer, s Served, l List) error {
	pooled := chunkBuffers.Get().(*[]byte)
	defer chunkBuffers.Put(pooled)
	full := func(buf []byte) ([]byte, error) {
		if cap(buf) <= 4*chunkSize { // keep no buffer that grew for one large object
			*pooled = buf[:0]
		}
		if len(buf) < chunkSize {
			return buf, nil
		}
		_, err := out.Write(buf)
		return buf[:0], err
	}
	var buf []byte
	var err error
	if m.Format == Protobuf {
		buf, err = m.appendProtobuf((*pooled)[:0], full, s, l)
	} else {
		buf, err = m.appendJSON((*pooled)[:0], full, s, l)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(buf)
	return err
}

// appendJSON appends a list to buf. It calls full after each object; full may write the buffer, and returns the one to
// continue with.
func (m Media) appendJSON(buf []byte, full func([]byte) ([]byte, error), s Served, l List) ([]byte, error) {
	gvk := s.ListKind()
	if m.Shape == "Table" {
		buf = m.appendTableHead(buf, s, l.Meta.ResourceVersion, l.Meta.Continue, l.Meta.RemainingItemCount, true)
	} else {
		if m.Shape != "" {
			gvk = m.partialKind(true)
		}
		version, kind := gvk.ToAPIVersionAndKind()
		buf = fmt.Appendf(buf, `{"kind":%q,"apiVersion":%q,"metadata":`, kind, version)
		buf = appendValue(buf, l.Meta)
		buf = append(buf, `,"items":[`...)
	}
	for i, e := range l.Entries {
		if i > 0 {
			buf = append(buf, ',')
		}
		var err error
		switch m.Shape {
		case "Table":
			buf, err = appendRow(buf, m, s, e, l.Rows)
		case "":
			buf, err = s.AppendJSON(buf, e)
		default:
			buf = m.appendPartial(buf, e)
		}
		if err == nil {
			buf, err = full(buf)
		}
		if err != nil {
			return buf, err
		}
	}
	return append(buf, "]}\n"...), nil
}

func (m Media) appendProtobuf(buf []byte, full func([]byte) ([]byte, error), s Served, l List) ([]byte, error) {
	gvk, raw := s.ListKind(), s.protobufOf
	if m.Shape != "" {
		gvk, raw = m.partialKind(true), protobufMetadata
	}
	head, err := l.Meta.Marshal()
	if err != nil {
		return buf, fmt.Errorf("encode a list's metadata: %w", err)
	}
	// The envelope begins with the total length, so all messages are needed first. The cache owns them; only references
	// are collected here.
	size := fieldSize(len(head))
	items := make([][]byte, len(l.Entries))
	for i, e := range l.Entries {
		if items[i], err = raw(e); err != nil {
			return buf, err
		}
		size += fieldSize(len(items[i]))
	}
	buf = appendHead(buf, gvk, size)
	buf = append(buf, typeMetaTag)
	buf = binary.AppendUvarint(buf, uint64(len(head)))
	buf = append(buf, head...)
	for _, item := range items {
		buf = append(buf, rawTag)
		buf = binary.AppendUvarint(buf, uint64(len(item)))
		if buf, err = full(append(buf, item...)); err != nil {
			return buf, err
		}
	}
	return append(buf, envelopeEnd...), nil
}

// ListKind returns the kind of a served kind's lists.
func (s Served) ListKind() schema.GroupVersionKind {
	gvk := s.Version()
	gvk.Kind += "List"
	if s.Untyped != nil { // a CustomResourceDefinition names its list kind
		gvk.Kind = s.NewList().GetObjectKind().GroupVersionKind().Kind
	}
	return gvk
}
