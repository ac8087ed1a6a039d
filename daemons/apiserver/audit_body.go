package apiserver

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds/quantity"
)

// recordBodies is the stage that records the request body, and prepares recording of the response body, where the
// policy asks for it. It runs after authorization and flow control, so that refused requests cost no memory.
func (a *auditing) recordBodies(q *request.Request) error {
	if !q.Resource || q.IsLongRunning() {
		return nil
	}
	record := q.Answer.Audit
	sent, answer := record.RecordsBodies()
	if !sent {
		return nil
	}
	if answer {
		q.Answer.CopyTo(record.RecordResponseBody())
		q.HTTP.Header.Del("Accept-Encoding")
	}
	switch q.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return nil
	}
	data, err := io.ReadAll(q.HTTP.Body)
	if err != nil {
		return err
	}
	q.HTTP.Body = io.NopCloser(bytes.NewReader(data))
	record.SetRequestBody(a.bodyJSON(record, q.HTTP.Header.Get("Content-Type"), data))
	return nil
}

// recordBodiesFast is recordBodies, which never waits on the fast path: a read has no body.
func (a *auditing) recordBodiesFast(q *request.Request) bool { return a.recordBodies(q) == nil }

// bodyJSON returns a body as JSON. It returns nil if the body is empty or has an unsupported encoding.
func (a *auditing) bodyJSON(record *audit.Record, kind string, data []byte) *runtime.Unknown {
	kind, _, _ = mime.ParseMediaType(kind)
	switch {
	case len(data) == 0:
		return nil
	case kind == runtime.ContentTypeProtobuf:
		data = protobufAsJSON(a.scheme, data)
	case strings.Contains(kind, "yaml"):
		text, _, err := body.FromYAML(data)
		if err != nil {
			return nil
		}
		data = text
	}
	if data = bytes.TrimSpace(data); !json.Valid(data) {
		return nil
	}
	if record.OmitsManagedFields() {
		data = withoutManagedFields(data)
	}
	return &runtime.Unknown{Raw: data, ContentType: runtime.ContentTypeJSON}
}

func protobufAsJSON(scheme *runtime.Scheme, data []byte) []byte {
	var unknown runtime.Unknown
	raw, found := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !found || unknown.Unmarshal(raw) != nil {
		return nil
	}
	obj, err := scheme.New(unknown.GroupVersionKind())
	if err != nil {
		return nil
	}
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok || quantity.CheckMessage(unknown.Raw, obj) != nil || message.Unmarshal(unknown.Raw) != nil {
		return nil
	}
	obj.GetObjectKind().SetGroupVersionKind(unknown.GroupVersionKind())
	text, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	return text
}

func withoutManagedFields(data []byte) []byte {
	var obj map[string]any
	if json.Unmarshal(data, &obj) != nil {
		return data
	}
	strip := func(v any) {
		if o, ok := v.(map[string]any); ok {
			if m, ok := o["metadata"].(map[string]any); ok {
				delete(m, "managedFields")
			}
		}
	}
	strip(obj)
	if items, ok := obj["items"].([]any); ok {
		for _, item := range items {
			strip(item)
		}
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return data
	}
	return out
}
