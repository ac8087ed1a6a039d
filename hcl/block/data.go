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
	{"file", "A file as it is.", DataFile{}, "`.content`, `.sha256`", ""},
	{"yaml", "A YAML file as a value; one of several documents is a list of them.", DataFile{}, "`.value`", ""},
	{"json", "A JSON file as a value.", DataFile{}, "`.value`", ""},
	{
		"object",
		"An object as it is in the cluster. It is read when a plan is made; `validate` takes it as unknown.",
		DataObject{},
		"`.object`, null when it is not there and `optional = true`",
		"",
	},
	{
		"external",
		"What a program prints: it gets the query as a JSON object on its standard input and prints a JSON object of " +
			"texts, as Terraform's does. It runs when a plan is made; `validate` takes it as unknown.",
		DataExternal{},
		"`.result`",
		"",
	},
	{
		"terraform_output",
		"The outputs of Terraform, of a file that `terraform output -json` wrote or of a state file. Sensitive ones " +
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
		"What a machine is becomes known when it has been connected to, and the configuration says which machines " +
			"there are and is worked out before that. Take facts from an inventory, or from a program with data " +
			"\"external\".",
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
	Optional   bool   `hcl:"optional,optional" doc:"It may be missing, also with the whole cluster: .object is null then." default:"false"`
}

// DataExternal is the schema of data "external".
type DataExternal struct {
	Program    []string          `hcl:"program" doc:"The program and its arguments."`
	Query      map[string]string `hcl:"query,optional" doc:"What it is told."`
	WorkingDir string            `hcl:"working_dir,optional" doc:"Folder that it runs in, relative to the configuration." default:"the configuration's"`
	Timeout    string            `hcl:"timeout,optional" doc:"How long it may run, at most 10m." default:"\"30s\""`
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
		var known []string
		for _, t := range DataTypes {
			if t.UnsupportedReason == "" {
				known = append(known, t.Name)
			}
		}
		if ok {
			return cty.DynamicVal, hcl.Diagnostics{
				newError(b.LabelRanges[0].Ptr(), "Data that cannot be had", "%s", t.UnsupportedReason),
			}
		}
		return cty.DynamicVal, hcl.Diagnostics{
			newError(
				b.LabelRanges[0].Ptr(),
				"Unknown kind of data",
				"There is no data %q.%s The kinds are %s.",
				b.Labels[0],
				Suggest(b.Labels[0], known),
				strings.Join(known, ", "),
			),
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
		"### data\n\n`data \"TYPE\" \"NAME\" { … }`. A value from outside, as `data.TYPE.NAME` in expressions.\n\n",
	)
	for _, t := range DataTypes {
		if t.UnsupportedReason != "" {
			continue
		}
		fmt.Fprintf(out, "**data \"%s\"**: %s Gives %s.\n\n", t.Name, t.Doc, t.Values)
		writeTable(out, t.Name, reflect.TypeOf(t.Body))
	}
}
