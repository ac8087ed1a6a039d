package block

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	strict "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds"
	"clusterctl/kube/scheme"
)

// strictSerializer decodes the kinds of Kubernetes' own groups, and rejects unknown fields.
var strictSerializer = sync.OnceValue(func() *strict.Serializer {
	kinds := scheme.Scheme()
	return strict.NewSerializerWithOptions(strict.DefaultMetaFactory, kinds, kinds,
		strict.SerializerOptions{Strict: true})
})

// CheckObject validates an object as the API server does when the object is created. Kinds of groups that Kubernetes
// does not define are not checked, because only the cluster knows their schemas.
func CheckObject(content map[string]any) error { return checkObject(content, true) }

// checkObject validates an object of one of Kubernetes' own groups before a run starts, so that an invalid object does
// not stop the run half way. It checks the fields' names and types, and also the API's validation rules if the object
// is complete. Kinds of other groups are not checked, because only the cluster knows their schemas.
func checkObject(content map[string]any, complete bool) error {
	version, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	if isKnown, err := checkKind(version, kind); !isKnown || err != nil {
		return err
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	object, gvk, err := strictSerializer().Decode(text, nil, nil)
	if err == nil {
		if !complete {
			return nil
		}
		// A missing required field is not an error, because objects are applied over live ones, which may have the
		// field already.
		errs := slices.DeleteFunc(kinds.CheckNew(*gvk, object),
			func(e *field.Error) bool { return e.Type == field.ErrorTypeRequired })
		if len(errs) > 0 {
			return &invalidObjectError{gvk.Kind, errs}
		}
		return nil
	}
	if problems, ok := runtime.AsStrictDecodingError(err); ok {
		var list []string
		for _, p := range problems.Errors() {
			list = append(list, p.Error())
		}
		return fmt.Errorf("%s %s: %s", version, kind, strings.Join(list, ", "))
	}
	return fmt.Errorf("%s %s: %s", version, kind, plainDecodeError(err.Error()))
}

// invalidObjectError holds the validation errors with which the API server would reject an object.
type invalidObjectError struct {
	kind string
	errs field.ErrorList
}

func (e *invalidObjectError) Error() string {
	var list []string
	for _, one := range e.errs {
		list = append(list, one.Error())
	}
	return "the API refuses this " + e.kind + ": " + strings.Join(list, "; ")
}

// checkKind reports whether a kind is one of Kubernetes' own. It returns an error if only its group is.
func checkKind(version, kind string) (bool, error) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return false, fmt.Errorf("%q is not an API version, as \"v1\" or \"apps/v1\"", version)
	}
	if scheme.Scheme().Recognizes(gv.WithKind(kind)) {
		return true, nil
	}
	versions := scheme.Scheme().PrioritizedVersionsForGroup(gv.Group)
	if len(versions) == 0 {
		groups := map[string]bool{}
		for _, v := range scheme.Scheme().PrioritizedVersionsAllGroups() {
			groups[v.Group] = true
		}
		if hint := Suggest(gv.Group, slices.Sorted(maps.Keys(groups))); hint != "" && !strings.Contains(gv.Group, ".") {
			return false, fmt.Errorf("there is no API group %q.%s", gv.Group, strings.TrimSuffix(hint, "."))
		}
		return false, nil
	}
	var elsewhere, kinds []string
	for _, v := range versions {
		if scheme.Scheme().Recognizes(v.WithKind(kind)) {
			elsewhere = append(elsewhere, v.String())
		}
	}
	if len(elsewhere) > 0 {
		return false, fmt.Errorf("%s has no kind %s; it is in %s", version, kind, strings.Join(elsewhere, " and "))
	}
	for name := range scheme.Scheme().KnownTypes(gv) {
		if !strings.HasSuffix(name, "List") && !strings.HasSuffix(name, "Options") && name != "WatchEvent" {
			kinds = append(kinds, name)
		}
	}
	slices.Sort(kinds)
	return false, fmt.Errorf("%s has no kind %q.%s", version, kind, Suggest(kind, kinds))
}

// plainDecodeError replaces Go terms in a decoding error.
func plainDecodeError(text string) string {
	if _, rest, ok := strings.Cut(text, "json: cannot unmarshal "); ok {
		given, field, ok := strings.Cut(rest, " into Go struct field ")
		path, want, typed := strings.Cut(field, " of type ")
		if _, inner, nested := strings.Cut(path, "."); ok && typed && nested {
			return fmt.Sprintf("%s is of type %s, not %s", inner, want, given)
		}
	}
	return text
}
