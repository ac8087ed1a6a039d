package device

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

func ResourceSlices() *kind.Kind {
	return &kind.Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"),
		Resource: "resourceslices", Singular: "resourceslice", HasGeneration: true,
		New: kind.New[resourcev1.ResourceSlice](), NewList: kind.New[resourcev1.ResourceSliceList](),
		Default: kind.Adapt(func(s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				for j := range s.Spec.Devices[i].Taints {
					setTaintTime(&s.Spec.Devices[i].Taints[j])
				}
			}
		}),
		Validate: kind.AdaptValidate(validateResourceSlice),
		ValidateUpdate: kind.AdaptValidateUpdate(func(s, old *resourcev1.ResourceSlice) field.ErrorList {
			path := field.NewPath("spec")
			errs := append(validateResourceSlice(s),
				validate.Immutable(s.Spec.Driver, old.Spec.Driver, path.Child("driver"))...)
			errs = append(errs, validate.Immutable(s.Spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
			return append(errs, validate.Immutable(s.Spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))...)
		}),
		Fields: kind.AdaptFields(func(s *resourcev1.ResourceSlice) fields.Set {
			return fields.Set{
				resourcev1.ResourceSliceSelectorNodeName: value.OrZero(
					s.Spec.NodeName,
				), resourcev1.ResourceSliceSelectorDriver: s.Spec.Driver,
				resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
			}
		}),
		IndexedFields: []string{resourcev1.ResourceSliceSelectorNodeName},
		Columns:       kind.NewColumns("Node", "Driver", "Pool", "Age"),
		Row: kind.AdaptRow(func(s *resourcev1.ResourceSlice) []any {
			return []any{value.OrZero(s.Spec.NodeName), s.Spec.Driver, s.Spec.Pool.Name, cell.Age(s.CreationTimestamp)}
		}),
	}
}

func validateResourceSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	errs := volume.ValidateDriverName(spec.Driver, path.Child("driver"))
	errs = append(errs, validatePoolName(spec.Pool.Name, path.Child("pool", "name"))...)
	if spec.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("pool", "resourceSliceCount"), spec.Pool.ResourceSliceCount,
			"must be greater than zero"))
	}
	errs = append(errs, validate.NotNegative(spec.Pool.Generation, path.Child("pool", "generation"))...)
	errs = append(errs, validateSliceNodes(spec, path)...)
	if len(spec.Devices) > 0 && len(spec.SharedCounters) > 0 {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, validateCounterSets(spec.SharedCounters, path.Child("sharedCounters"))...)
	maximum, names := resourcev1.ResourceSliceMaxDevices, sets.New[string]()
	for i := range spec.Devices {
		d, at := &spec.Devices[i], path.Child("devices").Index(i)
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			maximum = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		errs = append(errs, validateDevice(d, value.OrZero(spec.PerDeviceNodeSelection), at)...)
	}
	errs = append(errs, limitCount(len(spec.Devices), maximum, path.Child("devices"))...)
	if name := spec.PartitionTypeAttribute; name != nil {
		errs = append(errs, validateFullyQualified(*name, path.Child("partitionTypeAttribute"))...)
	}
	return append(errs, validateSkipped(spec.SkipNodeOperations, path.Child("skipNodeOperations"))...)
}

// validateSliceNodes requires exactly one way to select the nodes that can use the devices.
func validateSliceNodes(spec *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var ways []string
	if spec.NodeName != nil {
		ways = append(ways, "`nodeName`")
		if *spec.NodeName == "" {
			errs = append(errs, field.Invalid(path.Child("nodeName"), "",
				"must be either unset or set to a non-empty string"))
		} else {
			errs = append(errs, validate.DNSSubdomain(*spec.NodeName, path.Child("nodeName"))...)
		}
	}
	if spec.NodeSelector != nil {
		ways = append(ways, "`nodeSelector`")
		errs = append(errs, requireOneNodeTerm(spec.NodeSelector, path.Child("nodeSelector"))...)
	}
	for _, flag := range []struct {
		name string
		set  *bool
	}{{"allNodes", spec.AllNodes}, {"perDeviceNodeSelection", spec.PerDeviceNodeSelection}} {
		if flag.set == nil {
			continue
		}
		ways = append(ways, "`"+flag.name+"`")
		if !*flag.set {
			errs = append(errs, field.Invalid(path.Child(flag.name), false, "must be either unset or set to true"))
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch len(ways) {
	case 0:
		errs = append(errs, field.Required(path, one))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, fmt.Sprint(ways), one+", but multiple fields are set"))
	}
	return errs
}

func validateSkipped(list []resourcev1.SkipNodeOperation, path *field.Path) field.ErrorList {
	const prepare, unprepare, all = resourcev1.SkipNodeOperationNodePrepareResources,
		resourcev1.SkipNodeOperationNodeUnprepareResources, resourcev1.SkipNodeOperationAll
	var errs field.ErrorList
	again := validate.MarkRepeats(list)
	for i, op := range list {
		if again[i] {
			errs = append(errs, field.Duplicate(path.Index(i), op))
		}
		errs = append(errs, validate.Supported(op, []resourcev1.SkipNodeOperation{all, prepare, unprepare},
			path.Index(i))...)
	}
	if slices.Contains(list, prepare) && !slices.Contains(list, unprepare) && !slices.Contains(list, all) {
		errs = append(errs, field.Invalid(path, list,
			"\"NodePrepareResources\" cannot be specified unless \"NodeUnprepareResources\" is also listed"))
	}
	return errs
}
