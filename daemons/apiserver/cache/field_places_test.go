package cache

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/kinds"
)

func realPods(t testing.TB) *kinds.Kind {
	for _, k := range kinds.All() {
		if k.Resource == "pods" && k.GVK.Group == "" {
			return k
		}
	}
	t.Fatal("there are no pods")
	return nil
}

// A pod's fields are the same whether they are found by their places or by decoding the pod.
// Proves S12.
func TestFieldPlacesEqualDecodedFields(t *testing.T) {
	k := realPods(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "", "n1", `a"b`, `back\slash`, "ü<&>", "null", " "})
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": text.Draw(t, "label")}},
		}
		pod.Spec = corev1.PodSpec{
			NodeName: text.Draw(
				t,
				"node",
			), RestartPolicy: corev1.RestartPolicy(text.Draw(t, "restart")), SchedulerName: text.Draw(t, "scheduler"),
			ServiceAccountName: text.Draw(t,
				"account"), HostNetwork: rapid.Bool().Draw(t, "host"), Hostname: "spec.nodeName",
			NodeSelector: map[string]string{
				"nodeName": "other",
			}, Containers: []corev1.Container{{Name: "phase", Command: []string{"[", "}"}}},
		}
		pod.Status = corev1.PodStatus{
			Phase:             corev1.PodPhase(text.Draw(t, "phase")),
			NominatedNodeName: text.Draw(t, "nominated"),
			PodIP:             text.Draw(t, "ip"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "addresses") {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: text.Draw(t, "address")})
		}
		data, err := Encode(k, pod)
		if err != nil {
			t.Fatal(err)
		}
		found, err := NewEntry(k, "a/x", data, 5, nil)
		if err != nil {
			t.Fatal(err)
		}
		obj, _, err := decode(k, data)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := NewEntry(k, "a/x", data, 5, obj)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(found.values, decoded.values) || !maps.Equal(found.Labels, decoded.Labels) {
			t.Fatalf("%s: found %q %v, decoded %q %v", data, found.values, found.Labels, decoded.values, decoded.Labels)
		}
	})
}

func TestForeignFieldEncodingsAreDecoded(t *testing.T) {
	k := realPods(t)
	const head = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},`
	for rest, want := range map[string]string{ // and the address for field selectors
		`"spec":null,"status":{"podIP":"1","podIPs":null}}`:                      "1",
		`"status":{"podIPs":[],"podIP":"1"}}`:                                    "1",
		`"status":{"podIPs":[{"ip":"2"},{"ip":"3"}],"podIP":"1"}}`:               "2",
		`"status":{"podIP":"1","podIPs":[{"other":[{"ip":"4"}]}]}}`:              "",
		`"status":{"podIP":"\u0031"},"spec":{"hostNetwork":null,"nodeName":""}}`: "1",
		`"status":{"podIPs":[null],"podIP":"1"}}`:                                "",
	} {
		e, err := NewEntry(k, "a/x", []byte(head+rest), 5, nil)
		if err != nil {
			t.Errorf("%s: %v", rest, err)
			continue
		}
		if ip, _ := e.Field("status.podIP"); ip != want {
			t.Errorf("%s: the address is %q, want %q", rest, ip, want)
		}
	}
	for _, rest := range []string{`"spec":{"nodeName":4}}`, `"spec":{"hostNetwork":"true"}}`, `"status":{"podIPs":["1"]}}`, `"status":{"podIPs":[{"ip":"1"}`} {
		if _, err := NewEntry(k, "a/x", []byte(head+rest), 5, nil); err == nil {
			t.Errorf("%s passed", rest)
		}
	}
}
