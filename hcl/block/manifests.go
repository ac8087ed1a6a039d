package block

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/hcl/config"
)

type manifestsBlock struct {
	Files []string `hcl:"files" doc:"Patterns of YAML or JSON files, relative to the configuration, in the syntax of fileset. Lists, such as ConfigMapList, are replaced by their items. A pattern without a match is an error."`

	Lifecycle *lifecycleBlock `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

// decodeManifests reads the objects in YAML files. A pattern without a match is an error, because it is usually a
// mistake.
func decodeManifests(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw manifestsBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	ignored, diags := raw.Lifecycle.decodeIgnored(objectField("", "", false))
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	before := len(c.Objects)
	at := attributeRange(b, b.Body, "files")
	written := x.fullAddress("manifests." + b.Labels[0])
	for _, pattern := range raw.Files {
		files, err := x.Glob(pattern)
		if err != nil {
			diags = append(diags, newError(at, "Invalid pattern", "%q: %v.", pattern, err))
			continue
		}
		if len(files) == 0 {
			diags = append(diags, newError(at, "No such manifest", "No file matches %q.", pattern))
		}
		for _, file := range files {
			objects, err := x.YAML(file)
			if err != nil {
				diags = append(diags, newError(at, "Invalid manifest", "%v.", err))
				continue
			}
			for i, o := range objects {
				if err := withoutNamespaceError(checkObject(o, true)); err != nil {
					diags = append(diags,
						newError(at, "Invalid manifest", "%s, object %d: %s", file, i+1, sentence(err)))
				}
				c.Objects = append(c.Objects, config.Object{
					Address: fmt.Sprintf("%s[%s#%d]", written, filepath.Base(file), i+1), Block: written,
					Content: o, PreventDestroy: raw.Lifecycle.preventDestroy(), Ignored: ignored,
					Source: config.Source{File: file, Line: 1}, DependsOn: x.dependsOn,
				})
			}
		}
	}
	return cty.NilVal, append(diags, raw.Lifecycle.unusedFields(c.Objects[before:])...)
}

// withoutNamespaceError removes from an error of checkObject that a cluster-scoped object has a namespace. Many
// published manifests set one, and the API server clears it.
func withoutNamespaceError(err error) error {
	refused := (*invalidObjectError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(refused.errs), func(e *field.Error) bool {
		return e.Type == field.ErrorTypeForbidden && e.Field == "metadata.namespace"
	})
	if len(rest) == 0 {
		return nil
	}
	return &invalidObjectError{refused.kind, rest}
}
