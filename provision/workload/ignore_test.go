package workload

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

func plainJSON(t *testing.T, text string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return jsonNumbers(m).(map[string]any)
}

func managed(manager string, operation metav1.ManagedFieldsOperationType,
	subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "apps/v1",
		Subresource: subresource, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
}

func TestIgnoredFieldsWithoutOtherOwnersAreAppliedUnchanged(t *testing.T) {
	const ours = `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}},"f:spec":{"f:replicas":{},"f:args":{},
		"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{}}},
		"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{"f:name":{},"f:hostPort":{}}}}}`
	for name, c := range map[string]struct {
		path              []string
		others            string
		live, wanted, out string
	}{
		"a scaler owns the replicas as well": {[]string{"spec", "replicas"}, `{"f:spec":{"f:replicas":{}}}`,
			`{"spec":{"replicas":7}}`, `{"spec":{"replicas":1,"x":1}}`, `{"spec":{"x":1}}`},
		"nobody else owns the replicas": {[]string{"spec", "replicas"}, `{}`, `{"spec":{"replicas":7}}`,
			`{"spec":{"replicas":1}}`, `{"spec":{"replicas":7}}`},
		"the replicas are not ours": {[]string{"spec", "paused"}, `{"f:spec":{"f:paused":{}}}`,
			`{"spec":{"paused":true}}`, `{"spec":{"paused":false}}`, `{"spec":{}}`},
		"a field that was taken away": {[]string{"spec", "replicas"}, `{}`, `{"spec":{}}`,
			`{"spec":{"replicas":1}}`, `{"spec":{}}`},
		"a field that is declared no more": {[]string{"spec", "replicas"}, `{}`, `{"spec":{"replicas":7}}`, `{}`,
			`{"spec":{"replicas":7}}`},
		"labels, key by key": {[]string{"metadata", "labels"},
			`{"f:metadata":{"f:labels":{"f:b":{},"f:c":{}}}}`, `{"metadata":{"labels":{"a":"1","b":"2","c":"3"}}}`,
			`{"metadata":{"labels":{"a":"x","b":"x"}}}`, `{"metadata":{"labels":{"a":"1"}}}`},
		"one label": {[]string{"metadata", "labels", "a"}, `{}`,
			`{"metadata":{"labels":{"a":"1"}}}`, `{"metadata":{"labels":{"a":"x","b":"x"}}}`,
			`{"metadata":{"labels":{"a":"1","b":"x"}}}`},
		"the image of a container": {[]string{"spec", "containers", "web", "image"},
			`{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:image":{}}}}}`,
			`{"spec":{"containers":[{"name":"web","image":"v2"}]}}`,
			`{"spec":{"containers":[{"name":"side"},{"name":"web","image":"v1"}]}}`,
			`{"spec":{"containers":[{"name":"side"},{"name":"web"}]}}`},
		"a container as a whole": {[]string{"spec", "containers", "web"}, `{}`,
			`{"spec":{"containers":[{"name":"web","image":"v2","stdin":true}]}}`,
			`{"spec":{"containers":[{"name":"web","image":"v1"}]}}`,
			`{"spec":{"containers":[{"name":"web","image":"v2"}]}}`},
		"a list that has one owner": {[]string{"spec", "args"}, `{}`, `{"spec":{"args":["b"]}}`,
			`{"spec":{"args":["a"]}}`, `{"spec":{"args":["b"]}}`},
		"elements with other keys": {[]string{"spec", "ports", "http"}, `{}`,
			`{"spec":{"ports":[{"name":"http","containerPort":80,"hostPort":8080}]}}`,
			`{"spec":{"ports":[{"name":"http","containerPort":80,"hostPort":1}]}}`,
			`{"spec":{"ports":[{"name":"http","containerPort":80,"hostPort":8080}]}}`},
	} {
		live := &unstructured.Unstructured{Object: plainJSON(t, c.live)}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{
			managed(Manager, metav1.ManagedFieldsOperationApply, "", ours),
			managed("kube-controller-manager", metav1.ManagedFieldsOperationUpdate, "scale", c.others),
		})
		d := Desired{Object: &unstructured.Unstructured{Object: plainJSON(t, c.wanted)},
			Ignored: config.Ignored{Fields: [][]string{c.path}}}
		if got, want := d.OverLive(live).Object.Object, plainJSON(t, c.out); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if want := plainJSON(t, c.wanted); !reflect.DeepEqual(d.Object.Object, want) {
			t.Errorf("%s: the declared object was changed to %v", name, d.Object.Object)
		}
	}
}

func TestObjectsWithOnlyIgnoredChangesAreNotWritten(t *testing.T) {
	for _, ignored := range []config.Ignored{{All: true}, {Fields: [][]string{{"data"}}}} {
		existing := newItem("v1", "ConfigMap", "default", "c", map[string]any{"data": map[string]any{"a": "theirs"}})
		existing.SetLabels(map[string]string{ManagedByLabel: Manager})
		existing.SetResourceVersion("7")
		l, client := newFakeLive(existing)
		var versions []string
		conflicts := 1
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			p := a.(clienttesting.PatchActionImpl)
			o := &unstructured.Unstructured{Object: plainJSON(t, string(p.Patch))}
			if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); data["a"] != "theirs" {
				t.Errorf("%v: applied %v", ignored, data)
			}
			if len(p.PatchOptions.DryRun) > 0 {
				return true, o, nil
			}
			versions = append(versions, o.GetResourceVersion())
			if conflicts--; conflicts >= 0 {
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "c",
					errors.New("modified"))
			}
			return true, o, nil
		})
		o := newDeclared("object.v1.ConfigMap.c", 1, newItem("v1", "ConfigMap", "default", "c",
			map[string]any{"data": map[string]any{"a": "ours"}, "immutable": true}))
		o.Ignored = ignored
		desired, err := Objects(&config.Cluster{Objects: []config.Object{o}})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range desired {
			if d.Object.GetKind() != "ConfigMap" || d.Object.GetName() != "c" {
				continue
			}
			d.CanAdopt = true
			entry, err := l.applyOne(t.Context(), d, nil, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if ignored.All && (entry.Action != plan.None || len(versions) > 0) {
				t.Errorf("ignore_changes = all: entry %+v, writes %v, want none", entry, versions)
			}
			if !ignored.All && !reflect.DeepEqual(versions, []string{"7", "7"}) {
				t.Errorf("written at the versions %q, want twice at 7: after a conflict the object is compared again",
					versions)
			}
		}
	}
}
