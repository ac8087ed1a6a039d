package ownership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// drawFields draws a set in the format FieldsV1, with fields in any order, some of them twice or of unknown types.
func drawFields(t *rapid.T, depth int) string {
	names := []string{".", "f:a", "f:b", "f:\u00e9<", `k:{\"name\":\"a\"}`, `k:{\"name\":\"b\"}`, `k:{\"port\":9}`,
		`k:{\"port\":10}`, `v:\"a\"`, "v:1", "v:1.5", "i:2", "x:unknown"}
	var members []string
	for range rapid.IntRange(0, 2*depth).Draw(t, "fields") {
		members = append(members, fmt.Sprintf(`"%s":%s`, rapid.SampledFrom(names).Draw(t, "name"), drawFields(t, depth-1)))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// Sorted fields are the same set, in the order in which the library writes them.
func TestSortedFieldsAreTheSameSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(drawFields(t, 3))
		sorted := sortFields(raw)
		want, ok := readSet(raw)
		got, gotOK := readSet(sorted)
		if !ok || !gotOK || !got.Equals(want) {
			t.Fatalf("%s\nis sorted to\n%s", raw, sorted)
		}
		again, err := got.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		if twice := strings.ReplaceAll(string(sortFields(again)), `\u003c`, "<"); twice != string(again) {
			t.Fatalf("%s\nis sorted to\n%s", again, twice)
		}
	})
	for _, raw := range []string{"", "x", "1", `{"f:a":1}`, `{"f:a":{}`, `{"f:a":{}}{}`, `{"k:x":{}}`} {
		if set, ok := readSet(sortFields([]byte(raw))); ok {
			t.Errorf("%s is the valid set %s", raw, set)
		}
	}
}

// Managed fields that a client sends are read in linear time.
func TestManyFieldsThatAClientSendsAreSorted(t *testing.T) {
	f, served := newPodManagers(t)
	var members []string
	for i := range 5000 {
		members = append(members, fmt.Sprintf(`"f:n%04d":{}`, i))
	}
	sorted := "{" + strings.Join(members, ",") + "}"
	slices.Reverse(members)
	entry := metav1.ManagedFieldsEntry{Manager: "m", Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte("{" + strings.Join(members, ",") + "}")}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{entry}}}
	sortSentFields(&corev1.Pod{}, p)
	if got := string(p.ManagedFields[0].FieldsV1.Raw); got != sorted {
		t.Errorf("the fields are %.100s", got)
	}
	if entry.FieldsV1.Raw[4] != members[0][3] {
		t.Error("the sent bytes have changed")
	}
	p.ManagedFields[0] = entry
	live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{entry}}}
	sortSentFields(live, p)
	if p.ManagedFields[0].FieldsV1 != entry.FieldsV1 {
		t.Error("stored fields are sorted")
	}
	got, err := f.Update(served, "", nil, &corev1.Pod{}, p, "y")
	if err != nil {
		t.Fatal(err)
	}
	if text := updateFields(t, got); !strings.Contains(text, `"f:n0000":{}`) {
		t.Errorf("the entry is lost: %.300s", text)
	}
}
