package wire

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/kinds"
)

// Served is a kind as served in one group version: its own, or that of an alias.
type Served struct {
	*kinds.Kind
	Alias *kinds.Alias // nil for the kind's own group version
}

// Version returns the group, version and kind that clients see.
func (s Served) Version() schema.GroupVersionKind {
	if s.Alias != nil {
		return s.Alias.GVK
	}
	return s.GVK
}

// Name returns the resource that clients see.
func (s Served) Name() schema.GroupVersionResource {
	name := s.Resource
	if s.Alias != nil && s.Alias.Resource != "" {
		name = s.Alias.Resource
	}
	return s.Version().GroupVersion().WithResource(name)
}

// NewObject returns a new object of the version that clients see.
func (s Served) NewObject() runtime.Object {
	if s.Alias != nil {
		return s.Alias.New()
	}
	return s.New()
}

// ToStored converts an object that a client sent to the stored version.
func (s Served) ToStored(obj runtime.Object) (runtime.Object, error) {
	if s.Alias == nil {
		return obj, nil
	}
	hub, err := s.Alias.ToHub(obj)
	if err != nil {
		return nil, fmt.Errorf("convert a %s: %w", s.Alias.GVK, err)
	}
	hub.GetObjectKind().SetGroupVersionKind(s.GVK)
	return hub, nil
}

// ToServed converts a stored object to the version that clients see.
func (s Served) ToServed(hub runtime.Object) (runtime.Object, error) {
	if s.Alias == nil {
		return hub, nil
	}
	obj, err := s.Alias.FromHub(hub)
	if err != nil {
		return nil, fmt.Errorf("convert a %s to %s: %w", s.GVK.Kind, s.Alias.GVK, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(s.Alias.GVK)
	return obj, nil
}

// DecodeEntry returns an entry's object in the version that clients see.
func (s Served) DecodeEntry(e *cache.Entry) (runtime.Object, error) {
	hub, err := e.Object()
	if err != nil {
		return nil, err
	}
	return s.ToServed(hub)
}

// AppendJSON appends an entry's JSON in the version that clients see.
func (s Served) AppendJSON(to []byte, e *cache.Entry) ([]byte, error) {
	if s.Alias == nil {
		return e.AppendJSON(to), nil
	}
	view := func(e *cache.Entry) ([]byte, error) {
		obj, err := s.DecodeEntry(e)
		if err != nil {
			return nil, err
		}
		return objectjson.Append(nil, obj)
	}
	if s.Alias != &s.Aliases[0] { // only the first alias is cached; kinds with more are rare
		data, err := view(e)
		return append(to, data...), err
	}
	data, err := e.Encoding(cache.AliasJSON, view)
	return append(to, data...), err
}

// marshaller is implemented by types with a protobuf form.
type marshaller interface{ Marshal() ([]byte, error) }

// protobufOf returns the entry's protobuf message, without the envelope.
func (s Served) protobufOf(e *cache.Entry) ([]byte, error) {
	form := cache.Protobuf
	if s.Alias != nil {
		form = cache.AliasProtobuf
	}
	return e.Encoding(form, func(e *cache.Entry) ([]byte, error) {
		obj, err := s.DecodeEntry(e)
		if err != nil {
			return nil, err
		}
		return ProtobufOf(obj)
	})
}

func protobufMetadata(e *cache.Entry) ([]byte, error) {
	return e.Encoding(cache.ProtobufMetadata, func(e *cache.Entry) ([]byte, error) {
		p, err := partialMetadata(e)
		if err != nil {
			return nil, err
		}
		return p.Marshal()
	})
}

func partialMetadata(e *cache.Entry) (*metav1.PartialObjectMetadata, error) {
	obj, err := e.Object()
	if err != nil {
		return nil, err
	}
	p := &metav1.PartialObjectMetadata{}
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *meta
		}
	} else if err := objectjson.Read(e.AppendMetadata(nil), &p.ObjectMeta); err != nil {
		return nil, fmt.Errorf("read the metadata of the %s %s: %w", e.Kind().GVK.Kind, e.Key, err)
	}
	return p, nil
}

// ProtobufOf returns an object's protobuf message.
func ProtobufOf(obj runtime.Object) ([]byte, error) {
	m, ok := obj.(marshaller)
	if !ok {
		return nil, notAcceptable(fmt.Sprintf("%T has no protobuf form", obj))
	}
	return m.Marshal()
}

// HasProtobuf reports whether the served version has a protobuf form.
func (s Served) HasProtobuf() bool {
	_, ok := s.NewObject().(marshaller)
	return ok
}
