package workload

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// isApplied reports whether applying an object as a field manager certainly changes nothing: the manager owns exactly
// the fields that the object declares, in the same version of the kind, and the live object has the same values. It
// returns false if that is not known, for example because the API stores a value in another form.
func isApplied(declared, live *unstructured.Unstructured, manager string) bool {
	set, version, ok := appliedFields(live, manager)
	if !ok || version != declared.GetAPIVersion() || live.GetAPIVersion() != version ||
		live.GetKind() != declared.GetKind() {
		return false
	}
	content := make(map[string]any, len(declared.Object))
	for k, v := range declared.Object {
		switch k {
		case "apiVersion", "kind": // have no owner
		case "metadata":
			metadata, isMap := v.(map[string]any)
			if !isMap {
				return false
			}
			if owned := ownableMetadata(metadata); len(owned) > 0 {
				content[k] = owned
			}
		default:
			content[k] = v
		}
	}
	return hasFields(set, content, live.Object)
}

// ownableMetadata returns the fields of metadata that have owners.
func ownableMetadata(metadata map[string]any) map[string]any {
	owned := make(map[string]any, len(metadata))
	for k, v := range metadata {
		if k != "name" && k != "namespace" {
			owned[k] = v
		}
	}
	return owned
}

// appliedFields returns the fields that a manager has applied, and their version of the kind. ok is false unless the
// manager has exactly one set of them.
func appliedFields(live *unstructured.Unstructured, manager string) (set fields, version string, ok bool) {
	for _, entry := range rawManagedFields(live) {
		if !isAppliedBy(entry, manager) {
			continue
		}
		if ok {
			return nil, "", false
		}
		version, _ = entry["apiVersion"].(string)
		if set, ok = entry["fieldsV1"].(map[string]any); !ok {
			return nil, "", false
		}
	}
	return set, version, ok
}

// rawManagedFields returns the managed fields of an object as they were decoded. Converting them to their type costs
// more than everything else that is done with an unchanged object.
func rawManagedFields(o *unstructured.Unstructured) (entries []map[string]any) {
	metadata, _ := o.Object["metadata"].(map[string]any)
	list, _ := metadata["managedFields"].([]any)
	for _, e := range list {
		if entry, ok := e.(map[string]any); ok {
			entries = append(entries, entry)
		}
	}
	return entries
}

// isAppliedBy reports whether an entry of managed fields has what a manager has applied.
func isAppliedBy(entry map[string]any, manager string) bool {
	subresource, _ := entry["subresource"].(string)
	return entry["manager"] == manager && entry["operation"] == string(metav1.ManagedFieldsOperationApply) &&
		subresource == ""
}

// hasFields reports whether a set of owned fields is that of a declared value, and the live value is the same in these.
func hasFields(set fields, declared, live any) bool {
	if declared == nil || live == nil {
		return false // server-side apply gives null a meaning of its own
	}
	if len(set) == 0 {
		return reflect.DeepEqual(declared, live)
	}
	switch declared := declared.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		return ok && hasEntries(set, declared, live)
	case []any:
		live, ok := live.([]any)
		return ok && hasElements(set, declared, live)
	}
	return false
}

// hasEntries is hasFields for the entries of a map.
func hasEntries(set fields, declared, live map[string]any) bool {
	owned := len(set)
	if _, itself := set["."]; itself {
		owned--
	}
	if owned != len(declared) {
		return false
	}
	for k, v := range declared {
		inner, ok := set["f:"+k].(map[string]any)
		if !ok || !hasFields(inner, v, live[k]) {
			return false
		}
	}
	return true
}

// hasElements is hasFields for the elements of a list with keys, or of a set of values. The elements must have the same
// order in both lists, since applying a list can change its order.
func hasElements(set fields, declared, live []any) bool {
	owned := len(set)
	if _, itself := set["."]; itself {
		owned--
	}
	if owned != len(declared) {
		return false
	}
	after := -1 // index of the live element of the last declared one
	used := map[string]bool{}
	for _, element := range declared {
		key, inner, at := matchElement(set, element, live)
		if at <= after || used[key] {
			return false
		}
		after, used[key] = at, true
		if strings.HasPrefix(key, "k:") && !hasFields(inner, element, live[at]) {
			return false
		}
	}
	return true
}

// matchElement returns the key of a declared list element in a set of owned fields, the owned fields of the element,
// and the index of the live element with the same key. The index is -1 if there is none, or if it is not the only one.
func matchElement(set fields, element any, live []any) (key string, inner fields, at int) {
	at = -1
	for k, v := range set {
		kind, text, _ := strings.Cut(k, ":")
		var value any
		if kind != "k" && kind != "v" || json.Unmarshal([]byte(text), &value) != nil {
			continue
		}
		if !hasKey(element, value) {
			continue
		}
		if key != "" {
			return "", nil, -1
		}
		key = k
		inner, _ = v.(map[string]any)
		for i, candidate := range live {
			if hasKey(candidate, value) {
				if at >= 0 {
					return "", nil, -1
				}
				at = i
			}
		}
	}
	return key, inner, at
}

// hasKey reports whether a list element has all fields of a key, or is the key.
func hasKey(element, key any) bool {
	parts, ok := key.(map[string]any)
	if _, isList := key.([]any); isList {
		return false
	}
	if !ok {
		return jsonNumbers(key) == element
	}
	m, ok := element.(map[string]any)
	if !ok {
		return false
	}
	for k, v := range parts {
		if _, isList := v.([]any); isList {
			return false
		}
		if _, isMap := v.(map[string]any); isMap {
			return false
		}
		if m[k] != jsonNumbers(v) {
			return false
		}
	}
	return true
}
