package block

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// DataType is a type of data blocks, which read values from outside the configuration.
type DataType struct {
	Name   string
	Doc    string
	Body   any    // its schema
	Values string // its values in expressions
	// UnsupportedReason explains why this type does not exist, for types that users may expect.
	UnsupportedReason string
}

// DataTypes are the types of data blocks, in the order of the reference.
var DataTypes = []DataType{
	{"file", "The content of a file.", DataFile{}, "`.content`, `.sha256`", ""},
	{"yaml", "A YAML file as a value. Several documents in one file become a list.", DataFile{}, "`.value`", ""},
	{"json", "A JSON file as a value.", DataFile{}, "`.value`", ""},
	{
		"object",
		"An object of the cluster. It is read when a plan is made; in `validate` it is unknown.",
		DataObject{},
		"`.object`, null if it does not exist and `optional = true`",
		"",
	},
	{
		"external",
		"The output of a program. It reads the query as a JSON object from standard input and prints a JSON object " +
			"of strings, as with Terraform. It runs when a plan is made; in `validate` the result is unknown.",
		DataExternal{},
		"`.result`",
		"",
	},
	{
		"terraform_output",
		"Outputs of Terraform, from the output of `terraform output -json` or from a state file. Sensitive outputs " +
			"stay sensitive.",
		DataFile{},
		"`.outputs`",
		"",
	},
	{"ansible_inventory", "An inventory of Ansible in INI, in YAML, or in the output format of " +
		"`ansible-inventory --list`. The file name selects the format, as in Ansible. Only this file is read: for " +
		"inventory scripts, plugins, `group_vars` and `host_vars`, use the output of `ansible-inventory --list`.",
		DataFile{},
		"`.hosts`, by name, each with `.name`, `.address`, `.port`, `.user`, `.groups` and `.vars`; `.groups`, by " +
			"name, each a list of hosts", ""},
	{
		"facts",
		"",
		nil,
		"",
		"Facts of a machine are known only after clusterctl has connected to it, and the configuration is evaluated " +
			"before. Take facts from an inventory, or from a program with data \"external\".",
	},
}

// DataFile is the schema of data blocks that read a file.
type DataFile struct {
	Path string `hcl:"path" doc:"Path of the file, relative to the configuration."`
}

// DataObject is the schema of data "object".
type DataObject struct {
	APIVersion string `hcl:"api_version" doc:"Group and version, as \"v1\" or \"apps/v1\"."`
	Kind       string `hcl:"kind" doc:"Kind, as \"ConfigMap\"."`
	Namespace  string `hcl:"namespace,optional" doc:"Namespace of an object that is in one." default:"\"default\""`
	Name       string `hcl:"name" doc:"Name."`
	Optional   bool   `hcl:"optional,optional" doc:"Whether the object, or the whole cluster, may be missing: .object is null then." default:"false"`
}

// DataExternal is the schema of data "external".
type DataExternal struct {
	Program    []string          `hcl:"program" doc:"The program and its arguments."`
	Query      map[string]string `hcl:"query,optional" doc:"Its arguments."`
	WorkingDir string            `hcl:"working_dir,optional" doc:"Working directory, relative to the configuration." default:"the configuration's"`
	Timeout    string            `hcl:"timeout,optional" doc:"Timeout, at most 10m." default:"\"30s\""`
}

// FindData returns the data type with a name.
func FindData(name string) (DataType, bool) {
	for _, t := range DataTypes {
		if t.Name == name {
			return t, true
		}
	}
	return DataType{}, false
}

// DecodeData decodes a data block for each of its instances, and returns the values that read returns for them.
func DecodeData(
	x *Context,
	b *hcl.Block,
	read func(raw any) (cty.Value, hcl.Diagnostics),
) (cty.Value, hcl.Diagnostics) {
	t, ok := FindData(b.Labels[0])
	if !ok || t.UnsupportedReason != "" {
		var names []string
		for _, t := range DataTypes {
			if t.UnsupportedReason == "" {
				names = append(names, t.Name)
			}
		}
		if ok {
			return cty.DynamicVal, hcl.Diagnostics{
				newError(b.LabelRanges[0].Ptr(), "Data that cannot be had", "%s", t.UnsupportedReason),
			}
		}
		return cty.DynamicVal, hcl.Diagnostics{
			newError(b.LabelRanges[0].Ptr(), "Unknown kind of data", "There is no data %q.%s The kinds are %s.",
				b.Labels[0], Suggest(b.Labels[0], names), strings.Join(names, ", ")),
		}
	}
	outer := x.Eval
	defer func() { x.Eval = outer }()
	before, after, body, diags := conditions(b)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	one := *b
	one.Body = body
	instances, rest, diags := expandInstances(x, &one)
	_, rest, more := dependsOn(x, b, rest)
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	var values []cty.Value
	for _, i := range instances {
		eval := i.Eval(outer)
		if diags = append(diags, checkRules(before, eval, hcl.DiagError, "Precondition failed")...); diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		raw := reflect.New(reflect.TypeOf(t.Body))
		diags = append(diags, x.decode(rest, eval, raw.Interface())...)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		v, more := read(raw.Elem().Interface())
		if diags = append(diags, more...); more.HasErrors() {
			return cty.DynamicVal, diags
		}
		if diags = append(diags,
			checkRules(after, withSelf(eval, v), hcl.DiagError, "Postcondition failed")...); diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		values = append(values, v)
	}
	return CombineInstances(b, instances, values), diags
}

// dataReference writes the reference of all data types in Markdown.
func dataReference(out *strings.Builder) {
	out.WriteString(
		"### data\n\n`data \"TYPE\" \"NAME\" { … }`. A value from outside, as `data.TYPE.NAME` in expressions.\n\n")
	for _, t := range DataTypes {
		if t.UnsupportedReason != "" {
			continue
		}
		fmt.Fprintf(out, "**data \"%s\"**: %s Gives %s.\n\n", t.Name, t.Doc, t.Values)
		writeBody(out, t.Name, reflect.TypeOf(t.Body))
	}
}
