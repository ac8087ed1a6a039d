// Package block defines the blocks of the language. Each block type is one file with its schema (a struct), its
// decoding to package config, its value in expressions, and its validation. Package load reads files and decides in
// which order blocks are evaluated.
package block

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

// Type is a block type.
type Type struct {
	Name   string
	Labels []string
	// Decode adds the content of a block to the cluster, and returns the block's value in expressions, or cty.NilVal if
	// it has none.
	Decode func(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics)

	Doc    string // its description in the reference
	Body   any    // its schema; nil if it takes any attributes
	Values string // its values in expressions
}

// Types are the block types that are decoded into the cluster, in the order of the reference. Package load evaluates
// variables, locals and modules.
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
		"A container image from a file. Nodes get it without a registry. Its tag is derived from its content, so " +
			"that a change replaces the pods.",
		imageBlock{},
		"`image.NAME.reference`, `.digest`",
	},
	{
		"workload",
		[]string{"name"},
		decodeWorkload,
		"A Deployment with its Service, ConfigMap and volumes.",
		workloadBlock{},
		"`workload.NAME.name`, `.namespace`, `.host`",
	},
	{
		"object",
		[]string{"apiVersion", "kind", "name"},
		decodeObject,
		"Any API object. `namespace`, `labels` and `annotations` are the fields of `metadata`; every other attribute " +
			"is a field of the object.",
		nil,
		"",
	},
	{
		"storage_class",
		[]string{"name"},
		decodeStorageClass,
		"A StorageClass. The cluster's own provisioner makes directories of nodes. The volume settings of an " +
			"existing class cannot change; declare a class with another name instead.",
		storageClassBlock{},
		"`storage_class.NAME.name`",
	},
	{
		"load_balancer",
		[]string{"name"},
		decodeLoadBalancer,
		"A pool of addresses for services of type LoadBalancer. One machine of the cluster holds each address on its " +
			"network. If it fails, another machine takes the address.",
		loadBalancerBlock{},
		"`load_balancer.NAME.name`",
	},
	{
		"git_source",
		[]string{"name"},
		decodeGitSource,
		"A folder of a Git repository that the cluster follows by itself, or an artifact of a registry, or a chart " +
			"of a Helm repository: a GitSource, which the GitOps controller reconciles. While a configuration has " +
			"any, the control-plane machines run the controller.",
		gitSourceBlock{},
		"`git_source.NAME.name`, `.namespace`",
	},
	{
		"helm_release",
		[]string{"name"},
		decodeHelmRelease,
		"A release of a Helm chart: a GitSource, as of a git_source block with the renderer helm.",
		helmReleaseBlock{},
		"`helm_release.NAME.name`, `.namespace`, which are those of the GitSource",
	},
	{
		"kustomization",
		[]string{"name"},
		decodeKustomization,
		"A kustomization in a repository: a GitSource, as of a git_source block with the renderer kustomize.",
		kustomizationBlock{},
		"`kustomization.NAME.name`, `.namespace`",
	},
	{"manifests", []string{"name"}, decodeManifests, "API objects from YAML files.", manifestsBlock{}, ""},
	{"output", []string{"name"}, decodeOutput, "A value that `apply` and `output` print.", outputBlock{}, ""},
	{
		"check",
		[]string{"name"},
		decodeCheck,
		"Conditions for the whole configuration. A false condition is a warning: the configuration is still valid.",
		checkBlock{},
		"",
	},
}

// Context is the context in which a block is decoded.
type Context struct {
	Eval   *hcl.EvalContext
	Digest func(path string) (string, error)           // SHA-256 of a file, hex
	Path   func(path string) string                    // resolves a path relative to the configuration
	Glob   func(pattern string) ([]string, error)      // sorted files that match a pattern
	YAML   func(path string) ([]map[string]any, error) // objects in a YAML file

	Module      string   // address of the module with a final dot; empty at the root
	ModuleNames []string // names and keys of the enclosing modules, outermost first

	DependsOn []string // addresses in depends_on of the enclosing modules

	Secrets []string // sensitive texts in the block that is being decoded

	instance  Instance // instance of the block that is being decoded
	dependsOn []string // addresses in depends_on of the block
}

// Schema returns the schema of the top level of a file.
func Schema() *hcl.BodySchema {
	schema := &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "locals"},
		{Type: "module", LabelNames: []string{"name"}},
		{Type: "data", LabelNames: []string{"type", "name"}},
	}}
	for _, t := range slices.Concat(Types, AddressTypes) {
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

// attributeRange returns the range of an attribute of a body, or of the block itself.
func attributeRange(b *hcl.Block, body hcl.Body, name string) *hcl.Range {
	if native, ok := nativeBody(body); ok {
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
	if attributes, _ := body.JustAttributes(); attributes[name] != nil { // in JSON, blocks are attributes too
		return attributes[name].Range.Ptr()
	}
	return b.DefRange.Ptr()
}

// nestedRange returns the range of an attribute inside the first nested block of a type.
func nestedRange(b *hcl.Block, typ, name string) *hcl.Range {
	if native, ok := nativeBody(b.Body); ok {
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

// labelRange returns the range of an attribute that overrides the label, or of the label.
func labelRange(b *hcl.Block, name string) *hcl.Range {
	if native, ok := nativeBody(b.Body); ok && native.Attributes[name] != nil {
		return native.Attributes[name].SrcRange.Ptr()
	}
	return b.LabelRanges[0].Ptr()
}

// nativeBody returns a body as parsed from HCL's native syntax, and reports whether it is one.
func nativeBody(body hcl.Body) (*hclsyntax.Body, bool) {
	native, ok := body.(*hclsyntax.Body)
	return native, ok
}

func newError(at *hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at}
}

func sourceOf(b *hcl.Block) config.Source {
	return config.Source{File: b.DefRange.Filename, Line: b.DefRange.Start.Line}
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func valueOr[T any](p *T, fallback T) T {
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
