package workload

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/provision/state"
)

// A few objects of a namespace with very many are read one by one: a list would return all the others as well.
func TestAFewObjectsAmongVeryManyAreNotListed(t *testing.T) {
	var wanted []state.Object
	var objects []runtime.Object
	for i := range listFrom {
		name := fmt.Sprintf("c%d", i)
		objects = append(objects, newItem("v1", "ConfigMap", "default", name, nil))
		wanted = append(wanted, state.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name})
	}
	for remaining, wantLists := range map[int64]int{listRatio * listFrom: 2, listRatio*listFrom + 1: 1} {
		l, client := newFakeLive(objects...)
		lists := 0
		client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lists++
			page := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMapList"}}
			if a.(clienttesting.ListActionImpl).ListOptions.LabelSelector == "" {
				page.SetContinue("next")
				page.SetRemainingItemCount(&remaining)
			}
			return true, page, nil
		})
		found, err := l.listExisting(t.Context(), wanted)
		if err != nil || lists != wantLists {
			t.Errorf("%d more objects: %d lists, want %d; %v", remaining, lists, wantLists, err)
		}
		for _, o := range wanted {
			if live, err := found.get(t.Context(), l, o); err != nil || live == nil {
				t.Errorf("%s is not found: %v", o.Name, err)
			}
		}
	}
}
