package objectjson_test

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/kinds"
)

// compareRead checks the decoded object, or the error, against encoding/json's.
func compareRead(t *testing.T, data []byte, like any) {
	t.Helper()
	of := reflect.TypeOf(like).Elem()
	got, want := reflect.New(of).Interface(), reflect.New(of).Interface()
	err, wantErr := objectjson.Read(data, got), json.Unmarshal(data, want)
	if (err != nil) != (wantErr != nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%T of %s: got the error %v, want %v", like, data, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is read as\n%#v\nwant\n%#v", data, got, want)
	}
}

func TestEveryKindDecodesLikeEncodingJSON(t *testing.T) {
	for _, k := range kinds.All() {
		compareRead(t, []byte(`{}`), k.New())
		random := rand.New(rand.NewSource(int64(len(k.Resource))))
		for range 12 {
			obj := k.New()
			data := make([]byte, 4096)
			random.Read(data)
			newFiller(data).Fill(obj)
			text, err := json.Marshal(obj)
			if err != nil {
				continue // some raw texts are not valid
			}
			compareRead(t, text, obj)
		}
	}
}

func TestUnusualTextDecodesLikeEncodingJSON(t *testing.T) {
	for _, text := range []string{
		``, ` `, `null`, `{`, `}`, `[]`, `"a"`, `{} `, ` { } `, `{}{}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"unknown":[1,{"a":[]},"\u00e9\n",-1.5e+3,true,false,null]}`,
		`{"unknown":[1,}`, `{"unknown":01}`, `{"unknown":-}`, `{"unknown":1.}`, `{"unknown":1e}`, `{"unknown":tru}`, `{"unknown":"\x"}`, `{"unknown":"\u12"}`, "{\"unknown\":\"\n\"}",
		`{"text<":"a\"b\\c\u00e9\ud83d\ude00"}`, `{"text\u003c":"a"}`, `{"TEXT<":"a"}`, `{"text<":"a","text<":"b"}`, `{"text<":1}`, `{"text<":null}`, "{\"text<\":\"\xff\xfe\"}", `{"text<":"日本"}`,
		`{"Untold":-3}`, `{"Untold":300}`, `{"Untold":1.0}`, `{"Never":"n"}`, `{"quoted":"7"}`, `{"real":1e30}`, `{"any":{"a":1}}`, `{"array":[true]}`, `{"numbers":{"2":"b"}}`, `{"zero":{"A":"a"}}`,
		`{"when":"2026-01-02T03:04:05Z"}`, `{"when":"x"}`, `{"kind":"K","apiVersion":"v1"}`,
	} {
		compareRead(t, []byte(text), &unusualTypes{})
	}
	for _, text := range []string{
		`{"self":{"items":[]},"items":[{},{"small":[-1,2]},null],"named":{"b":null,"a\n":{}},"raw":1}`, `{"items":null}`, `{"items":{}}`, `{"items":[{}`, `{"items":[{},]}`, `{"items":[1]}`,
		`{"named":{"a":{},"a":{"raw":2}}}`, `{"named":{"a":1}}`, `{"named":[]}`, `{"items":[{"items":[{"items":[]}]}]}`, `{"raw": { "a" : 1 } }`,
	} {
		compareRead(t, []byte(text), &recursiveList{})
	}
	for _, text := range []string{
		`{"name":"a","generation":5,"labels":{"a":"b","a":"c","n":null},"annotations":{}}`, `{"generation":5.0}`, `{"generation":9223372036854775807}`, `{"generation":9223372036854775808}`, `{"generation":-0}`,
		`{"generation":- 5}`, `{"generation":05}`, `{"generation":"5"}`, `{"labels":{"a":1}}`, `{"labels":{"a":"b"`, `{"labels":null}`, `{"creationTimestamp":"2026-02-29T00:00:00Z"}`, `{"creationTimestamp":"2024-02-29T23:59:59Z"}`,
		`{"creationTimestamp":"2024-02-28T24:00:00Z"}`, `{"creationTimestamp":"2024-13-28T00:00:00Z"}`, `{"creationTimestamp":"2024-02-28T00:00:60Z"}`, `{"creationTimestamp":"2024-02-28T00:00:00+02:00"}`,
		`{"creationTimestamp":null}`, `{"creationTimestamp":5}`, `{"managedFields":[{"fieldsV1":{"f:a" : {}},"time":"2026-01-02T03:04:05Z"},{"fieldsV1":null}]}`, `{"managedFields":[{"fieldsV1":{]}]}`,
		`{"ownerReferences":[{"controller":true,"blockOwnerDeletion":null}]}`, `{"ownerReferences":[{"controller":1}]}`, `{"finalizers":[]}`, `{"finalizers":["a",null]}`,
	} {
		compareRead(t, []byte(text), &metav1.ObjectMeta{})
	}
	deep := func(n int) []byte {
		text := []byte(`{"unknown":`)
		for range n {
			text = append(text, '[')
		}
		for range n {
			text = append(text, ']')
		}
		return append(text, '}')
	}
	compareRead(t, deep(400), &recursiveList{})
	compareRead(t, deep(9000), &recursiveList{})
	compareRead(t, deep(11000), &recursiveList{})
	for _, obj := range []any{nil, recursiveList{}, (*recursiveList)(nil)} {
		if objectjson.Read([]byte(`{}`), obj) == nil {
			t.Errorf("a text is read into %#v", obj)
		}
	}
}

func TestReadClearsTheObject(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "before", Labels: map[string]string{"a": "b"}}
	if err := objectjson.Read([]byte(`{"namespace":"n"}`), &meta); err != nil || meta.Name != "" ||
		meta.Labels != nil ||
		meta.Namespace != "n" {
		t.Errorf("read %+v, %v", meta, err)
	}
}

func TestDecodedObjectsDoNotShareTheText(t *testing.T) {
	text := []byte(`{"name":"name","labels":{"key":"value"},"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]}`)
	var got, want metav1.ObjectMeta
	if err := objectjson.Read(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		text[i] = 'x'
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v has changed with the text it was read from", got)
	}
}

// FuzzRead decodes arbitrary text as an object of any kind.
func FuzzRead(f *testing.F) {
	all := kinds.All()
	for i, k := range all {
		obj := k.New()
		newFiller([]byte("some bytes that say what an object of every kind is filled with, and that are long enough " +
			"for most of them")).Fill(obj)
		if text, err := json.Marshal(obj); err == nil {
			f.Add(uint8(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		compareRead(t, text, all[int(kind)%len(all)].New())
	})
}

func BenchmarkRead(b *testing.B) {
	text := []byte(podJSON)
	for _, k := range kinds.All() {
		if k.Resource != "pods" {
			continue
		}
		for name, read := range map[string]func([]byte, any) error{"own": objectjson.Read, "standard": json.Unmarshal} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if err := read(text, k.New()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// podJSON is the stored form of a pod of a Deployment.
const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-5d8f6b9c7-x2k4q","generateName":"web-5d8f6b9c7-","namespace":"default","uid":"3f7c0e58-7f0e-4f0b-9b6e-0f3c6c7a5d21","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","pod-template-hash":"5d8f6b9c7"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d8f6b9c7","uid":"9a0c1b7e-2a4d-4c56-8a3c-0d5e8b1f7c64","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"9a0c1b7e-2a4d-4c56-8a3c-0d5e8b1f7c64\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}]},"spec":{"volumes":[{"name":"kube-api-access-7h2kd","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry/web:1","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"kube-api-access-7h2kd","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Pending","qosClass":"Burstable"}}`
