package block

import (
	"reflect"
	"slices"
	"strings"

	daemons "clusterctl/daemons/config"
)

// Field is an attribute or a nested block that a body may have.
type Field struct {
	Name       string
	Type       string // as named in the reference
	Default    string
	Doc        string
	IsRequired bool
	IsBlock    bool
	Labels     int
	body       reflect.Type
}

// Nested returns the fields of a nested block.
func (f Field) Nested() []Field {
	if f.body == nil {
		return nil
	}
	return fieldsOf(f.body)
}

type variableBlock struct {
	Type        any               `hcl:"type,optional" doc:"string, number, bool, any, list(…), set(…), map(…), tuple([…]) or object({…})." default:"any"`
	Default     any               `hcl:"default,optional" doc:"Its value when none is given."`
	Description string            `hcl:"description,optional" doc:"Description for readers."`
	Sensitive   bool              `hcl:"sensitive,optional" doc:"Whether the value is never shown." default:"false"`
	Nullable    bool              `hcl:"nullable,optional" doc:"Whether it may be null." default:"true"`
	Validation  []*conditionBlock `hcl:"validation,block" doc:"Conditions for its value."`
}

type moduleBlock struct {
	Source string `hcl:"source" doc:"A folder, as \"./modules/web\", or a Git repository, as \"git::https://HOST/REPOSITORY//FOLDER?ref=TAG\"."`
}

type repeatedBlock struct {
	ForEach   any   `hcl:"for_each,optional" doc:"A map or a set of strings: the block is declared once for each element, each.key and each.value."`
	Count     int   `hcl:"count,optional" doc:"Number of instances: the block is declared once for each count.index."`
	DependsOn []any `hcl:"depends_on,optional" doc:"What must exist and be healthy before this is applied."`
}

type conditionedBlock struct {
	Before []*conditionBlock `hcl:"precondition,block" doc:"Conditions that must be true before the block is evaluated."`
	After  []*conditionBlock `hcl:"postcondition,block" doc:"Conditions for the block's values, which are self."`
}

// Fields returns the fields of a top-level block, and its description.
func Fields(name string, labels []string) (list []Field, doc string) {
	var body any
	switch name {
	case "variable":
		body, doc = variableBlock{}, "A value that the user of the configuration gives."
	case "locals":
		return nil, "Values with names, for use in other expressions as local.NAME."
	case "module":
		body, doc = moduleBlock{}, "A folder of declarations with other values for its variables."
	case "data":
		doc = "A value from outside: from a file, a program or the cluster."
		if len(labels) > 0 {
			if t, ok := FindData(labels[0]); ok {
				body, doc = t.Body, t.Doc
			}
		}
	default:
		for _, t := range slices.Concat(Types, AddressTypes) {
			if t.Name == name {
				body, doc = t.Body, t.Doc
			}
		}
	}
	if body != nil {
		list = fieldsOf(reflect.TypeOf(body))
	}
	if slices.Contains(repeatableTypes, name) || name == "module" || name == "data" {
		list = append(list, fieldsOf(reflect.TypeOf(repeatedBlock{}))...)
	}
	if slices.Contains(conditionalTypes, name) {
		list = append(list, fieldsOf(reflect.TypeOf(conditionedBlock{}))...)
	}
	return list, doc
}

func fieldsOf(body reflect.Type) (list []Field) {
	for i := range body.NumField() {
		f := body.Field(i)
		name, kind, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		if kind == "label" || kind == "remain" {
			continue
		}
		field := Field{
			Name:       name,
			Type:       typeName(f.Type),
			Default:    f.Tag.Get("default"),
			Doc:        docOf(f),
			IsRequired: kind == "",
			IsBlock:    kind == "block",
		}
		if field.IsBlock {
			field.Type, field.body = "block", f.Type
			for field.body.Kind() == reflect.Slice || field.body.Kind() == reflect.Pointer {
				field.body = field.body.Elem()
			}
			field.Labels = countLabels(field.body)
		}
		list = append(list, field)
	}
	if s, ok := reflect.Zero(body).Interface().(settingsBlock); ok {
		for _, one := range daemons.Settings(s.settings()) {
			list = append(
				list,
				Field{
					Name:    one.Name,
					Type:    typeName(reflect.TypeOf(one.Default)),
					Default: daemons.Text(one.Default),
					Doc:     settingHelp(one),
				},
			)
		}
	}
	return list
}

// countLabels returns the number of labels of a block with this body.
func countLabels(body reflect.Type) (n int) {
	for body.Kind() == reflect.Pointer {
		body = body.Elem()
	}
	for i := range body.NumField() {
		if strings.HasSuffix(body.Field(i).Tag.Get("hcl"), ",label") {
			n++
		}
	}
	return n
}

// settingHelp returns a setting's help as a sentence.
func settingHelp(s daemons.Setting) string {
	text := strings.ToUpper(s.Help[:1]) + s.Help[1:] + "."
	if s.Fixed != "" {
		text += " It stays what it was when the cluster was made: " + s.Fixed + "."
	}
	return text
}

// TopLevel returns the top-level block types with their number of labels.
func TopLevel() map[string]int {
	list := map[string]int{}
	for _, b := range Schema().Blocks {
		list[b.Type] = len(b.LabelNames)
	}
	return list
}
