package cache

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/kinds"
)

// Entry is one object at one revision. It is immutable. Its JSON is that of the store, without the resource version,
// which is inserted when the object is sent. Other forms are made at first use, and shared by all readers. The protobuf
// form is kept as long as the entry is current; other forms are weak references, which the garbage collector may clear.
type Entry struct {
	Key           string // namespace/name, or name
	Namespace     string
	Name          string
	Revision      int64
	Labels        labels.Set
	encoded       []byte      // without resourceVersion; nil when it is in a parcel
	Stale         bool        // whether the store has it in another encoding
	versionOffset int16       // offset in the JSON where resourceVersion is inserted
	isSuperseded  atomic.Bool // whether the object was replaced or deleted, so that only the log has this entry

	block     *compressedBlock
	blockSpan span        // position of the JSON in the parcel
	kind      *kinds.Kind // the version of the object
	resource  *Resource   // notified if the object cannot be decoded; may be nil
	values    []string    // names and values of the kind's selectable fields, ordered by name

	forms entryForms
}

// entryForms are the other forms of an entry.
type entryForms struct {
	// the decoded object, for pinnedResources, which almost every request reads
	pinned    atomic.Pointer[runtime.Object]
	decoded   atomic.Pointer[weak.Pointer[runtime.Object]]
	encodings [formCount]atomic.Pointer[weak.Pointer[[]byte]]
	protobuf  atomic.Pointer[[]byte]   // the protobuf form, from which watches and lists of daemons are made
	versions  atomic.Pointer[[]*Entry] // the same object in other versions
}

// Form is a further encoding of an entry that is shared between readers.
type Form int

// The forms.
const (
	Protobuf         Form = iota
	ProtobufMetadata      // protobuf of a PartialObjectMetadata
	AliasJSON             // JSON in the kind's first alias
	AliasProtobuf
	formCount
)

// Encode returns the JSON of an object in its stored form, without resource version. While it runs it clears the
// object's own resource version, and then restores it.
func Encode(k *kinds.Kind, obj runtime.Object) ([]byte, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("encode a %s: %w", k.GVK.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(k.GVK)
	version, link := m.GetResourceVersion(), m.GetSelfLink()
	m.SetResourceVersion("")
	m.SetSelfLink("")
	var data []byte
	if u, ok := obj.(*unstructured.Unstructured); ok {
		data, err = encodeUntyped(u)
	} else {
		err = objectjson.With(obj, func(text []byte) error {
			data = bytes.Clone(text)
			return nil
		})
	}
	m.SetResourceVersion(version)
	m.SetSelfLink(link)
	if err != nil {
		return nil, fmt.Errorf("encode the %s %s: %w", k.GVK.Kind, m.GetName(), err)
	}
	return data, nil
}

// NewEntry returns the entry of a stored value. obj is the decoded object, if the caller has it; the caller must not
// change it any more. Otherwise obj is nil.
func NewEntry(k *kinds.Kind, key string, data []byte, revision int64, obj runtime.Object) (*Entry, error) {
	e := &Entry{Key: key, Name: key, Revision: revision, encoded: data, kind: k}
	for i := range key {
		if key[i] == '/' {
			e.Namespace, e.Name = key[:i], key[i+1:]
		}
	}
	decoded := obj != nil
	if !decoded && e.shallow() {
		return e, nil
	}
	if !decoded {
		var err error
		if obj, k, err = decode(k, data); err != nil {
			return nil, fmt.Errorf("decode the %s %s: %w", k.GVK.Kind, key, err)
		}
		e.kind = k
		if err := e.checkStoredKind(obj); err != nil {
			return nil, err
		}
	}
	completed := false
	if u, ok := obj.(*unstructured.Unstructured); ok && decoded && k.Untyped != nil && k.Untyped.Complete != nil {
		if whole := k.Untyped.Complete(u); whole != u {
			obj, completed = whole, true
		}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the %s %s: %w", k.GVK.Kind, key, err)
	}
	if completed || m.GetResourceVersion() != "" || !e.locateVersion() || k.Untyped != nil && !decoded ||
		e.readLabels() != nil {
		// Another program wrote it: encode it again, so that resourceVersion can be inserted.
		if e.encoded, err = Encode(k, obj); err != nil {
			return nil, err
		}
		e.Stale = !bytes.Equal(e.encoded, data)
		if !e.locateVersion() {
			return nil, fmt.Errorf("the %s %s has no metadata", k.GVK.Kind, key)
		}
		if err := e.readLabels(); err != nil {
			return nil, err
		}
	}
	if k.Fields != nil {
		e.indexFields(k.Fields(obj))
	}
	m.SetResourceVersion(formatRevision(revision))
	obj.GetObjectKind().SetGroupVersionKind(k.GVK)
	e.cacheDecoded(obj)
	return e, nil
}

// checkStoredKind returns an error if the stored object is of another kind. Decoded as this kind, it would have no
// fields, and its UID would not match the owner references of its dependents.
func (e *Entry) checkStoredKind(obj runtime.Object) error {
	gvk, want := obj.GetObjectKind().GroupVersionKind(), e.kind.GVK
	if gvk.GroupKind() != want.GroupKind() || e.kind.Untyped == nil && gvk.Version != want.Version {
		return fmt.Errorf("the %s %s is stored as kind %q of %q", want.Kind, e.Key, gvk.Kind, gvk.GroupVersion())
	}
	return nil
}

// locateVersion finds where the resource version is inserted. Objects are encoded from typed structs, so metadata comes
// right after kind and apiVersion.
func (e *Entry) locateVersion() bool {
	const start = `"metadata":{`
	at := bytes.Index(e.encoded, []byte(start))
	if at < 0 || at > 200 || bytes.IndexByte(e.encoded[1:at], '{') >= 0 {
		return false
	}
	at += len(start)
	e.versionOffset = int16(at)
	return at < len(e.encoded) && e.encoded[at] == '"'
}

func formatRevision(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// encodeUntyped encodes an object in the order of typed objects: kind, apiVersion and metadata come first.
func encodeUntyped(u *unstructured.Unstructured) ([]byte, error) {
	rest := maps.Clone(u.Object)
	for _, name := range []string{"kind", "apiVersion", "metadata"} {
		delete(rest, name)
	}
	tail, err := objectjson.Marshal(rest)
	if err != nil {
		return nil, err
	}
	metadata, err := objectjson.Marshal(u.Object["metadata"])
	if err != nil {
		return nil, err
	}
	data := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s`, u.GetKind(), u.GetAPIVersion(), metadata)
	if len(rest) > 0 {
		data = append(data, ',')
	}
	return append(data, tail[1:]...), nil
}

// decode decodes an object. If it was stored in another version and only a webhook can convert it, it stays in that
// version. Readers convert it when they need to.
func decode(k *kinds.Kind, data []byte) (runtime.Object, *kinds.Kind, error) {
	obj := k.New()
	if err := objectjson.Read(data, obj); err != nil || k.Untyped == nil {
		return obj, k, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if family := k.Untyped.Family; family.CallWebhook != nil {
			if before := family.Version(u.GroupVersionKind().Version); before != nil {
				k = before
			}
		}
		k.Untyped.Read(u)
	}
	return obj, k, nil
}

// JSON returns the stored JSON of the object, without its resource version. It must not be changed.
func (e *Entry) JSON() []byte {
	if e.block != nil {
		return e.block.text()[e.blockSpan.from:e.blockSpan.to]
	}
	return e.encoded
}

// Size returns the length of the JSON, in bytes.
func (e *Entry) Size() int {
	if e.block != nil {
		return int(e.blockSpan.to - e.blockSpan.from)
	}
	return len(e.encoded)
}

// AppendJSON appends the object's JSON with its resource version. Revision 0, of an object that was not stored, is left
// out.
func (e *Entry) AppendJSON(to []byte) []byte {
	text := e.JSON()
	if e.Revision == 0 {
		return append(to, text...)
	}
	to = append(to, text[:e.versionOffset]...)
	to = append(to, `"resourceVersion":"`...)
	to = strconv.AppendInt(to, e.Revision, 10)
	to = append(to, `",`...)
	return append(to, text[e.versionOffset:]...)
}

// AppendMetadata appends the JSON of the object's metadata with its resource version.
func (e *Entry) AppendMetadata(to []byte) []byte {
	to = append(to, '{')
	if e.Revision != 0 {
		to = append(to, `"resourceVersion":"`...)
		to = strconv.AppendInt(to, e.Revision, 10)
		to = append(to, `",`...)
	}
	inside := e.JSON()[e.versionOffset:]
	return append(to, inside[:objectEnd(inside)]...)
}

// objectEnd returns the offset after the end of a JSON object. data begins after the object's opening brace.
func objectEnd(data []byte) int {
	depth, quoted := 1, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(data)
}

// Object returns the decoded object, with resource version and kind set. It is shared and must not be changed. An entry
// that was read shallowly may turn out to be undecodable. Then this call fails, and so do all later reads of the
// object.
func (e *Entry) Object() (runtime.Object, error) {
	if obj := e.forms.pinned.Load(); obj != nil {
		return *obj, nil
	}
	if w := e.forms.decoded.Load(); w != nil {
		if obj := w.Value(); obj != nil {
			return *obj, nil
		}
	}
	obj, _, err := decode(e.kind, e.JSON())
	if err != nil {
		return nil, e.decodeFailed(err)
	}
	if m, err := meta.Accessor(obj); err == nil {
		m.SetResourceVersion(formatRevision(e.Revision))
	}
	obj.GetObjectKind().SetGroupVersionKind(e.kind.GVK)
	e.cacheDecoded(obj)
	return obj, nil
}

func (e *Entry) cacheDecoded(obj runtime.Object) {
	if e.kind.Untyped == nil && pinnedResources[e.kind.Resource] {
		e.forms.pinned.Store(&obj)
		return
	}
	w := weak.Make(&obj)
	e.forms.decoded.Store(&w)
}

// pinnedResources names the built-in resources whose objects are decoded at once and stay decoded. They are few, and
// authorization or admission reads them on every request. Decoding them early means that unreadable ones are known
// before any decision depends on them.
var pinnedResources = map[string]bool{
	"roles": true, "rolebindings": true, "clusterroles": true, "clusterrolebindings": true,
	"namespaces": true, "serviceaccounts": true, "priorityclasses": true, "limitranges": true,
	"resourcequotas": true, "runtimeclasses": true, "storageclasses": true,
	"validatingwebhookconfigurations": true, "mutatingwebhookconfigurations": true,
	"customresourcedefinitions": true, "apiservices": true,
	"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true, "ingressclasses": true,
	"flowschemas": true, "prioritylevelconfigurations": true,
}

// Encoding returns a further encoding. It calls make if there is none yet, or if the garbage collector has cleared it.
func (e *Entry) Encoding(f Form, make func(*Entry) ([]byte, error)) ([]byte, error) {
	if f == Protobuf {
		if data := e.forms.protobuf.Load(); data != nil {
			return *data, nil
		}
	}
	if w := e.forms.encodings[f].Load(); w != nil {
		if data := w.Value(); data != nil {
			return *data, nil
		}
	}
	data, err := make(e)
	if err != nil {
		return nil, err
	}
	if f == Protobuf && !e.isSuperseded.Load() {
		e.forms.protobuf.Store(&data)
		return data, nil
	}
	w := weak.Make(&data)
	e.forms.encodings[f].Store(&w)
	return data, nil
}

// supersede is called when the entry has been replaced or removed. Watches read it for a short time only.
func (e *Entry) supersede() {
	e.isSuperseded.Store(true)
	e.forms.protobuf.Store(nil)
}

// Field returns the value of a selectable field; false if the kind has no such field.
func (e *Entry) Field(name string) (string, bool) {
	switch name {
	case "metadata.name":
		return e.Name, true
	case "metadata.namespace":
		return e.Namespace, true
	}
	for i := 0; i < len(e.values); i += 2 {
		if e.values[i] == name {
			return e.values[i+1], true
		}
	}
	return "", false
}

// Fields returns the entry's fields for field selectors.
func (e *Entry) Fields() fields.Fields { return selectableFields{e} }

type selectableFields struct{ e *Entry }

func (s selectableFields) Has(name string) bool { _, ok := s.e.Field(name); return ok }
func (s selectableFields) Get(name string) string {
	v, _ := s.e.Field(name)
	return v
}

// withRevision returns the same object under another revision, for the event that reports its deletion.
func (e *Entry) withRevision(revision int64) *Entry {
	left := &Entry{
		Key: e.Key, Namespace: e.Namespace, Name: e.Name, Revision: revision,
		Labels: e.Labels, encoded: e.encoded, block: e.block, blockSpan: e.blockSpan, versionOffset: e.versionOffset,
		kind:   e.kind,
		values: e.values,
	}
	left.isSuperseded.Store(true)
	return left
}
