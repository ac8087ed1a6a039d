package load

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/data"
)

// Errors of data blocks.
var (
	errNotText = errors.New("the file is not text in UTF-8; filebase64 reads others")
	errTimeout = errors.New("timeout is a duration up to 10m, as \"30s\"")
	errMissing = errors.New("the cluster, or this object in it, is not there. Apply what makes it first, or write " +
		"optional = true and say what holds without it")
)

// LiveObject names an object of the cluster that a configuration reads.
type LiveObject struct{ APIVersion, Kind, Namespace, Name string }

// dataValue evaluates a data block.
func (e *evaluator) dataValue(n *node) (cty.Value, hcl.Diagnostics) {
	e.blockContext.Eval, e.blockContext.Secrets = e.scope(n.needs), nil
	v, diags := block.DecodeData(e.blockContext, n.block, func(raw any) (cty.Value, hcl.Diagnostics) {
		v, err := e.read(n.block.Labels[0], raw)
		if err != nil {
			return v, hcl.Diagnostics{newError(n.at.Ptr(), "Data that cannot be read", "%s", toSentence(err.Error()))}
		}
		return v, nil
	})
	if v.IsKnown() {
		v = block.MarkSecrets(v, e.blockContext.Secrets)
	}
	e.configuration.Cluster.Secrets = append(e.configuration.Cluster.Secrets, e.blockContext.Secrets...)
	e.configuration.hasUnknown = e.configuration.hasUnknown || !v.IsWhollyKnown()
	return v, diags
}

func (e *evaluator) read(kind string, raw any) (cty.Value, error) {
	if _, isFile := raw.(block.DataFile); !isFile && e.configuration.root != "" {
		return cty.DynamicVal, fmt.Errorf("objects of a Git repository depend on its files only, so that data %q is "+
			"not available", kind)
	}
	switch raw := raw.(type) {
	case block.DataExternal:
		return e.external(raw)
	case block.DataObject:
		return e.liveObject(raw)
	case block.DataFile:
		text, err := data.ReadFile(e.place.path(raw.Path))
		if err != nil {
			return cty.DynamicVal, err
		}
		if kind != "file" { // data "file" returns the content unchanged
			text = data.WithoutBOM(text)
		}
		return e.fileValue(kind, raw.Path, text)
	}
	return cty.DynamicVal, nil
}

// fileValue returns the value of a data block that reads a file.
func (e *evaluator) fileValue(kind, path string, text []byte) (cty.Value, error) {
	name, v, err := "value", cty.DynamicVal, error(nil)
	switch kind {
	case "file":
		if !utf8.Valid(text) {
			return v, errNotText
		}
		sum := sha256.Sum256(text)
		return cty.ObjectVal(
			map[string]cty.Value{
				"content": cty.StringVal(string(text)),
				"sha256":  cty.StringVal(hex.EncodeToString(sum[:])),
			},
		), nil
	case "yaml":
		if v, err = data.YAML(text); err != nil {
			err = fmt.Errorf("%s is not YAML: %w", path, err)
		}
	case "json":
		if v, err = data.JSON(text); err != nil {
			err = fmt.Errorf("%s is not JSON: %w", path, err)
		}
	case "terraform_output":
		name = "outputs"
		outputs, secret, problem := data.Terraform(text)
		for _, s := range secret {
			e.configuration.hasSensitive = true
			e.blockContext.Secrets = append(e.blockContext.Secrets, block.TextsIn(outputs[s])...)
			outputs[s] = outputs[s].Mark(block.Sensitive)
		}
		if v = cty.ObjectVal(outputs); problem != nil {
			err = fmt.Errorf("%s: %w", path, problem)
		}
	case "ansible_inventory":
		inv, problem := data.Ansible(path, text)
		if problem != nil {
			return v, fmt.Errorf("%s: %w", path, problem)
		}
		return inv.Value()
	}
	return cty.ObjectVal(map[string]cty.Value{name: v}), err
}

// external runs the program of data "external", or returns an unknown value if programs may not be run.
func (e *evaluator) external(raw block.DataExternal) (cty.Value, error) {
	timeout := data.DefaultTimeout
	if raw.Timeout != "" {
		d, err := time.ParseDuration(raw.Timeout)
		if err != nil || d <= 0 || d > data.MaxTimeout {
			return cty.DynamicVal, errTimeout
		}
		timeout = d
	}
	if !e.configuration.runsPrograms {
		return cty.UnknownVal(cty.Object(map[string]cty.Type{"result": cty.Map(cty.String)})), nil
	}
	dir := e.dir
	if raw.WorkingDir != "" {
		dir = pathIn(e.dir)(raw.WorkingDir)
	}
	result, err := data.RunExternal(context.Background(), raw.Program, dir, raw.Query, timeout)
	if err != nil {
		return cty.DynamicVal, err
	}
	values := map[string]cty.Value{}
	for k, v := range result {
		values[k] = cty.StringVal(v)
	}
	if len(values) == 0 {
		return cty.ObjectVal(map[string]cty.Value{"result": cty.MapValEmpty(cty.String)}), nil
	}
	return cty.ObjectVal(map[string]cty.Value{"result": cty.MapVal(values)}), nil
}

// liveObject returns an object of the cluster. The value is unknown until the object has been read.
func (e *evaluator) liveObject(raw block.DataObject) (cty.Value, error) {
	o := LiveObject{raw.APIVersion, raw.Kind, raw.Namespace, raw.Name}
	found, ok := e.configuration.liveObjects[o]
	switch {
	case !ok:
		if !slices.Contains(e.configuration.NeededObjects, o) {
			e.configuration.NeededObjects = append(e.configuration.NeededObjects, o)
		}
		return cty.DynamicVal, nil
	case found == nil && raw.Optional:
		return cty.ObjectVal(map[string]cty.Value{"object": cty.NullVal(cty.DynamicPseudoType)}), nil
	case found == nil:
		return cty.DynamicVal, errMissing
	}
	v, err := data.Value(found)
	if err == nil && raw.Kind == "Secret" {
		e.configuration.hasSensitive = true
		e.blockContext.Secrets = append(e.blockContext.Secrets, attributeTexts(v, "data")...)
	}
	return cty.ObjectVal(map[string]cty.Value{"object": v}), err
}

// isUnknown reports whether one of the references has a value that is known only with the cluster.
func (e *evaluator) isUnknown(needs []hcl.Traversal) bool {
	if !e.configuration.hasUnknown {
		return false
	}
	scope := e.scope(needs)
	return slices.ContainsFunc(needs, func(t hcl.Traversal) bool {
		if slices.Contains(scopedRoots, t.RootName()) {
			return false
		}
		v, diags := t.TraverseAbs(scope)
		return !diags.HasErrors() && !v.IsWhollyKnown()
	})
}

// attributeTexts returns the texts in an attribute, if it exists.
func attributeTexts(v cty.Value, name string) []string {
	if !v.Type().IsObjectType() || !v.Type().HasAttribute(name) {
		return nil
	}
	return block.TextsIn(v.GetAttr(name))
}
