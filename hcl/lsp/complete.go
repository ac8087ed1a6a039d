package lsp

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/load"
)

// complete returns the completions at a position.
func complete(s *server, at documentPosition) any {
	frames, expression := bracketsAt(at.text, at.offset)
	items := []completionItem{}
	switch {
	case expression:
		items = s.references(at)
	case len(frames) == 0:
		for _, name := range slices.Sorted(maps.Keys(block.TopLevel())) {
			_, doc := block.Fields(name, nil)
			items = append(
				items,
				completionItem{
					Label:         name,
					Kind:          kindClass,
					Documentation: doc,
					InsertText:    name + strings.Repeat(` ""`, block.TopLevel()[name]) + " ",
				},
			)
		}
	default:
		for _, f := range fieldsAt(frames) {
			i := completionItem{
				Label:         f.Name,
				Kind:          kindProperty,
				Detail:        f.Type,
				Documentation: f.Doc,
				InsertText:    f.Name + " = ",
			}
			if f.IsBlock {
				i.Kind, i.InsertText = kindClass, f.Name+strings.Repeat(` ""`, f.Labels)+" "
			}
			if f.IsRequired {
				i.Detail += ", required"
			}
			items = append(items, i)
		}
	}
	return map[string]any{"isIncomplete": false, "items": items}
}

// fieldsAt returns the fields of the innermost block.
func fieldsAt(frames []frame) []block.Field {
	fields, _ := block.Fields(frames[0].name, frames[0].labels)
	for i := 1; i < len(frames); i++ {
		name := frames[i].name
		if name == "dynamic" && len(frames[i].labels) > 0 {
			if i+1 == len(frames) {
				return nil // the attributes of a dynamic block are not offered
			}
			name = frames[i].labels[0]
			i++ // skip the block content
		}
		at := slices.IndexFunc(fields, func(f block.Field) bool { return f.IsBlock && f.Name == name })
		if at < 0 {
			return nil
		}
		fields = fields[at].Nested()
	}
	return fields
}

// references returns completions for references in an expression.
func (s *server) references(at documentPosition) []completionItem {
	items := []completionItem{}
	parts, _, _ := referenceAt(at.text, at.offset, false)
	dir := filepath.Dir(at.path)
	if len(parts) == 1 {
		for _, root := range load.Roots() {
			items = append(items, completionItem{Label: root, Kind: kindKeyword})
		}
		for _, name := range load.FunctionNames() {
			call, meaning := load.FunctionMeaning(name)
			items = append(
				items,
				completionItem{Label: name, Kind: kindFunction, Detail: call, Documentation: meaning, InsertText: name +
					"("},
			)
		}
		return items
	}
	declared := map[string]bool{}
	add := func(name, detail string, kind int) {
		if !declared[name] {
			declared[name] = true
			items = append(items, completionItem{Label: name, Kind: kind, Detail: detail})
		}
	}
	prefix := parts[:len(parts)-1]
	for _, d := range s.index(dir) {
		words := append([]string{d.root}, strings.Split(d.name, ".")...)
		if len(words) > len(prefix) && slices.Equal(words[:len(prefix)], prefix) && d.root != "object" {
			add(words[len(prefix)], filepath.Base(d.path), kindVariable)
		}
	}
	if d, found := s.find(dir, prefix); found && d.root == "module" && len(prefix) == 2 {
		for _, name := range s.outputs(d) {
			add(name, "output of the module", kindField)
		}
	}
	c, _ := s.load(at.path)
	if c.Scope == nil { // the text being typed cannot be parsed; use the other files
		others := maps.Clone(s.texts)
		others[at.path] = ""
		if c, _ = (&server{texts: others}).load(at.path); c.Scope == nil {
			return items
		}
	}
	v, ok := c.Scope.Variables[prefix[0]]
	for _, name := range prefix[1:] {
		v, ok = attributeOf(v, name, ok)
	}
	if ok && len(prefix) > 1 {
		ty := firstElement(v).Type()
		if ty.IsObjectType() {
			for _, name := range slices.Sorted(maps.Keys(ty.AttributeTypes())) {
				add(name, ty.AttributeType(name).FriendlyName(), kindField)
			}
		}
	}
	return items
}

// attributeOf returns an attribute of a value, or of its first instance if there are several.
func attributeOf(v cty.Value, name string, ok bool) (cty.Value, bool) {
	if !ok {
		return v, false
	}
	for range 2 {
		v, _ = v.Unmark()
		if v.Type().IsObjectType() && v.Type().HasAttribute(name) && v.IsKnown() && !v.IsNull() {
			return v.GetAttr(name), true
		}
		if v = firstElement(v); v == cty.NilVal {
			break
		}
	}
	return v, false
}

// firstElement returns a value, or the first of several instances.
func firstElement(v cty.Value) cty.Value {
	v, _ = v.Unmark()
	if v.Type().IsTupleType() && v.IsKnown() && v.LengthInt() > 0 {
		return v.Index(cty.NumberIntVal(0))
	}
	return v
}

// outputs returns the outputs of the module that a declaration calls, if its source is a directory.
func (s *server) outputs(d declaration) (names []string) {
	if dir := moduleFolder(d); dir != "" {
		for _, inner := range s.index(dir) {
			if inner.root == "output" {
				names = append(names, inner.name)
			}
		}
	}
	return names
}

// moduleFolder returns the directory of a module with a relative source, or "".
func moduleFolder(d declaration) string {
	if d.body == nil || d.body.Attributes["source"] == nil {
		return ""
	}
	v, diags := d.body.Attributes["source"].Expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String ||
		!strings.HasPrefix(v.AsString(), ".") {
		return ""
	}
	return filepath.Join(filepath.Dir(d.path), v.AsString())
}

func fieldTitle(f block.Field) string {
	text := fmt.Sprintf("**%s** %s", f.Name, f.Type)
	switch {
	case f.IsRequired:
		text += ", required"
	case f.Default != "":
		text += ", default " + f.Default
	}
	return text
}
