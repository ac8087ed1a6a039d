package device

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// Checks that ResourceClaims and ResourceSlices share.

func limitCount(n, maximum int, path *field.Path) field.ErrorList {
	if n > maximum {
		return field.ErrorList{field.TooMany(path, n, maximum)}
	}
	return nil
}

// validatePoolName requires DNS names separated by slashes.
func validatePoolName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, name, resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, validate.DNSSubdomain(part, path)...)
	}
	return errs
}

var identifierPattern = validate.Pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

// validateQualifiedName requires a C identifier, optionally after a domain and a slash.
func validateQualifiedName(name resourcev1.QualifiedName, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name required")}
	}
	domain, id, found := strings.Cut(string(name), "/")
	if !found {
		return validateIdentifier(string(name), path)
	}
	var errs field.ErrorList
	switch {
	case domain == "":
		errs = append(errs, field.Invalid(path, domain, "the domain must not be empty"))
	case len(domain) > resourcev1.DeviceMaxDomainLength:
		errs = append(errs, field.TooLong(path, domain, resourcev1.DeviceMaxDomainLength))
	default:
		errs = append(errs, validate.DNSSubdomain(domain, path)...)
	}
	return append(errs, validateIdentifier(id, path)...)
}

func validateIdentifier(id string, path *field.Path) field.ErrorList {
	switch {
	case id == "":
		return field.ErrorList{field.Invalid(path, id, "the name must not be empty")}
	case len(id) > resourcev1.DeviceMaxIDLength:
		return field.ErrorList{field.TooLong(path, id, resourcev1.DeviceMaxIDLength)}
	case !identifierPattern().MatchString(id):
		return validate.Invalid(path, id, validation.IsCIdentifier(id))
	}
	return nil
}

// validateFullyQualified requires a qualified name with a domain.
func validateFullyQualified(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	errs := validateQualifiedName(resourcev1.QualifiedName(name), path)
	if name != "" && !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(path, name, "must include a domain"))
	}
	return errs
}

// validateRawObject requires a JSON object of at most maximum bytes.
func validateRawObject(raw []byte, maximum int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var object map[string]json.RawMessage
	switch {
	case len(raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(raw) > maximum:
		errs = append(errs, field.TooLong(path, "", maximum))
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err)))
	} else if object == nil {
		errs = append(errs, field.Invalid(path, "<value omitted>", "must be a valid JSON object"))
	}
	return errs
}

var deviceEffects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute,
	resourcev1.DeviceTaintEffectNoSchedule,
	resourcev1.DeviceTaintEffectNone,
}

func validateDeviceTaint(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelName(t.Key, at.Child("key"))
	if t.Value != "" {
		errs = append(errs, validate.LabelValue(t.Value, at.Child("value"))...)
	}
	return append(errs, validate.Supported(t.Effect, deviceEffects, at.Child("effect"))...)
}

func validateDeviceTolerations(list []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	errs := limitCount(len(list), resourcev1.DeviceTolerationsMaxLength, path)
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		switch t.Operator {
		case resourcev1.DeviceTolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
			}
		case resourcev1.DeviceTolerationOpEqual:
			errs = append(errs, validate.LabelValue(t.Value, at.Child("value"))...)
			if t.Key == "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
					"must be Exists when `key` is empty"))
			}
		default:
			errs = append(
				errs,
				validate.Supported(
					t.Operator,
					[]resourcev1.DeviceTolerationOperator{
						resourcev1.DeviceTolerationOpEqual,
						resourcev1.DeviceTolerationOpExists,
					},
					at.Child("operator"),
				)...)
		}
		if t.Effect != "" && !slices.Contains(deviceEffects[:2], t.Effect) {
			errs = append(errs, validate.NotSupported(at.Child("effect"), t.Effect, deviceEffects[:2]))
		}
	}
	return errs
}

// requireOneNodeTerm requires a node selector with exactly one term.
func requireOneNodeTerm(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	if len(s.NodeSelectorTerms) != 1 {
		return field.ErrorList{
			field.Invalid(path.Child("nodeSelectorTerms"), s.NodeSelectorTerms,
				"must have exactly one node selector term"),
		}
	}
	return validate.NodeTerm(s.NodeSelectorTerms[0], path.Child("nodeSelectorTerms").Index(0))
}

// extendedResourceNameErrors returns the errors of an extended resource's name.
func extendedResourceNameErrors(name string) []string {
	if !validate.IsExtended(corev1.ResourceName(name)) ||
		strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return []string{"must be a valid extended resource name"}
	}
	return validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix + name)
}
