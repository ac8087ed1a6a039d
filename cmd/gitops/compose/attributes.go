package compose

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// attributes are the attributes of a part of the project that have not been converted yet.
type attributes struct {
	p      *project
	path   []string
	fields map[string]any
}

// take returns an attribute and marks it as converted.
func (a *attributes) take(name string) any {
	v := a.fields[name]
	delete(a.fields, name)
	return v
}

// text returns an attribute as text and marks it as converted.
func (a *attributes) text(name string) string { return asText(a.take(name)) }

// is reports whether an attribute is true, and marks it as converted.
func (a *attributes) is(name string) bool {
	isTrue, _ := strconv.ParseBool(a.text(name))
	return isTrue
}

// drop marks attributes as converted.
func (a *attributes) drop(names ...string) {
	for _, name := range names {
		delete(a.fields, name)
	}
}

// at returns the path of an attribute.
func (a *attributes) at(names ...string) []string { return append(slices.Clone(a.path), names...) }

// below returns the attributes of an attribute, which is marked as converted.
func (a *attributes) below(name string) attributes {
	return attributes{p: a.p, path: a.at(name), fields: asMap(a.take(name))}
}

// items returns the elements of a list of maps, which is marked as converted.
func (a *attributes) items(name string) (list []attributes) {
	for i, v := range asList(a.take(name)) {
		list = append(list, attributes{p: a.p, path: a.at(name, index(i)), fields: asMap(v)})
	}
	return list
}

// index returns the element of a path that stands for an element of a list.
func index(i int) string { return fmt.Sprintf("[%d]", i) }

// report lists an attribute without marking it as converted.
func (a *attributes) report(name, format string, args ...any) {
	a.p.report(a.at(name), format, args...)
}

// refuse lists an attribute and marks it as converted.
func (a *attributes) refuse(name, format string, args ...any) {
	a.report(name, format, args...)
	a.drop(name)
}

// reportRest lists the attributes that were not converted, unless they have no effect.
func (a *attributes) reportRest() {
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		switch v := a.fields[name]; {
		case strings.HasPrefix(name, "x-"):
			a.report(name, "Kubernetes does not know extensions of Compose files")
		case !hasNoEffect(name, v):
			a.report(name, "%s", reason(name))
		}
	}
	a.fields = nil
}

// defaults are the values of attributes that mean the same as no attribute, or what Kubernetes does anyway.
var defaults = map[string][]string{
	"attach": {"true"}, "attachable": {"false"}, "cgroup": {"private"}, "consistency": {"consistent", "default"},
	"disable": {"false"}, "enable_ipv4": {"true"}, "enable_ipv6": {"false"}, "external": {"false"},
	"failure_action": {"pause"}, "init": {"false"}, "internal": {"false"}, "ipc": {"private"},
	"isolation": {"default"}, "manual": {"false"}, "max_failure_ratio": {"0"}, "oom_kill_disable": {"false"},
	"oom_score_adj": {"0"}, "per_replica": {"true"}, "pids": {"0", "-1"}, "pids_limit": {"0", "-1"},
	"privileged": {"false"}, "required": {"true"}, "use_api_socket": {"false"},
}

// hasNoEffect reports whether a value is that of an attribute that is absent.
func hasNoEffect(name string, v any) bool {
	if v == nil {
		return true
	}
	if value := reflect.ValueOf(v); value.Kind() == reflect.Map || value.Kind() == reflect.Slice {
		return value.Len() == 0
	}
	return asText(v) == "" || slices.Contains(defaults[name], asText(v))
}

// entries iterates over the entries of a map in the order of their names.
func entries(m map[string]any) func(func(string, any) bool) {
	return func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// asMap returns a copy of a map, or an empty one.
func asMap(v any) map[string]any {
	if m, ok := v.(map[string]any); ok {
		return maps.Clone(m)
	}
	return map[string]any{}
}

// pairs returns a map, or the map that a list of NAME=VALUE is. Names without value have the value nil.
func pairs(v any) map[string]any {
	m := asMap(v)
	for _, e := range asList(v) {
		name, value, hasValue := strings.Cut(asText(e), "=")
		if m[name] = nil; hasValue {
			m[name] = value
		}
	}
	return m
}

// asList returns a list, or the list of a single text.
func asList(v any) []any {
	if text, ok := v.(string); ok && text != "" {
		return []any{text}
	}
	list, _ := v.([]any)
	return list
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// number returns an integer, or 0.
func number(v any) int64 {
	n, _ := strconv.ParseInt(asText(v), 10, 64)
	return n
}

// size returns a number of bytes, such as 64m.
func size(v any) int64 {
	var n types.UnitBytes
	if v == nil || n.DecodeMapstructure(v) != nil {
		return 0
	}
	return int64(n)
}

// nanoseconds returns a duration.
func nanoseconds(v any) int64 {
	var d types.Duration
	if v == nil || d.DecodeMapstructure(v) != nil {
		return 0
	}
	return int64(d)
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(v any) int64 {
	const second = int64(1e9)
	return (max(0, nanoseconds(v)) + second - 1) / second
}

// toLabel returns a name as a DNS label.
func toLabel(name string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	label = strings.Trim(label[:min(len(label), 63)], "-")
	if label == "" {
		return "project"
	}
	return label
}
