// Package header reads HTTP fields whose values are lists, as RFC 9110, section 5.6.1 defines them: elements that are
// separated by commas, in one line or in several. Comparing such a value as a whole text misses an element beside
// another one.
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

// Has reports whether a list field has an element, whatever the case of its letters.
func Has(h http.Header, name, element string) bool {
	for e := range Elements(h, name) {
		if strings.EqualFold(e, element) {
			return true
		}
	}
	return false
}

// Joined returns a list field as one line. It does not allocate when the field has one line.
func Joined(h http.Header, name string) string {
	if values := h.Values(name); len(values) != 1 {
		return strings.Join(values, ",")
	}
	return h.Get(name)
}

// Accepts reports whether one element of a list such as "gzip, br;q=0.5" has a name and does not refuse it with a
// weight of zero. An element with the name counts before the element "*".
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

// weight returns the q of an element's parameters. It is one where none is given, or one that is not a number.
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

// Unchanged reports whether a request's If-None-Match names an entity tag, so that 304 answers it. Tags are compared
// weakly.
func Unchanged(r *http.Request, tag string) bool {
	for e := range Elements(r.Header, "If-None-Match") {
		if e == "*" || strings.TrimPrefix(e, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// WithoutHTTP2Upgrade removes h2c from the protocols that a request offers to switch to. A proxy that passed it on
// would no longer see the requests that follow. Without another protocol, the request offers none.
func WithoutHTTP2Upgrade(h http.Header) {
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
