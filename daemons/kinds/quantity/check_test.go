package quantity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const podBegin, podEnd = `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c","resources":{"limits":{`, `}}}]}}`

// The library would take minutes and gigabytes for each of these.
func TestHugeQuantitiesAreNotParsed(t *testing.T) {
	start := time.Now()
	for name, text := range map[string]string{
		"a small number":     podBegin + `"cpu":"1e-999999999"` + podEnd,
		"a capital letter":   podBegin + `"cpu":"1E-999999999"` + podEnd,
		"a number of JSON":   podBegin + `"cpu":1e-999999999` + podEnd,
		"many digits":        podBegin + `"cpu":"12345678901234567890e1000000"` + podEnd,
		"many decimals":      podBegin + `"cpu":"0.` + strings.Repeat("9", 300_000) + `"` + podEnd,
		"the first of two":   podBegin + `"cpu":"1e-999999999","cpu":"1"` + podEnd,
		"escaped digits":     podBegin + `"cpu":"\u0031e-999999999"` + podEnd,
		"an escaped letter":  podBegin + `"cpu":"1\u0065-999999999"` + podEnd,
		"an escaped sign":    podBegin + `"cpu":"1e\u002d999999999"` + podEnd,
		"an escaped end":     podBegin + `"cpu":"1e-999\u0039\u0039"` + podEnd,
		"an embedded struct": `{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e-999999999"}}]}}`,
	} {
		obj := &corev1.Pod{}
		if err := Check([]byte(text), obj); !errors.Is(err, Err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"usual ones": podBegin + `"cpu":"100m","memory":"1Gi","a":1e3,"b":"1e-9","c":"1E","d":"0.1","e":"1e999"` + podEnd,
		"other texts": `{"metadata":{"name":"1e-999999999","annotations":{"a":"1e-999999999","b":"` +
			strings.Repeat("1", 1000) + `"}}}`,
		"invalid": `{"spec":{"containers":[{"name":"1e-9999`,
	} {
		if err := Check([]byte(text), &corev1.Pod{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	fields := func(cpu string) map[string]any {
		resources := map[string]any{"limits": map[string]any{"cpu": cpu}}
		container := map[string]any{"name": "1e-999999999", "resources": resources}
		return map[string]any{"spec": map[string]any{"containers": []any{container}}}
	}
	if err := CheckFields(fields("1e-999999999"), &corev1.Pod{}); !errors.Is(err, Err) {
		t.Errorf("fields: %v", err)
	}
	if err := CheckFields(fields("1e-9"), &corev1.Pod{}); err != nil {
		t.Errorf("usual fields: %v", err)
	}
	if hasHuge := mayHaveHugeQuantity([]byte(`{"a":"3e123","b":"\u003cx\u003e","c":"2026-11-28T10:00:00Z"}`)); hasHuge {
		t.Error("a usual body is read twice")
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// message returns a message with one field of bytes.
func message(number byte, content []byte) []byte {
	out := []byte{number<<3 | 2}
	for n := len(content); ; n >>= 7 {
		if n < 0x80 {
			return append(append(out, byte(n)), content...)
		}
		out = append(out, byte(n)|0x80)
	}
}

func TestHugeQuantitiesOfMessagesAreNotParsed(t *testing.T) {
	entry := append(message(1, []byte("cpu")), message(2, message(1, []byte("1e-999999999")))...)
	limits := message(8, message(1, entry)) // resources of a container
	pod := message(2, message(2, limits))   // spec, containers
	group := append([]byte{15<<3 | 3, 15<<3 | 4}, pod...)
	// The decoder ignores the high bits of a field's number, and of a number with ten bytes.
	high := append([]byte{2<<3 | 2 | 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, pod[1:]...)
	long := append([]byte{15 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, pod...)
	for name, raw := range map[string][]byte{"a pod": pod, "after a group": group, "a high number": high,
		"a long number": long} {
		if err := CheckMessage(raw, &corev1.Pod{}); !errors.Is(err, Err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	usual := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "1e-999999999"}}
	text := podBegin + `"cpu":"100m","memory":"1Gi"` + podEnd
	if err := json.Unmarshal([]byte(text), usual); err != nil {
		t.Fatal(err)
	}
	raw, err := usual.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckMessage(raw, &corev1.Pod{}); err != nil {
		t.Error(err)
	}
}
