package kinds

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Checks that several kinds share. The messages are upstream's, since users search for them.

const (
	immutableText   = "field is immutable"
	notNegativeText = "must be greater than or equal to 0"
)

// markRepeats returns, for each value of a list, whether an earlier one is equal.
func markRepeats[T comparable](list []T) []bool {
	seen, again := make(map[T]struct{}, len(list)), make([]bool, len(list))
	for i, v := range list {
		_, again[i] = seen[v]
		seen[v] = struct{}{}
	}
	return again
}

// notSupported returns an error that lists the permitted values in order, as upstream does.
func notSupported[V any, T ~string](path *field.Path, v V, list []T) *field.Error {
	list = slices.Clone(list)
	slices.Sort(list)
	return field.NotSupported(path, v, list)
}

// requireSupported requires one of list.
func requireSupported[T ~string](v T, list []T, path *field.Path) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if !slices.Contains(list, v) {
		return field.ErrorList{notSupported(path, v, list)}
	}
	return nil
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return requireSupported(p, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, path)
}

func requireImmutable(v, old any, path *field.Path) field.ErrorList {
	if !Same(v, old) {
		return field.ErrorList{field.Invalid(path, v, immutableText)}
	}
	return nil
}

func requireNotNegative(v int64, path *field.Path) field.ErrorList {
	if v < 0 {
		return field.ErrorList{field.Invalid(path, v, notNegativeText).WithOrigin("minimum")}
	}
	return nil
}

// invalidErrors returns an error for each message.
func invalidErrors(path *field.Path, v any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, v, m))
	}
	return errs
}

func validatePortNumber(port int, path *field.Path) field.ErrorList {
	return invalidErrors(path, port, validation.IsValidPortNum(port))
}

func validateDNSLabel(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsDNS1123Label(v))
}

func validateDNSSubdomain(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsDNS1123Subdomain(v))
}

// validateLabelValue checks the value of a label or of a label selector.
func validateLabelValue(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsValidLabelValue(v))
}

// validateCountOrPercent checks a number of pods, or a percentage of them, which may be above 100.
func validateCountOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return requireNotNegative(int64(v.IntVal), path)
	}
	return invalidErrors(path, v.String(), validation.IsValidPercent(v.StrVal))
}

// validateCountOrShare checks a number of pods, or a percentage of them, which may not be above 100.
func validateCountOrShare(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := validateCountOrPercent(v, path)
	if len(errs) > 0 || v == nil || v.Type == intstr.Int {
		return errs
	}
	if percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")); err != nil || percent > 100 {
		return field.ErrorList{field.Invalid(path, v.String(), "must not be greater than 100%")}
	}
	return nil
}

// isZero reports whether a number or percentage of pods is zero.
func isZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if v.Type == intstr.Int {
		return v.IntVal == 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return err == nil && n == 0
}

// pattern compiles a regular expression on first use, since most processes of the program never need it.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func requireValue(v string, path *field.Path, message string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, message)}
	}
	return nil
}

// rejectObjectMeta rejects metadata in a template that belongs to the created object itself.
func rejectObjectMeta(m *metav1.ObjectMeta, at *field.Path, message string) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""}, {"generateName", m.GenerateName != ""}, {"namespace", m.Namespace != ""},
		{"selfLink", m.SelfLink != ""},
		{"uid", m.UID != ""}, {"resourceVersion", m.ResourceVersion != ""}, {"generation", m.Generation != 0},
		{"creationTimestamp", !m.CreationTimestamp.IsZero()}, {"deletionTimestamp", m.DeletionTimestamp != nil},
		{"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", len(m.OwnerReferences) > 0},
		{"finalizers", len(m.Finalizers) > 0}, {"managedFields", len(m.ManagedFields) > 0},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), message))
		}
	}
	return errs
}

// validateConditionTypes requires that each condition has a type, and that types are unique.
func validateConditionTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	again := markRepeats(types)
	for i, t := range types {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if again[i] {
			errs = append(errs, field.Duplicate(at, t))
		}
		errs = append(errs, requireValue(t, at, "must not be empty")...)
	}
	return errs
}

// validateSignerName requires a domain and a path, as in example.com/signer.
func validateSignerName(name string, path *field.Path) field.ErrorList {
	const longestDomain = validation.DNS1123SubdomainMaxLength
	const longest = longestDomain + 1 + validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		return field.ErrorList{
			field.Invalid(
				path,
				name,
				"must be a fully qualified domain and path of the form 'example.com/signer-name'",
			),
		}
	}
	var errs field.ErrorList
	labels := func(of string, valid func(string) []string) (n int) {
		for label := range strings.SplitSeq(of, ".") {
			for _, message := range valid(label) {
				errs = append(errs, field.Invalid(path, of, fmt.Sprintf("validating label %q: %s", label, message)))
			}
			n++
		}
		return n
	}
	if len(domain) > longestDomain {
		errs = append(errs, field.TooLong(path, domain, longestDomain))
	}
	if labels(domain, validation.IsDNS1123Label) < 2 {
		errs = append(
			errs,
			field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"),
		)
	}
	labels(rest, validation.IsDNS1123Subdomain)
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	return errs
}

// requireDNSLabel requires a DNS label.
func requireDNSLabel(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateDNSLabel(name, path)
}
