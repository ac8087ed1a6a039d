// Package validate has the checks that several kinds share. The messages are upstream's, since users search for them.
package validate

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

	"clusterctl/daemons/kinds/value"
)

const (
	ImmutableText   = "field is immutable"
	NotNegativeText = "must be greater than or equal to 0"
)

// MarkRepeats returns, for each value of a list, whether an earlier one is equal.
func MarkRepeats[T comparable](list []T) []bool {
	seen, again := make(map[T]struct{}, len(list)), make([]bool, len(list))
	for i, v := range list {
		_, again[i] = seen[v]
		seen[v] = struct{}{}
	}
	return again
}

// NotSupported returns an error that lists the permitted values in order, as upstream does.
func NotSupported[V any, T ~string](path *field.Path, v V, list []T) *field.Error {
	list = slices.Clone(list)
	slices.Sort(list)
	return field.NotSupported(path, v, list)
}

// Supported requires one of list.
func Supported[T ~string](v T, list []T, path *field.Path) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if !slices.Contains(list, v) {
		return field.ErrorList{NotSupported(path, v, list)}
	}
	return nil
}

func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return Supported(p, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, path)
}

func Immutable(v, old any, path *field.Path) field.ErrorList {
	if !value.Same(v, old) {
		return field.ErrorList{field.Invalid(path, v, ImmutableText)}
	}
	return nil
}

func NotNegative(v int64, path *field.Path) field.ErrorList {
	if v < 0 {
		return field.ErrorList{field.Invalid(path, v, NotNegativeText).WithOrigin("minimum")}
	}
	return nil
}

// Invalid returns an error for each message.
func Invalid(path *field.Path, v any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, v, m))
	}
	return errs
}

func PortNumber(port int, path *field.Path) field.ErrorList {
	return Invalid(path, port, validation.IsValidPortNum(port))
}

func DNSLabel(v string, path *field.Path) field.ErrorList {
	return Invalid(path, v, validation.IsDNS1123Label(v))
}

func DNSSubdomain(v string, path *field.Path) field.ErrorList {
	return Invalid(path, v, validation.IsDNS1123Subdomain(v))
}

// LabelValue checks the value of a label or of a label selector.
func LabelValue(v string, path *field.Path) field.ErrorList {
	return Invalid(path, v, validation.IsValidLabelValue(v))
}

// CountOrPercent checks a number of pods, or a percentage of them, which may be above 100.
func CountOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return NotNegative(int64(v.IntVal), path)
	}
	return Invalid(path, v.String(), validation.IsValidPercent(v.StrVal))
}

// CountOrShare checks a number of pods, or a percentage of them, which may not be above 100.
func CountOrShare(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := CountOrPercent(v, path)
	if len(errs) > 0 || v == nil || v.Type == intstr.Int {
		return errs
	}
	if percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")); err != nil || percent > 100 {
		return field.ErrorList{field.Invalid(path, v.String(), "must not be greater than 100%")}
	}
	return nil
}

// IsZero reports whether a number or percentage of pods is zero.
func IsZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if v.Type == intstr.Int {
		return v.IntVal == 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return err == nil && n == 0
}

// Pattern compiles a regular expression on first use, since most processes of the program never need it.
func Pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func Required(v string, path *field.Path, message string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, message)}
	}
	return nil
}

// ObjectMetaUnset rejects metadata in a template that belongs to the created object itself.
func ObjectMetaUnset(m *metav1.ObjectMeta, at *field.Path, message string) field.ErrorList {
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

// ConditionTypes requires that each condition has a type, and that types are unique.
func ConditionTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	again := MarkRepeats(types)
	for i, t := range types {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if again[i] {
			errs = append(errs, field.Duplicate(at, t))
		}
		errs = append(errs, Required(t, at, "must not be empty")...)
	}
	return errs
}

// SignerName requires a domain and a path, as in example.com/signer.
func SignerName(name string, path *field.Path) field.ErrorList {
	const longestDomain = validation.DNS1123SubdomainMaxLength
	const longest = longestDomain + 1 + validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		return field.ErrorList{
			field.Invalid(path, name,
				"must be a fully qualified domain and path of the form 'example.com/signer-name'"),
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
		errs = append(errs, field.Invalid(path, domain,
			"should be a domain with at least two segments separated by dots"))
	}
	labels(rest, validation.IsDNS1123Subdomain)
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	return errs
}

// RequiredDNSLabel requires a DNS label.
func RequiredDNSLabel(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return DNSLabel(name, path)
}
