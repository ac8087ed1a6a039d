package validate

import (
	"fmt"
	"strings"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func DNSSubdomainNameErrors(name string, prefix bool) []string {
	if prefix {
		name = strings.TrimSuffix(name, "-") + "a"
	}
	return validation.IsDNS1123Subdomain(name)
}

// DNSLabelNameErrors is for names that become a DNS label, which may start with a digit.
func DNSLabelNameErrors(name string, prefix bool) []string {
	if prefix {
		name = strings.TrimSuffix(name, "-") + "a"
	}
	return validation.IsDNS1123Label(name)
}

// PathSegmentNameErrors allows names that are valid path segments, such as system:node.
func PathSegmentNameErrors(name string, prefix bool) []string {
	var msgs []string
	if name == "." || name == ".." {
		msgs = append(msgs, fmt.Sprintf("may not be '%s'", name))
	}
	for _, c := range []string{"/", "%"} {
		if strings.Contains(name, c) {
			msgs = append(msgs, fmt.Sprintf("may not contain '%s'", c))
		}
	}
	return msgs
}

// PathSegment requires a name that can be part of a URL path.
func PathSegment(v string, path *field.Path) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Invalid(path, v, pathvalidation.IsValidPathSegmentName(v))
}
