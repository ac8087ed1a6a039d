package block

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

type imageBlock struct {
	Archive string `hcl:"archive" doc:"Path of an OCI or docker archive, as docker save and skopeo copy write."`
}

// Registry is the host in the references of images from archives, which have no registry.
const Registry = "clusterctl.local"

func decodeImage(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw imageBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	image := config.Image{Name: x.defaultName(b.Labels[0]), Archive: x.Path(raw.Archive), Source: sourceOf(b)}
	digest, err := x.Digest(image.Archive)
	if err != nil {
		return cty.DynamicVal, append(diags, newError(attributeRange(b, b.Body, "archive"),
			"Archive that cannot be read",
			"%v. An archive is what docker save, podman save --format oci-archive or skopeo copy … oci-archive:FILE "+
				"write.", err))
	}
	image.Digest = digest
	// The tag depends on the content, so that pods that use the image are replaced when it changes.
	image.Reference = Registry + "/" + image.Name + ":" + digest[:16]
	c.Images = append(c.Images, image)
	return cty.ObjectVal(
		map[string]cty.Value{"reference": cty.StringVal(image.Reference), "digest": cty.StringVal("sha256:" + digest)},
	), diags
}
