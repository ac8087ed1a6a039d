package support

import (
	"fmt"
	"strings"
)

// Object hides an object's secrets in place: what is known, what looks like one, and what stands
// next to a name that speaks of one: a variable of an environment, a field, the value of a flag.
// That is sure only before YAML has folded and indented it.
func Object(o map[string]any, known *Known) {
	if name, ok := o["name"].(string); ok && speaksOfSecrets(name) {
		if value, ok := o["value"]; ok && !plainValue(fmt.Sprint(value)) {
			o["value"] = hidden
		}
	}
	for field, value := range o {
		if text, ok := value.(string); ok && secretField(field) && !plainValue(text) {
			o[field] = hidden
			continue
		}
		o[field] = hide(value, known)
	}
}

func hide(value any, known *Known) any {
	switch v := value.(type) {
	case map[string]any:
		Object(v, known)
	case []any:
		for i, item := range v {
			if text, ok := item.(string); ok && i > 0 && follows(v[i-1], text) {
				v[i] = hidden
				continue
			}
			if text, ok := item.(string); ok && strings.HasPrefix(text, "-p") && len(text) > 2 && !strings.ContainsAny(text[2:], "=- ") && !isFlagOfP(text[2:]) {
				v[i] = "-p" + hidden
				continue
			}
			v[i] = hide(item, known)
		}
	case string:
		return known.Hide(Redact(v))
	case int64, float64:
		if text := fmt.Sprint(v); known.Hide(text) == hidden {
			return hidden
		}
	}
	return value
}

// follows reports whether an argument is the secret value of the flag before it.
func follows(before any, value string) bool {
	flag, ok := before.(string)
	return ok && strings.HasPrefix(flag, "-") && !strings.ContainsAny(flag, "= ") && speaksOfSecrets(flag) &&
		!strings.HasPrefix(value, "-") && !plainValue(value)
}
