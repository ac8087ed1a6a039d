package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"clusterctl/hcl/block"
)

// Renderer returns the objects that the text of a configuration declares.
type Renderer func(text string) ([]map[string]any, error)

// reservedAttributes are attributes of an object block that are not fields of the object.
var reservedAttributes = []string{"count", "for_each", "depends_on", "lifecycle", "precondition", "postcondition",
	"namespace", "labels", "annotations", "dynamic", "provider"}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	objectName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$`)
)

// HCL returns the text of blocks that declare the objects, and the objects that cannot be declared. If render is not
// nil, a Deployment whose objects a workload block declares exactly becomes such a block.
func HCL(objects []Object, render Renderer) ([]byte, []Problem) {
	var problems []Problem
	var valid []Object
	for i, o := range objects {
		if i == maxObjects {
			problems = append(problems, o.problem("the input has more than %d objects", maxObjects))
			break
		}
		cleaned, more := prepare(o)
		problems = append(problems, more...)
		if cleaned != nil {
			valid = append(valid, *cleaned)
		}
	}
	valid, more := withoutDuplicates(valid)
	problems = append(problems, more...)
	var blocks []string
	labels := map[string]bool{}
	done := map[int]bool{}
	shorts := newShortForms(valid, render)
	for i, o := range valid {
		switch short := shorts[i]; {
		case done[i]:
		case short != nil:
			for _, member := range short.members {
				done[member] = true
			}
			blocks = append(blocks, short.text)
		case !shorts.isMember(i):
			blocks = append(blocks, objectBlock(o, labels))
		}
	}
	return hclwrite.Format([]byte(strings.Join(blocks, "\n"))), problems
}

// prepare returns an object without the fields that a configuration does not declare, or nil if an object block cannot
// declare it.
func prepare(o Object) (*Object, []Problem) {
	version, _ := o.Content["apiVersion"].(string)
	kind, _ := o.Content["kind"].(string)
	name := o.metadata("name")
	switch {
	case version == "" || kind == "":
		return nil, []Problem{o.problem("an object needs apiVersion and kind")}
	case name == "":
		return nil, []Problem{o.problem("an object needs metadata.name; generateName gives a new object each time")}
	case !objectName.MatchString(name) || quote(version) != `"`+version+`"` || quote(kind) != `"`+kind+`"`:
		return nil, []Problem{o.problem("its apiVersion, kind or name is not a valid label of a block")}
	}
	if reason := inexpressible(o.Content, 0); reason != "" {
		return nil, []Problem{o.problem("%s", reason)}
	}
	var problems []Problem
	out := o
	out.Content = maps.Clone(o.Content)
	if _, ok := out.Content["status"]; ok {
		delete(out.Content, "status")
		problems = append(problems, o.problem("status is left out: the cluster sets it"))
	}
	for _, field := range slices.Sorted(maps.Keys(out.Content)) {
		if !identifier.MatchString(field) || slices.Contains(reservedAttributes, field) {
			return nil, append(problems, o.problem("the field %q is not an attribute that an object block can have; "+
				"declare the file with a manifests block", field))
		}
	}
	err := block.CheckObject(out.Content)
	if err == nil {
		return &out, problems
	}
	if metadata, _ := out.Content["metadata"].(map[string]any); metadata["namespace"] != nil {
		metadata = maps.Clone(metadata)
		delete(metadata, "namespace")
		without := maps.Clone(out.Content)
		without["metadata"] = metadata
		if strings.Contains(err.Error(), "metadata.namespace") && block.CheckObject(without) == nil {
			out.Content = without
			return &out, append(problems, o.problem("metadata.namespace is left out: a %s has no namespace", kind))
		}
	}
	return nil, append(problems, o.problem("%s", strings.ReplaceAll(err.Error(), "\n", " ")))
}

// withoutDuplicates removes objects that were declared before.
func withoutDuplicates(objects []Object) (list []Object, problems []Problem) {
	first := map[string]Object{}
	for _, o := range objects {
		key := identity(o)
		if before, ok := first[key]; ok {
			problems = append(problems, o.problem("the object is declared twice, first at %s:%d", before.File,
				before.Line))
			continue
		}
		first[key] = o
		list = append(list, o)
	}
	return list, problems
}

func identity(o Object) string {
	return fmt.Sprintf("%v %v %s/%s", o.Content["apiVersion"], o.Content["kind"], o.metadata("namespace"),
		o.metadata("name"))
}

// objectBlock returns an object block. labels are the addresses in use.
func objectBlock(o Object, labels map[string]bool) string {
	version, kind, name := o.Content["apiVersion"].(string), o.Content["kind"].(string), o.metadata("name")
	address := func(label string) string { return version + " " + kind + " " + label }
	label := name
	if labels[address(label)] {
		label = o.metadata("namespace") + "-" + name
	}
	for i := 2; labels[address(label)]; i++ {
		label = fmt.Sprintf("%s-%d", name, i)
	}
	labels[address(label)] = true
	w := &writer{}
	fmt.Fprintf(&w.text, "object %s %s %s {\n", quote(version), quote(kind), quote(label))
	metadata := maps.Clone(o.Content["metadata"].(map[string]any))
	if label == name {
		delete(metadata, "name")
	}
	attribute := func(name string, v any) {
		w.text.WriteString(name + " = ")
		w.value(v, false)
		w.text.WriteString("\n")
	}
	for _, field := range []string{"namespace", "labels", "annotations"} {
		if v := metadata[field]; v != nil {
			attribute(field, v)
			delete(metadata, field)
		}
	}
	if len(metadata) > 0 {
		attribute("metadata", metadata)
	}
	for _, field := range slices.Sorted(maps.Keys(o.Content)) {
		if field != "apiVersion" && field != "kind" && field != "metadata" {
			attribute(field, o.Content[field])
		}
	}
	w.text.WriteString("}\n")
	return w.text.String()
}
