package block

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	daemons "clusterctl/daemons/config"
)

// Reference returns a description of every block type in Markdown, generated from the schema structs and their tags.
func Reference() string {
	out := &strings.Builder{}
	for _, t := range slices.Concat(Types, AddressTypes) {
		var labels []string
		for _, l := range t.Labels {
			labels = append(labels, `"`+strings.ToUpper(l)+`"`)
		}
		fmt.Fprintf(out, "### %s\n\n", t.Name)
		head := strings.Join(append([]string{t.Name}, labels...), " ")
		fmt.Fprintf(out, "`%s { … }`. %s\n\n", head, t.Doc)
		if t.Body != nil {
			writeBody(out, t.Name, reflect.TypeOf(t.Body))
		}
		if t.Values != "" {
			fmt.Fprintf(out, "In expressions: %s.\n\n", t.Values)
		}
	}
	dataReference(out)
	return out.String()
}

// writeAttribute writes the list item of an attribute or of a nested block.
func writeAttribute(out *strings.Builder, name, typ, fallback, doc string) {
	switch fallback {
	case "":
	case required:
		typ += ", " + required
	default:
		typ += ", default " + fallback
	}
	fmt.Fprintf(out, "- **`%s`**, %s. %s\n", name, typ, doc)
}

const required = "required"

// writeBody writes the list of a body's attributes, followed by the lists of its nested blocks.
func writeBody(out *strings.Builder, path string, body reflect.Type) {
	type inner struct {
		path string
		body reflect.Type
	}
	var blocks []inner
	for i := range body.NumField() {
		f := body.Field(i)
		name, kind, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		fallback := f.Tag.Get("default")
		typ := typeName(f.Type)
		switch {
		case kind == "label", kind == "remain":
			continue
		case kind == "block":
			typ = "block"
			nested, label := f.Type, ""
			if nested.Kind() == reflect.Slice {
				typ = "blocks"
			}
			if countLabels(nested.Elem()) > 0 {
				label = ` "NAME"`
			}
			if nested = nested.Elem(); !strings.HasPrefix(name, "init_") { // the same as the block without the prefix
				blocks = append(blocks, inner{path + " → " + name + label, nested})
			}
		case kind == "":
			fallback = required
		}
		if fallback != "" && kind != "" {
			fallback = "`" + fallback + "`"
			if fallback == "`none`" || strings.ContainsAny(fallback, " '") { // a phrase, not a value
				fallback = strings.Trim(fallback, "`")
			}
		}
		writeAttribute(out, name, typ, fallback, docOf(f))
	}
	if s, ok := reflect.Zero(body).Interface().(settingsBlock); ok {
		for _, one := range daemons.Settings(s.settings()) {
			writeAttribute(out, one.Name, typeName(reflect.TypeOf(one.Default)),
				quoteDefault(daemons.Text(one.Default)), settingHelp(one))
		}
	}
	out.WriteString("\n")
	for _, b := range blocks {
		fmt.Fprintf(out, "**%s**\n\n", b.path)
		writeBody(out, b.path, b.body)
	}
}

func quoteDefault(text string) string {
	if text == "" || text == `""` {
		return ""
	}
	return "`" + text + "`"
}

// docOf returns the description of an attribute or a nested block, with the kinds of workloads that have it.
func docOf(f reflect.StructField) string {
	doc := f.Tag.Get("doc")
	if kinds := strings.Fields(f.Tag.Get("kinds")); len(kinds) == 1 {
		doc += " Only in the kind " + kinds[0] + "."
	} else if len(kinds) > 1 {
		doc += " Only in the kinds " + joinWords(kinds) + "."
	}
	return doc
}

// typeName returns a field type's name in the language.
func typeName(t reflect.Type) string {
	switch t.String() {
	case "time.Duration", "v1.Duration":
		return "string"
	case "*hcl.Attribute":
		return "[probe](#probes)"
	case "hcl.Expression":
		return "any"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list(" + typeName(t.Elem()) + ")"
	case reflect.Map:
		return "map(" + typeName(t.Elem()) + ")"
	case reflect.Int, reflect.Float64:
		return "number"
	}
	return t.Kind().String()
}
