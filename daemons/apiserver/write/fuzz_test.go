package write

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// typedKinds are the kinds whose objects are decoded to Go types.
var typedKinds = kinds.All()

// requestFor returns a request for a kind.
func requestFor(k *kinds.Kind, query url.Values, contentType string) *request.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	if contentType != "" {
		r.Header["Content-Type"] = []string{contentType}
	}
	q := &request.Request{HTTP: r, Answer: &request.Answer{}, Query: query}
	q.Answer.ResponseWriter, q.Served = httptest.NewRecorder(), wire.Served{Kind: k}
	q.Verb = "create"
	return q
}

// mustBeClientError fails the test if an error is not a client error (4xx).
func mustBeClientError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) || apiStatus.Status().Code < 400 || apiStatus.Status().Code >= 500 {
		t.Errorf("what a client sent is answered with %v", err)
	}
}

// checkWriteSteps performs the steps of a write that depend only on the object.
func checkWriteSteps(t *testing.T, k *kinds.Kind, obj runtime.Object) {
	t.Helper()
	if k.Default != nil {
		k.Default(obj)
	}
	old := obj.DeepCopyObject()
	if k.PrepareCreate != nil {
		k.PrepareCreate(obj)
	}
	if k.Validate != nil {
		k.Validate(obj)
	}
	if k.PrepareUpdate != nil {
		k.PrepareUpdate(obj, old)
	}
	if k.ValidateUpdate != nil {
		k.ValidateUpdate(obj, old)
	}
	if k.Status != nil {
		k.Status.Copy(obj, old)
		if k.Status.Validate != nil {
			k.Status.Validate(obj, old)
		}
	}
	if k.Warnings != nil {
		k.Warnings(obj, nil)
	}
	if k.Fields != nil {
		k.Fields(obj)
	}
	if k.Scale != nil {
		k.Scale.Get(obj)
	}
	if k.Row != nil {
		k.Row(obj)
	}
	for i := range k.Aliases {
		view, err := k.Aliases[i].FromHub(obj)
		if err != nil {
			continue
		}
		if _, err := k.Aliases[i].ToHub(view); err != nil {
			continue
		}
		if k.Aliases[i].Checks != nil {
			k.Aliases[i].Checks(obj, nil)
			k.Aliases[i].Checks(obj, old)
		}
	}
	m, err := meta.Accessor(obj)
	if k.Virtual || err != nil {
		return
	}
	m.SetUID("a") // stored objects have a UID
	data, err := cache.Encode(k, obj)
	if err != nil {
		return // a time or quantity that cannot be encoded is refused before it is stored
	}
	e, err := cache.NewEntry(k, "a/b", data, 1, nil)
	if err != nil {
		t.Errorf("what was encoded cannot be read again: %v", err)
		return
	}
	media := wire.Media{}
	for _, f := range []wire.Format{wire.JSON, wire.Protobuf, wire.CBOR} {
		media.Format = f
		if err := media.WriteEntry(httptest.NewRecorder(), http.StatusOK, wire.Served{Kind: k}, e,
			metav1.IncludeObject); err != nil {
			t.Logf("not sent: %v", err)
		}
	}
}

// fuzzDecoder fuzzes a decoder and the steps that follow it, for any kind.
func fuzzDecoder(f *testing.F, contentType string, samples ...[]byte) {
	for i := range typedKinds {
		f.Add(uint8(i), []byte(`{"metadata":{"name":"a"},"spec":{}}`))
	}
	for _, s := range samples {
		for i, k := range typedKinds {
			if k.GVK.Kind == "Pod" || k.GVK.Kind == "Deployment" {
				f.Add(uint8(i), s)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		k := typedKinds[int(kind)%len(typedKinds)]
		q := requestFor(k, url.Values{}, contentType)
		q.HTTP.Body = http.NoBody
		var err error
		obj := k.New()
		switch contentType {
		case runtime.ContentTypeProtobuf:
			err = body.DecodeProtobuf(data, k.GVK, obj)
		case runtime.ContentTypeYAML:
			var doubts []error
			if data, doubts, err = body.FromYAML(data); err == nil {
				err = body.DecodeJSON(q, data, k.GVK, obj, doubts)
			}
		case runtime.ContentTypeCBOR:
			if data, err = body.FromCBOR(data); err == nil {
				err = body.DecodeJSON(q, data, k.GVK, obj, nil)
			}
		default:
			err = body.DecodeJSON(q, data, k.GVK, obj, nil)
		}
		mustBeClientError(t, err)
		if err == nil {
			checkWriteSteps(t, k, obj)
		}
	})
}

const fuzzPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"},"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"b","uid":"c"}]},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"a"}]}}`

func FuzzDecodeJSON(f *testing.F) { fuzzDecoder(f, runtime.ContentTypeJSON, []byte(fuzzPod)) }

func FuzzDecodeYAML(f *testing.F) {
	fuzzDecoder(f, runtime.ContentTypeYAML, []byte(
		"metadata: {name: a}\nspec:\n  containers:\n  - &x {name: c, image: i}\n"))
}

func FuzzDecodeCBOR(f *testing.F) {
	fuzzDecoder(f, runtime.ContentTypeCBOR, []byte("\xd9\xd9\xf7\xa1\x44spec\xa0"),
		[]byte("\xa2\x44kind\x43Pod\x48metadata\xa1\x44name\x41a"))
}

func FuzzDecodeProtobuf(f *testing.F) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(fuzzPod), pod); err != nil {
		f.Fatal(err)
	}
	raw, err := pod.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	whole, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	fuzzDecoder(f, runtime.ContentTypeProtobuf, append([]byte("k8s\x00"), whole...), []byte("k8s\x00"))
}

// FuzzPatch applies patches of three types to a pod.
func FuzzPatch(f *testing.F) {
	f.Add(uint8(0),
		[]byte(`[{"op":"add","path":"/metadata/labels/c","value":"d"},{"op":"move","from":"/spec","path":"/status"}]`))
	f.Add(uint8(1), []byte(`{"metadata":{"labels":null},"spec":{"containers":[]}}`))
	f.Add(
		uint8(2),
		[]byte(
			`{"spec":{"containers":[{"name":"c","$patch":"delete"},{"name":"d"}],"$setElementOrder/containers":[{"name":"d"}],"$retainKeys":["containers"]}}`,
		),
	)
	f.Add(uint8(2), []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]},"$patch":"replace"}`))
	patchTypes := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType}
	var pods *kinds.Kind
	for _, k := range typedKinds {
		if k.GVK.Kind == "Pod" {
			pods = k
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, patch []byte) {
		q := requestFor(pods, url.Values{}, "")
		patchType := patchTypes[int(kind)%len(patchTypes)]
		doubts, err := patchStrictErrors(q, patch, patchType)
		mustBeClientError(t, err)
		if err != nil {
			return
		}
		after, err := applyPatch([]byte(fuzzPod), patch, patchType, &corev1.Pod{})
		var apiStatus apierrors.APIStatus
		if errors.As(err, &apiStatus) && apiStatus.Status().Code == http.StatusInternalServerError &&
			patchType == types.StrategicMergePatchType {
			return // errors in directives are reported as upstream does
		}
		mustBeClientError(t, err)
		if err != nil {
			return
		}
		pod := &corev1.Pod{}
		err = body.DecodeJSON(q, after, pods.GVK, pod, doubts)
		mustBeClientError(t, err)
		if err == nil {
			checkWriteSteps(t, pods, pod)
		}
	})
}

// FuzzQuery parses query parameters and headers.
func FuzzQuery(f *testing.F) {
	f.Add("x", "application/json;as=Table;v=v1;g=meta.k8s.io, */*;q=0.1", "application/apply-patch+yaml; charset=utf-8",
		"Exact")
	f.Add("1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "",
		"NotOlderThan")
	f.Fuzz(func(t *testing.T, text, accept, contentType, match string) {
		query := url.Values{
			"continue":             {text},
			"resourceVersionMatch": {match},
			"resourceVersion":      {text},
			"dryRun":               {match},
			"fieldManager":         {text},
			"limit":                {match},
		}
		q := requestFor(typedKinds[0], query, contentType)
		q.HTTP.Header["Accept"] = []string{accept}
		_, err := wire.Negotiate(q.HTTP, true, true)
		mustBeClientError(t, err)
		_, err = q.ListOptions()
		mustBeClientError(t, err)
		for _, verb := range []string{"create", "update", "patch"} {
			q.Verb = verb
			mustBeClientError(t, q.WriteOptions())
		}
	})
}
