package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
)

// ignoredOf returns the ignored fields of a workload's object of a kind.
func ignoredOf(w config.Workload, kind string) config.Ignored {
	out := config.Ignored{All: w.Ignored.All}
	template := []string{"spec", "template"}
	if kind == config.KindCronJob {
		template = []string{"spec", "jobTemplate", "spec", "template"}
	}
	in := func(path ...string) { out.Fields = append(out.Fields, slices.Concat(template, path)) }
	isController := kind == cmp.Or(w.Kind, config.KindDeployment)
	for _, f := range w.Ignored.Fields {
		switch {
		case kind == "ConfigMap" && f[0] == "config", kind == "Secret" && f[0] == "secrets":
			out.Fields = append(out.Fields, []string{"data"})
		case !isController:
		case f[0] == "config":
			in("metadata", "annotations", configDigest)
		case f[0] == "secrets":
			in("metadata", "annotations", secretsDigest)
		case f[0] == "replicas" && w.Autoscaling == nil:
			out.Fields = append(out.Fields, []string{"spec", "replicas"})
		case f[0] == "node_selector":
			in("spec", "nodeSelector")
		case f[0] == "container" && (f[2] == "requests" || f[2] == "limits"):
			in("spec", "containers", f[1], "resources", f[2])
		case f[0] == "container":
			in("spec", "containers", f[1], f[2])
		}
	}
	// The number of pods stays when an autoscaler takes over. Without it, the API would set it to 1 at that moment.
	if isController && w.Autoscaling != nil {
		out.Fields = append(out.Fields, []string{"spec", "replicas"})
	}
	return out
}

// OverLive returns a copy of d to apply over a live object, with ignored fields as they are in the live object. Ignored
// fields that only this manager owns stay in the copy with their live values, because server-side apply deletes fields
// that their only owner stops applying. Ignored fields that other managers own too are left out of the copy, so that
// this manager gives up its ownership.
func (d Desired) OverLive(live *unstructured.Unstructured) Desired {
	if len(d.Ignored.Fields) == 0 {
		return d
	}
	owned := ownersOf(live)
	d.Object = d.Object.DeepCopy()
	d.version = live.GetResourceVersion()
	for _, path := range d.Ignored.Fields {
		value, found := valueAt(live.Object, path)
		own, others := owned.ownersAt(path)
		if found {
			value, found = owned.partToApply(value, own, others)
		}
		setValue(d.Object.Object, path, value, found)
	}
	return d
}

// fields is a set of fields in the format of managedFields (FieldsV1).
type fields = map[string]any

// owners holds the fields that each manager owns in an object.
type owners struct {
	own              fields
	others           []fields
	hasManagedFields bool // the object has managedFields
}

func ownersOf(live *unstructured.Unstructured) (list owners) {
	for _, entry := range live.GetManagedFields() {
		var set fields
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &set) != nil {
			continue
		}
		list.hasManagedFields = true
		if entry.Manager == Manager && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == "" {
			list.own = set
		} else {
			list.others = append(list.others, set)
		}
	}
	return list
}

// ownership is how much of a field a manager owns.
type ownership int

const (
	ownsNone  ownership = iota
	ownsPart            // the field itself, or fields inside it
	ownsWhole           // an atomic field that contains it; also used when ownership is not known
)

type owner struct {
	ownership ownership
	fields    fields
}

func (o owners) ownersAt(path []string) (own owner, others []owner) {
	if !o.hasManagedFields {
		return owner{ownership: ownsWhole}, nil
	}
	for _, set := range o.others {
		others = append(others, walkFields(set, path))
	}
	return walkFields(o.own, path), others
}

// walkFields returns what a set of owned fields says about the field at a path.
func walkFields(set fields, path []string) owner {
	for i, step := range path {
		next, ok := set["f:"+step].(map[string]any)
		if !ok {
			var keyed bool
			next, ok, keyed = elementFields(set, step)
			if !ok && keyed {
				return owner{ownership: ownsWhole}
			}
		}
		if !ok {
			return owner{}
		}
		if len(next) == 0 && i < len(path)-1 {
			return owner{ownership: ownsWhole}
		}
		set = next
	}
	return owner{ownership: ownsPart, fields: set}
}

// elementFields returns the owned fields of the list element with a name. keyed reports that the list's elements have
// other keys than the name, so that the element cannot be identified.
func elementFields(set fields, name string) (found fields, ok, keyed bool) {
	for key, value := range set {
		text, isKey := strings.CutPrefix(key, "k:")
		if !isKey {
			continue
		}
		var parts map[string]any
		if json.Unmarshal([]byte(text), &parts) != nil || len(parts) != 1 || parts["name"] == nil {
			keyed = true
			continue
		}
		if parts["name"] == name {
			found, ok = value.(map[string]any)
			return found, ok, false
		}
	}
	return nil, false, keyed
}

// partToApply returns the part of a live value that has to be applied so that server-side apply does not delete it. It
// reports whether there is any.
func (o owners) partToApply(value any, own owner, others []owner) (any, bool) {
	if own.ownership == ownsNone {
		return nil, false
	}
	m, isMap := value.(map[string]any)
	if isMap && own.ownership == ownsPart && len(own.fields) > 0 {
		out := map[string]any{}
		for key, inner := range m {
			var theirs []owner
			for _, other := range others {
				if other.ownership == ownsPart {
					theirs = append(theirs, walkFields(other.fields, []string{key}))
				}
			}
			if v, ok := o.partToApply(inner, walkFields(own.fields, []string{key}), theirs); ok {
				out[key] = v
			}
		}
		return out, len(out) > 0
	}
	_, isList := value.([]any)
	if own.ownership == ownsPart && !isList &&
		slices.ContainsFunc(others, func(other owner) bool { return other.ownership == ownsPart }) {
		return nil, false
	}
	return value, true
}

// valueAt returns the value of the field at a path, and reports whether the field exists.
func valueAt(value any, path []string) (any, bool) {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[step]
			if !ok {
				return nil, false
			}
			value = inner
		case []any:
			i := indexOfName(v, step)
			if i < 0 {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

func indexOfName(list []any, name string) int {
	return slices.IndexFunc(list, func(e any) bool {
		m, ok := e.(map[string]any)
		return ok && m["name"] == name
	})
}

// setValue sets the field at a path to with, or deletes the field if set is false. It creates missing maps on the path,
// but no list elements.
func setValue(value any, path []string, with any, set bool) {
	last := len(path) - 1
	for i, step := range path {
		switch v := value.(type) {
		case map[string]any:
			switch inner, ok := v[step]; {
			case i == last && set:
				v[step] = with
			case i == last:
				delete(v, step)
			case !ok && set:
				inner = map[string]any{}
				v[step] = inner
				value = inner
			default:
				value = inner
			}
		case []any:
			at := indexOfName(v, step)
			if at < 0 {
				return
			}
			if value = v[at]; i == last {
				kept, _ := with.(map[string]any)
				element := map[string]any{"name": step}
				for k, e := range kept {
					element[k] = e
				}
				v[at] = element
			}
		default:
			return
		}
	}
}
