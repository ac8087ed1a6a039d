package block

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/daemons/api/directory"
	"clusterctl/hcl/config"
)

type storageClassBlock struct {
	Name           string              `hcl:"name,optional" doc:"Name of the StorageClass." default:"the block's label"`
	Default        *bool               `hcl:"default,optional" doc:"Whether claims without a class use it. Only one class may be the default." default:"false"`
	Provisioner    string              `hcl:"provisioner,optional" doc:"Provisioner of the volumes. The cluster's own provisioner creates directories below /var/lib/clusterctl/volumes on the node of a claim's first pod; others are programs that you run in the cluster." default:"\"clusterctl.local/directory\""`
	ReclaimPolicy  string              `hcl:"reclaim_policy,optional" doc:"What happens to a volume and its data when its claim is deleted: Delete or Retain." default:"\"Delete\""`
	BindingMode    string              `hcl:"volume_binding_mode,optional" doc:"When a claim gets its volume: WaitForFirstConsumer, on the node of its first pod, or Immediate, which directories of nodes do not support." default:"\"WaitForFirstConsumer\""`
	AllowExpansion *bool               `hcl:"allow_volume_expansion,optional" doc:"Whether claims may be expanded." default:"true"`
	Parameters     map[string]string   `hcl:"parameters,optional" doc:"Parameters of the provisioner. The cluster's own provisioner has none." default:"none"`
	Topologies     map[string][]string `hcl:"allowed_topologies,optional" doc:"Labels of nodes that may have volumes, as { \"topology.kubernetes.io/zone\" = [\"a\", \"b\"] }." default:"all nodes"`
	MountOptions   []string            `hcl:"mount_options,optional" doc:"Mount options of volumes. Directories of nodes do not support them." default:"none"`
	Annotations    map[string]string   `hcl:"annotations,optional" doc:"Annotations of the StorageClass."`
	Labels         map[string]string   `hcl:"labels,optional" doc:"Labels of the StorageClass."`
	Lifecycle      *lifecycleBlock     `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

// defaultClassAnnotation is the annotation of the StorageClass for claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// decodeStorageClass decodes a StorageClass, which is handled like every other object afterwards.
func decodeStorageClass(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw storageClassBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	wrong := func(name, summary, format string, args ...any) {
		diags = append(diags, newError(attributeRange(b, b.Body, name), summary, format, args...))
	}
	provisioner := orDefault(raw.Provisioner, directory.Provisioner)
	if errs := validation.IsQualifiedName(strings.ToLower(provisioner)); len(errs) > 0 {
		wrong("provisioner", "Invalid provisioner",
			"%q cannot name a provisioner, as \"csi.example.com\" does: %s. Leave it out for directories of nodes.",
			provisioner, errs[0])
	}
	policy := orDefault(raw.ReclaimPolicy, string(corev1.PersistentVolumeReclaimDelete))
	mode := orDefault(raw.BindingMode, string(storagev1.VolumeBindingWaitForFirstConsumer))
	if supported := []string{string(corev1.PersistentVolumeReclaimDelete),
		string(corev1.PersistentVolumeReclaimRetain)}; !slices.Contains(supported, policy) {
		wrong("reclaim_policy", "Unknown reclaim policy",
			"%q is not known: write %q to have a volume's data removed with its claim, or %q to have it kept.", policy,
			supported[0], supported[1])
	}
	if supported := []string{string(storagev1.VolumeBindingWaitForFirstConsumer),
		string(storagev1.VolumeBindingImmediate)}; !slices.Contains(supported, mode) {
		wrong("volume_binding_mode", "Unknown binding mode", "%q is not known.%s The modes are %q and %q.", mode,
			Suggest(mode, supported), supported[0], supported[1])
	}
	if provisioner == directory.Provisioner {
		if mode == string(storagev1.VolumeBindingImmediate) {
			wrong("volume_binding_mode", "Volume without a node",
				"A directory is on one node, which the scheduler chooses with the claim's first pod: leave "+
					"volume_binding_mode out.")
		}
		if len(raw.Parameters) > 0 {
			wrong("parameters", "Parameters without effect",
				"%s has none: directories lie below %s of their node, on a disk of its own where you mount one there.",
				provisioner, directory.Root)
		}
		if len(raw.MountOptions) > 0 {
			wrong("mount_options", "Options without effect",
				"A directory of a node is not a file system of its own: leave mount_options out.")
		}
	}
	diags = append(diags, raw.Lifecycle.rejectIgnore("The volume settings of a storage class cannot change while it "+
		"exists. To ignore its labels or annotations, declare it as object \"storage.k8s.io/v1\" \"StorageClass\".")...)
	name := orDefault(raw.Name, x.defaultName(b.Labels[0]))
	content := raw.content(name, provisioner, policy, mode)
	if err := checkObject(content, true); err != nil && !diags.HasErrors() {
		diags = append(diags, newError(b.DefRange.Ptr(), "Object that the API refuses", "%s", sentence(err)))
	}
	address := x.fullAddress("storage_class." + b.Labels[0])
	c.Objects = append(
		c.Objects,
		config.Object{
			Address:        address,
			Block:          address,
			PreventDestroy: raw.Lifecycle.preventDestroy(),
			Content:        content,
			DependsOn:      x.dependsOn,
			Source:         sourceOf(b),
		},
	)
	return cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(name)}), diags
}

// content returns the StorageClass as an API object.
func (raw *storageClassBlock) content(name, provisioner, policy, mode string) map[string]any {
	metadata := map[string]any{"name": name}
	if len(raw.Labels) > 0 {
		metadata["labels"] = plainMap(raw.Labels)
	}
	annotations := plainMap(raw.Annotations)
	if valueOr(raw.Default, false) {
		annotations[defaultClassAnnotation] = "true"
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	content := map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, "provisioner": provisioner,
		"reclaimPolicy": policy, "volumeBindingMode": mode, "allowVolumeExpansion": valueOr(raw.AllowExpansion, true),
	}
	if len(raw.Parameters) > 0 {
		content["parameters"] = plainMap(raw.Parameters)
	}
	if len(raw.MountOptions) > 0 {
		content["mountOptions"] = plainList(raw.MountOptions)
	}
	if len(raw.Topologies) > 0 {
		var expressions []any
		for _, key := range slices.Sorted(maps.Keys(raw.Topologies)) {
			expressions = append(expressions, map[string]any{"key": key, "values": plainList(raw.Topologies[key])})
		}
		content["allowedTopologies"] = []any{map[string]any{"matchLabelExpressions": expressions}}
	}
	return content
}

// checkDefaultClass returns an error for a second default StorageClass, because the newer of the two would be used.
func checkDefaultClass(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	var first *config.Object
	for i := range c.Objects {
		o := &c.Objects[i]
		metadata, _ := o.Content["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		switch {
		case o.Content["kind"] != "StorageClass" || fmt.Sprint(annotations[defaultClassAnnotation]) != "true":
		case first == nil:
			first = o
		default:
			diags = append(diags, newError(at(o.Source), "Two default classes",
				"%s and %s (%s) are both the class of claims that name none. Take default away from one.", o.Address,
				first.Address, positionText(first.Source)))
		}
	}
	return diags
}

func plainMap(m map[string]string) map[string]any {
	plain := map[string]any{}
	for k, v := range m {
		plain[k] = v
	}
	return plain
}

func plainList(list []string) (plain []any) {
	for _, e := range list {
		plain = append(plain, e)
	}
	return plain
}
