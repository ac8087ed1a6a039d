// Package block is the language's vocabulary: one file per block type, with its
// schema (a struct), what it decodes to in hcl/config, what it can be asked for in
// expressions, and what makes it invalid. Reading files and deciding in which
// order blocks are evaluated is hcl/load's.
package block

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

// Type is one type of block.
type Type struct {
	Name   string
	Labels []string
	// Decode adds what the block says to the cluster and returns the value that
	// expressions see for it (cty.NilVal when there is none).
	Decode func(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics)

	Doc   string // what it is, for the reference
	Body  any    // its schema; nil when its attributes are any
	Gives string // what expressions see for it
}

// Types is every block type that is decoded into the cluster, in the order of the
// reference. Variables, locals and modules are evaluated by hcl/load.
var Types = []Type{
	{"cluster", []string{"name"}, decodeCluster, "The cluster. There is exactly one.", clusterBlock{},
		"`cluster.NAME.name`, `.version`, `.domain`, `.pod_cidrs`, `.service_cidrs`, `.endpoint`, `.dns_address`"},
	{
		"machine",
		[]string{"name"},
		decodeMachine,
		"A computer that the cluster runs on. Removing the block removes the machine from the cluster.",
		machineBlock{},
		"`machine.NAME.name`, `.address`, `.roles`, `.labels`",
	},
	{
		"image",
		[]string{"name"},
		decodeImage,
		"A container image from a file. The nodes get it without a registry; its tag follows its content, so that " +
			"pods roll when it changes.",
		imageBlock{},
		"`image.NAME.reference`, `.digest`",
	},
	{
		"workload",
		[]string{"name"},
		decodeWorkload,
		"A Deployment with what belongs to it: a Service, a ConfigMap, volumes.",
		workloadBlock{},
		"`workload.NAME.name`, `.namespace`, `.host`",
	},
	{
		"object",
		[]string{"apiVersion", "kind", "name"},
		decodeObject,
		"Any API object. `namespace`, `labels` and `annotations` stand for the fields of `metadata`; every other " +
			"attribute is a field of the object.",
		nil,
		"",
	},
	{
		"storage_class",
		[]string{"name"},
		decodeStorageClass,
		"A StorageClass: where claims get their volumes. With the cluster's own provisioner they are directories of " +
			"nodes. What a class says of volumes cannot change while it is there; another name is another class.",
		storageClassBlock{},
		"`storage_class.NAME.name`",
	},
	{
		"load_balancer",
		[]string{"name"},
		decodeLoadBalancer,
		"A pool of addresses for services of type LoadBalancer. A machine of the cluster answers for each of them on " +
			"its network, and another one when that dies.",
		loadBalancerBlock{},
		"`load_balancer.NAME.name`",
	},
	{"manifests", []string{"name"}, decodeManifests, "API objects from YAML files.", manifestsBlock{}, ""},
	{"output", []string{"name"}, decodeOutput, "A value that `apply` and `output` print.", outputBlock{}, ""},
	{
		"check",
		[]string{"name"},
		decodeCheck,
		"What should hold of the whole. What does not is a warning: the configuration is still valid.",
		checkBlock{},
		"",
	},
}

// Context is what a block is decoded with.
type Context struct {
	Eval   *hcl.EvalContext
	Digest func(path string) (string, error)           // sha256 of a file, hex
	Path   func(path string) string                    // path relative to the configuration
	Glob   func(pattern string) ([]string, error)      // files, sorted
	YAML   func(path string) ([]map[string]any, error) // objects of a file

	Module      string   // the address of the module with a dot, empty at the top
	ModuleNames []string // names and keys of the modules, from the top

	After []string // addresses that depends_on of the modules names

	Secrets []string // texts that had the mark Sensitive, of the block that is decoded

	instance Instance // of the block that is decoded
	after    []string // addresses that depends_on of the block names
}

// Schema is the top level of a file.
func Schema() *hcl.BodySchema {
	schema := &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "locals"},
		{Type: "module", LabelNames: []string{"name"}},
		{Type: "data", LabelNames: []string{"type", "name"}},
	}}
	for _, t := range slices.Concat(Types, Statements) {
		schema.Blocks = append(schema.Blocks, hcl.BlockHeaderSchema{Type: t.Name, LabelNames: t.Labels})
	}
	return schema
}

// Find returns the block type with a name.
func Find(name string) (Type, bool) {
	for _, t := range Types {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}

// attr returns the range of an attribute of a body, or of the block itself.
func attr(b *hcl.Block, body hcl.Body, name string) *hcl.Range {
	if native, ok := written(body); ok {
		if a, ok := native.Attributes[name]; ok {
			r := a.SrcRange
			return &r
		}
		for _, nested := range native.Blocks {
			if nested.Type == name || nested.Type == "dynamic" && slices.Contains(nested.Labels, name) {
				r := nested.DefRange()
				return &r
			}
		}
	}
	if attributes, _ := body.JustAttributes(); attributes[name] != nil { // JSON, where blocks are attributes too
		return attributes[name].Range.Ptr()
	}
	return b.DefRange.Ptr()
}

// nested returns the range of an attribute inside the first nested block of a type.
func nested(b *hcl.Block, typ, name string) *hcl.Range {
	if native, ok := written(b.Body); ok {
		for _, inner := range native.Blocks {
			if inner.Type == "dynamic" && slices.Contains(inner.Labels, typ) {
				r := inner.DefRange()
				return &r
			}
			if inner.Type == typ {
				if a, ok := inner.Body.Attributes[name]; ok {
					r := a.SrcRange
					return &r
				}
				r := inner.DefRange()
				return &r
			}
		}
	}
	return b.DefRange.Ptr()
}

// labelOr returns the range of an attribute that stands for the label, or of the label.
func labelOr(b *hcl.Block, name string) *hcl.Range {
	if native, ok := written(b.Body); ok && native.Attributes[name] != nil {
		return native.Attributes[name].SrcRange.Ptr()
	}
	return b.LabelRanges[0].Ptr()
}

// written is a body as it stands in a file of the native syntax.
func written(body hcl.Body) (*hclsyntax.Body, bool) {
	native, ok := body.(*hclsyntax.Body)
	return native, ok
}

func fail(at *hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at}
}

func source(b *hcl.Block) config.Source {
	return config.Source{File: b.DefRange.Filename, Line: b.DefRange.Start.Line}
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func deref[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

func stringMap(m map[string]string) cty.Value {
	if len(m) == 0 {
		return cty.MapValEmpty(cty.String)
	}
	values := map[string]cty.Value{}
	for k, v := range m {
		values[k] = cty.StringVal(v)
	}
	return cty.MapVal(values)
}

func stringList[T any](list []T) cty.Value {
	if len(list) == 0 {
		return cty.ListValEmpty(cty.String)
	}
	values := make([]cty.Value, 0, len(list))
	for _, s := range list {
		values = append(values, cty.StringVal(fmt.Sprint(s)))
	}
	return cty.ListVal(values)
}
