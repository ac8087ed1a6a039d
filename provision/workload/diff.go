package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Diff returns a line for every field that differs, as "path: old → new". It leaves out fields that the server
// maintains, and hides secrets.
func Diff(before, after *unstructured.Unstructured) []string {
	a, b := before.DeepCopy().Object, after.DeepCopy().Object
	for _, o := range []map[string]any{a, b} {
		delete(o, "status")
		if m, ok := o["metadata"].(map[string]any); ok {
			for _, k := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp",
				"selfLink"} {
				delete(m, k)
			}
		}
	}
	var lines []string
	walkDiff("", a, b, func(path string, old, new any) {
		if after.GetKind() == "Secret" &&
			(len(path) > 4 && path[:4] == "data" || len(path) > 10 && path[:10] == "stringData") {
			lines = append(lines, path+": (sensitive)")
			return
		}
		from, to := showChange(old, new)
		lines = append(lines, fmt.Sprintf("%s: %s → %s", path, from, to))
	})
	sort.Strings(lines)
	return lines
}

func walkDiff(path string, a, b any, differs func(path string, old, new any)) {
	if reflect.DeepEqual(a, b) {
		return
	}
	left, leftMap := a.(map[string]any)
	right, rightMap := b.(map[string]any)
	if leftMap && rightMap {
		keys := maps.Clone(left)
		maps.Copy(keys, right)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			walkDiff(join(path, k), left[k], right[k], differs)
		}
		return
	}
	leftList, ok1 := a.([]any)
	rightList, ok2 := b.([]any)
	if ok1 && ok2 && len(leftList) == len(rightList) {
		for i := range leftList {
			walkDiff(path+"["+label(rightList[i], i)+"]", leftList[i], rightList[i], differs)
		}
		return
	}
	differs(path, a, b)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// label returns the name of a list element, or its index if it has no name.
func label(v any, i int) string {
	if m, ok := v.(map[string]any); ok {
		if name, ok := m["name"].(string); ok {
			return name
		}
	}
	return fmt.Sprint(i)
}

const (
	maxShown    = 120 // maximum bytes of a value
	shownBefore = 40  // bytes of the common beginning of two long values
)

// showChange formats two different values. Of long values it shows the part where they begin to differ.
func showChange(old, new any) (string, string) {
	before, after := formatValue(old), formatValue(new)
	from := 0
	if old != nil && new != nil && max(len(before), len(after)) > maxShown {
		for from < min(len(before), len(after)) && before[from] == after[from] {
			from++
		}
		from = max(from-shownBefore, 0)
	}
	return shorten(before, from), shorten(after, from)
}

// shorten shortens a text that is shown from a position on.
func shorten(text string, from int) string {
	begin, end := "", ""
	if from > 0 {
		begin, text = "…", text[from:]
	}
	if len(text) > maxShown {
		end, text = "…", text[:maxShown]
	}
	return begin + strings.ToValidUTF8(text, "") + end
}

func formatValue(v any) string {
	if v == nil {
		return "(none)"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
