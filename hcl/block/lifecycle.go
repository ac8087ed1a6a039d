package block

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/hcl/config"
	"clusterctl/kube/scheme"
)

type lifecycleBlock struct {
	PreventDestroy bool           `hcl:"prevent_destroy,optional" doc:"Refuse to remove, replace or destroy it, even if the block is deleted, until false has been applied." default:"false"`
	IgnoreChanges  hcl.Expression `hcl:"ignore_changes,optional" doc:"Only in workload, object and manifests blocks: fields that apply sets on creation and never updates. all means every field."`
}

func (l *lifecycleBlock) preventDestroy() bool { return l != nil && l.PreventDestroy }

// decodeLifecycle reads the lifecycle block of a block that can have arbitrary attributes. It returns the rest of the
// body.
func decodeLifecycle(x *Context, b *hcl.Block) (*lifecycleBlock, hcl.Body, hcl.Diagnostics) {
	content, rest, diags := b.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "lifecycle"}}})
	if diags.HasErrors() || len(content.Blocks) == 0 {
		return nil, rest, diags
	}
	if len(content.Blocks) > 1 {
		return nil, rest, append(diags, newError(content.Blocks[1].DefRange.Ptr(), "Second lifecycle block",
			"A block has one lifecycle at most."))
	}
	var l lifecycleBlock
	return &l, rest, append(diags, x.decode(content.Blocks[0].Body, x.Eval, &l)...)
}

// ignoreChanges returns the expression of ignore_changes, or nil if it is not set.
func (l *lifecycleBlock) ignoreChanges() hcl.Expression {
	if l == nil || l.IgnoreChanges == nil {
		return nil
	}
	expr := l.IgnoreChanges
	if opened, ok := expr.(openExpression); ok {
		expr = opened.Expression
	}
	if v, diags := expr.Value(nil); !diags.HasErrors() && v.IsNull() {
		return nil
	}
	return expr
}

// rejectIgnore returns an error with the reason why, if a block that does not support ignore_changes sets it.
func (l *lifecycleBlock) rejectIgnore(reason string) hcl.Diagnostics {
	expr := l.ignoreChanges()
	if expr == nil {
		return nil
	}
	return hcl.Diagnostics{newError(expr.Range().Ptr(), "Unsupported ignore_changes", "%s", reason)}
}

// decodeIgnored reads ignore_changes, which is the word all or a list of fields. check validates the path of each
// field, and returns the path to record.
func (l *lifecycleBlock) decodeIgnored(check func(path []string) ([]string, error)) (list config.Ignored,
	diags hcl.Diagnostics) {
	expr := l.ignoreChanges()
	if expr == nil {
		return list, nil
	}
	if word := hcl.ExprAsKeyword(expr); word == "all" {
		return config.Ignored{All: true}, nil
	}
	// In JSON, all is a string.
	if v, more := expr.Value(nil); !more.HasErrors() && v.Type() == cty.String && v.IsKnown() && v.AsString() == "all" {
		return config.Ignored{All: true}, nil
	}
	items, more := hcl.ExprList(expr)
	if more.HasErrors() {
		return list, hcl.Diagnostics{newError(expr.Range().Ptr(), "Invalid ignore_changes",
			"Write a list of fields, such as [spec.replicas, metadata.annotations[\"example.com/x\"]], or all.")}
	}
	for _, item := range items {
		path, err := fieldPath(item)
		if err == nil {
			path, err = check(path)
		}
		if err != nil {
			diags = append(diags, newError(item.Range().Ptr(), "Invalid ignore_changes", "%s", sentence(err)))
			continue
		}
		list.Fields = append(list.Fields, path)
	}
	return list, diags
}

// fieldPath reads the path of a field. It consists of field names and, in brackets, map keys and the names of list
// elements.
func fieldPath(expr hcl.Expression) (path []string, err error) {
	t, diags := hcl.AbsTraversalForExpr(expr)
	if diags.HasErrors() {
		if v, more := expr.Value(nil); !more.HasErrors() && v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			t, diags = hclsyntax.ParseTraversalAbs([]byte(v.AsString()), "field", hcl.InitialPos)
		}
	}
	if diags.HasErrors() {
		return nil, fmt.Errorf("this is not a field. Write it as spec.replicas or " +
			"metadata.annotations[\"example.com/x\"]")
	}
	for _, step := range t {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			path = append(path, s.Name)
		case hcl.TraverseAttr:
			path = append(path, s.Name)
		case hcl.TraverseIndex:
			if s.Key.Type() != cty.String {
				return nil, fmt.Errorf("identify elements of a list by their field name, as in containers[\"web\"], " +
					"because their indexes change when other elements are added")
			}
			path = append(path, s.Key.AsString())
		default:
			return nil, fmt.Errorf("* is not supported: name each field")
		}
	}
	return path, nil
}

// objectField returns a function that validates the path of a field of an object. If short is set, a path that begins
// with labels or annotations stands for the field of metadata, as in an object block.
func objectField(apiVersion, kind string, short bool) func([]string) ([]string, error) {
	return func(path []string) ([]string, error) {
		if short && (path[0] == "labels" || path[0] == "annotations") {
			path = append([]string{"metadata"}, path...)
		}
		switch path[0] {
		case "apiVersion", "kind", "namespace":
			return nil, fmt.Errorf("%s identifies the object and cannot be ignored", path[0])
		case "status":
			return nil, fmt.Errorf("status is set by the cluster, and apply never compares it")
		case "metadata":
			if len(path) == 1 || !slices.Contains([]string{"labels", "annotations", "finalizers", "ownerReferences"},
				path[1]) {
				return nil, fmt.Errorf("only labels, annotations, finalizers and ownerReferences of metadata can be " +
					"ignored, as a whole or by key: other fields identify the object or are set by the cluster")
			}
		}
		gv, err := schema.ParseGroupVersion(apiVersion)
		if typ, ok := scheme.Scheme().AllKnownTypes()[gv.WithKind(kind)]; err == nil && ok {
			return path, checkField(typ, apiVersion+" "+kind, path)
		}
		return path, nil // only the cluster knows the schema of a custom resource
	}
}

// checkField returns an error if a type does not have the field at path. what describes the type in that error.
func checkField(typ reflect.Type, what string, path []string) error {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if len(path) == 0 {
		return nil
	}
	switch typ.Kind() {
	case reflect.Map:
		return checkField(typ.Elem(), what+"."+path[0], path[1:])
	case reflect.Slice:
		element := typ.Elem()
		if jsonFields(element)["name"] == nil {
			return fmt.Errorf("the elements of %s have no field name, so the list can only be ignored as a whole", what)
		}
		return checkField(element, fmt.Sprintf("%s[%q]", what, path[0]), path[1:])
	}
	fields := jsonFields(typ)
	next := fields[path[0]]
	if next == nil {
		names := make([]string, 0, len(fields))
		for name := range fields {
			names = append(names, name)
		}
		slices.Sort(names)
		return fmt.Errorf("%s has no field %q.%s", what, path[0], Suggest(path[0], names))
	}
	return checkField(next, what+"."+path[0], path[1:])
}

// jsonFields returns the types of a struct's fields by their JSON names. It returns none for a type with its own
// MarshalJSON.
func jsonFields(typ reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	if typ.Kind() != reflect.Struct || typ.Implements(jsonMarshaler) ||
		reflect.PointerTo(typ).Implements(jsonMarshaler) {
		return fields
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && (name == "" || strings.Contains(options, "inline")) {
			for inner, t := range jsonFields(f.Type) {
				fields[inner] = t
			}
		} else if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

var jsonMarshaler = reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()

// workloadField returns a function that validates the path of a field of a workload block.
func workloadField(containers []containerBlock) func([]string) ([]string, error) {
	return func(path []string) ([]string, error) {
		switch path[0] {
		case "replicas", "config", "secrets", "node_selector":
			if len(path) == 1 {
				return path, nil
			}
		case "container":
			if len(path) != 3 || !slices.Contains([]string{"image", "command", "args", "env", "requests", "limits"},
				path[2]) {
				break
			}
			if slices.ContainsFunc(containers, func(c containerBlock) bool { return c.Name == path[1] }) {
				return path, nil
			}
			return nil, fmt.Errorf("there is no container %q", path[1])
		}
		return nil, errors.New("a workload block can only ignore replicas, config, secrets, node_selector, and " +
			"image, command, args, env, requests and limits of container[\"NAME\"], or all. An object block of kind " +
			"Deployment can ignore any field")
	}
}

// unusedFields returns an error for each ignored field that no object of a manifests block has.
func (l *lifecycleBlock) unusedFields(objects []config.Object) (diags hcl.Diagnostics) {
	var ignored config.Ignored
	if len(objects) > 0 {
		ignored = objects[0].Ignored
	}
	for _, path := range ignored.Fields {
		var refused error
		found := slices.ContainsFunc(objects, func(o config.Object) bool {
			version, _ := o.Content["apiVersion"].(string)
			kind, _ := o.Content["kind"].(string)
			_, err := objectField(version, kind, false)(path)
			refused = err
			return err == nil
		})
		if !found {
			diags = append(diags, newError(l.ignoreChanges().Range().Ptr(), "Invalid ignore_changes",
				"No object of this block has the field: %s", sentence(refused)))
		}
	}
	return diags
}
