package wire

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
)

// List is a page of a list: which objects, and what its metadata says.
type List struct {
	Meta    metav1.ListMeta
	Entries []*cache.Entry
	Rows    metav1.IncludeObjectPolicy // what a table's rows carry
}

// worthZipping is the size from which a list is compressed for those who accept it.
const worthZipping = 128 << 10

// WriteList answers with a list, streamed from the entries' bytes.
func (m Media) WriteList(w http.ResponseWriter, r *http.Request, s Served, l List) error {
	if m.Format == Protobuf && m.As == "" && !s.HasProtobuf() {
		m.Format = JSON
	}
	if m.Format == YAML || m.Format == CBOR || m.Pretty {
		return m.writeWhole(w, s, l)
	}
	w.Header().Set("Content-Type", m.ContentType())
	size := 0
	for _, e := range l.Entries {
		size += len(e.JSON)
	}
	var to io.Writer = w
	if size > worthZipping && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		z := zips.Get().(*gzip.Writer)
		z.Reset(w)
		defer zips.Put(z)
		defer z.Close()
		to = z
	}
	out := bufio.NewWriterSize(to, 32<<10)
	if err := m.stream(out, s, l); err != nil {
		return err
	}
	return out.Flush()
}

var zips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
	return z
}}

func acceptsGzip(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept-Encoding") {
		for _, coding := range strings.Split(value, ",") {
			if name, _, _ := strings.Cut(strings.TrimSpace(coding), ";"); name == "gzip" {
				return true
			}
		}
	}
	return false
}

func (m Media) writeWhole(w http.ResponseWriter, s Served, l List) error {
	var text strings.Builder
	out := bufio.NewWriter(&text)
	plain := m
	plain.Format, plain.Pretty = JSON, false
	if err := plain.stream(out, s, l); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return m.send(w, http.StatusOK, []byte(text.String()))
}

func (m Media) stream(out *bufio.Writer, s Served, l List) error {
	if m.Format == Protobuf {
		return m.streamProtobuf(out, s, l)
	}
	var buf []byte
	gvk := s.ListKind()
	if m.As == "Table" {
		buf = m.appendTableHead(buf, s, l.Meta.ResourceVersion, l.Meta.Continue, l.Meta.RemainingItemCount, true)
	} else {
		if m.As != "" {
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
		switch m.As {
		case "Table":
			buf, err = appendRow(buf, m, s, e, l.Rows)
		case "":
			buf, err = s.AppendJSON(buf, e)
		default:
			buf = m.appendPartial(buf, e)
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	_, err := out.Write(append(buf, "]}\n"...))
	return err
}

func (m Media) streamProtobuf(out *bufio.Writer, s Served, l List) error {
	gvk, raw := s.ListKind(), s.raw
	if m.As != "" {
		gvk, raw = m.partialKind(true), rawMetadata
	}
	head, err := l.Meta.Marshal()
	if err != nil {
		return fmt.Errorf("encode a list's metadata: %w", err)
	}
	// The envelope says first how long everything is. The messages are held on to
	// meanwhile; they are the cache's own.
	size := fieldSize(len(head))
	items := make([][]byte, len(l.Entries))
	for i, e := range l.Entries {
		if items[i], err = raw(e); err != nil {
			return err
		}
		size += fieldSize(len(items[i]))
	}
	buf := appendHead(nil, gvk, size)
	buf = append(buf, inner1)
	buf = binary.AppendUvarint(buf, uint64(len(head)))
	buf = append(buf, head...)
	for _, item := range items {
		buf = append(buf, inner2)
		buf = binary.AppendUvarint(buf, uint64(len(item)))
		if _, err := out.Write(buf); err != nil {
			return err
		}
		if _, err := out.Write(item); err != nil {
			return err
		}
		buf = buf[:0]
	}
	_, err = out.Write(append(buf, trail...))
	return err
}

// ListKind returns the kind of a served kind's lists.
func (s Served) ListKind() schema.GroupVersionKind {
	gvk := s.Version()
	gvk.Kind += "List"
	if s.Untyped != nil { // a definition names its lists
		gvk.Kind = s.NewList().GetObjectKind().GroupVersionKind().Kind
	}
	return gvk
}
