// Package header parses HTTP fields whose values are lists, as RFC 9110, section 5.6.1 defines them: elements separated
// by commas, in one line or in several. Do not compare such a value as a whole: it can have more than one element.
package header

import (
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// Elements returns the elements of a list field, without the white space around them. Empty elements are left out.
func Elements(h http.Header, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range h.Values(name) {
			for element := range strings.SplitSeq(line, ",") {
				if element = strings.Trim(element, " \t"); element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// Has reports whether a list field has an element, ignoring case.
func Has(h http.Header, name, element string) bool {
	for e := range Elements(h, name) {
		if strings.EqualFold(e, element) {
			return true
		}
	}
	return false
}

// Joined returns a list field as one line. It does not allocate if the field has one line.
func Joined(h http.Header, name string) string {
	if values := h.Values(name); len(values) != 1 {
		return strings.Join(values, ",")
	}
	return h.Get(name)
}

// Accepts reports whether a list such as "gzip, br;q=0.5" has an element with the given name and a weight above zero.
// The weight of an element with the name takes precedence over that of "*".
func Accepts(list, name string) bool {
	others := false
	for element := range strings.SplitSeq(list, ",") {
		coding, parameters, _ := strings.Cut(element, ";")
		switch coding = strings.Trim(coding, " \t"); {
		case strings.EqualFold(coding, name):
			return weight(parameters) > 0
		case coding == "*":
			others = weight(parameters) > 0
		}
	}
	return others
}

// weight returns the parameter q of an element. It returns one if there is none or if it is not a number.
func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		key, value, _ := strings.Cut(strings.Trim(parameter, " \t"), "=")
		if !strings.EqualFold(key, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(value, 64); err == nil {
			return q
		}
	}
	return 1
}

// IsUnchanged reports whether the If-None-Match field of a request contains an entity tag, so that the response is 304.
// Tags are compared weakly.
func IsUnchanged(r *http.Request, tag string) bool {
	for e := range Elements(r.Header, "If-None-Match") {
		if e == "*" || strings.TrimPrefix(e, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// RemoveHTTP2Upgrade removes h2c from the protocols in a request's Upgrade field. A proxy that forwarded it could not
// see the requests that follow on the connection. If h2c is the only protocol, the field is removed.
func RemoveHTTP2Upgrade(h http.Header) {
	var kept []string
	found := false
	for e := range Elements(h, "Upgrade") {
		if name, _, _ := strings.Cut(e, "/"); strings.EqualFold(name, "h2c") {
			found = true
		} else {
			kept = append(kept, e)
		}
	}
	if !found {
		return
	}
	h.Del("Http2-Settings")
	if len(kept) == 0 {
		h.Del("Upgrade")
		h.Del("Connection")
		return
	}
	h.Set("Upgrade", strings.Join(kept, ", "))
	h.Set("Connection", "Upgrade")
}
