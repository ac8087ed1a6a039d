// Package body reads the bodies of requests, and decodes the objects that clients send.
package body

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds/quantity"
)

// Read reads a request's body. If the length is known it reads into buffer, or into one allocation if buffer is too
// small.
func Read(r *http.Request, buffer []byte) ([]byte, error) {
	if r.ContentLength <= 0 || r.ContentLength > request.MaxBody {
		return io.ReadAll(r.Body)
	}
	data := buffer[:0]
	for int64(len(data)) < r.ContentLength {
		// A large Content-Length costs the client nothing. So allocate at most four times what has arrived, or
		// initialBodySize.
		room := min(r.ContentLength, max(4*int64(len(data)), initialBodySize))
		if int64(cap(data)) < room {
			data = append(make([]byte, 0, room), data...)
		}
		n, err := io.ReadFull(r.Body, data[len(data):min(r.ContentLength, int64(cap(data)))])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // shorter than Content-Length: the decoder will report it
		}
		if err != nil {
			return data, err
		}
	}
	return data, nil
}

// initialBodySize is how many bytes of a body are allocated before any of it arrives.
const initialBodySize = 32 << 10

// ReadObject reads the request body as JSON or protobuf; YAML is converted to JSON. doubts are the errors that
// strict decoding would report.
func ReadObject(q *request.Request) (data []byte, protobuf bool, doubts []error, err error) {
	if data, err = Read(q.HTTP, nil); err != nil {
		return nil, false, nil, fmt.Errorf("read the request: %w", err)
	}
	if len(data) == 0 && q.HTTP.Method == http.MethodDelete {
		return nil, false, nil, nil // delete options that are not sent have no content type
	}
	kind := runtime.ContentTypeJSON
	if header := q.HTTP.Header.Get("Content-Type"); header == runtime.ContentTypeProtobuf {
		return data, true, nil, ReserveParts(q, countProtobufParts(data))
	} else if header != "" && header != kind {
		if kind, _, err = mime.ParseMediaType(header); err != nil {
			return nil, false, nil, UnsupportedMediaType()
		}
	}
	switch kind {
	case runtime.ContentTypeJSON:
		return data, false, nil, ReserveParts(q, CountJSONParts(data))
	case runtime.ContentTypeProtobuf:
		return data, true, nil, ReserveParts(q, countProtobufParts(data))
	case runtime.ContentTypeYAML, "text/yaml", "application/x-yaml":
		if err = ReserveConvertedParts(q, data); err != nil {
			return nil, false, nil, err
		}
		if data, doubts, err = FromYAML(data); err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
			err = apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
		}
	case runtime.ContentTypeCBOR:
		if err = ReserveConvertedParts(q, data); err != nil {
			return nil, false, nil, err
		}
		data, err = FromCBOR(data)
	default:
		return nil, false, nil, UnsupportedMediaType()
	}
	if err != nil {
		return nil, false, nil, err
	}
	return data, false, doubts, ReserveParts(q, CountJSONParts(data))
}

// FromCBOR converts CBOR to JSON.
func FromCBOR(data []byte) ([]byte, error) {
	out, err := wire.FromCBOR(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// UnsupportedMediaType returns the error for a body whose media type is not supported.
func UnsupportedMediaType() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: application/json, " +
			"application/yaml, application/vnd.kubernetes.protobuf, application/cbor",
	}}
}

// Decode reads the body into obj, as an object of the given kind.
func Decode(q *request.Request, gvk schema.GroupVersionKind, obj runtime.Object) error {
	if q.HTTP.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		return decodeMessage(q, gvk, obj)
	}
	data, protobuf, doubts, err := ReadObject(q)
	if err != nil {
		return err
	}
	if protobuf {
		return DecodeProtobuf(data, gvk, obj)
	}
	return DecodeJSON(q, data, gvk, obj, doubts)
}

// DecodeJSON decodes strictly, and handles doubts as the fieldValidation parameter asks.
func DecodeJSON(
	q *request.Request,
	data []byte,
	gvk schema.GroupVersionKind,
	obj runtime.Object,
	doubts []error,
) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		unknown, err := decodeCustom(q, data, gvk, u)
		if err != nil {
			return err
		}
		return reportStrictErrors(q, gvk, append(doubts, unknown...))
	}
	if err := quantity.Check(data, obj); err != nil {
		return newDecodeError(gvk, err)
	}
	policy := q.Query.Get("fieldValidation")
	var unknown []error
	var err error
	if policy == metav1.FieldValidationIgnore {
		err, doubts = kjson.UnmarshalCaseSensitivePreserveInts(data, obj), nil
	} else {
		unknown, err = kjson.UnmarshalStrict(data, obj)
	}
	if err := checkKind(data, gvk, obj, err); err != nil {
		return err
	}
	return reportStrictErrors(q, gvk, append(doubts, unknown...))
}

// reportStrictErrors reports doubts as an error or as warnings, or drops them, as the fieldValidation parameter asks.
func reportStrictErrors(q *request.Request, gvk schema.GroupVersionKind, doubts []error) error {
	if len(doubts) == 0 {
		return nil
	}
	policy := q.Query.Get("fieldValidation")
	switch policy {
	case metav1.FieldValidationIgnore:
	case metav1.FieldValidationStrict:
		return newDecodeError(gvk, runtime.NewStrictDecodingError(doubts))
	default:
		for _, doubt := range doubts {
			q.Answer.WarnStrictError(doubt)
		}
	}
	return nil
}

// DecodeProtobuf decodes a protobuf message with its envelope.
func DecodeProtobuf(data []byte, gvk schema.GroupVersionKind, obj runtime.Object) error {
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return UnsupportedMediaType()
	}
	raw, found := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !found {
		return apierrors.NewBadRequest("the body does not begin as a protobuf object does")
	}
	typeMeta, raw, err := wire.OpenEnvelope(raw)
	if err != nil {
		return newDecodeError(gvk, err)
	}
	if err := checkTypeMeta(metav1.TypeMeta{APIVersion: typeMeta.APIVersion, Kind: typeMeta.Kind}, gvk,
		data); err != nil {
		return err
	}
	if err := quantity.CheckMessage(raw, obj); err != nil {
		return newDecodeError(gvk, err)
	}
	if err := message.Unmarshal(raw); err != nil {
		return newDecodeError(gvk, err)
	}
	return nil
}

var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBody is the largest buffer, in bytes, that is kept for later bodies.
const maxPooledBody = 64 << 10

// decodeMessage decodes a protobuf body. The object shares no memory with the body, so the buffer is pooled.
func decodeMessage(q *request.Request, gvk schema.GroupVersionKind, obj runtime.Object) error {
	pooled := bodyBuffers.Get().(*[]byte)
	defer bodyBuffers.Put(pooled)
	data, err := Read(q.HTTP, *pooled)
	if cap(data) <= maxPooledBody {
		*pooled = data[:0]
	}
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if err := ReserveParts(q, countProtobufParts(data)); err != nil {
		return err
	}
	return DecodeProtobuf(data, gvk, obj)
}
