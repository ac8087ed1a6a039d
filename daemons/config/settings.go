package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Setting is a field of a daemon's configuration that users of clusterctl may set. It has a setting tag with its name
// in the configuration language. Its type, help, default and checks are derived from the field.
//
// A doc tag replaces the help if the setting differs in the language, for example the content of a file instead of its
// path. A range tag defines the valid values, as "1..100", "1s.." or, with a special value, "0|576..65535". A fixed tag
// explains why the setting cannot be changed after the cluster was created. A refused tag is for other fields, and
// explains why only their zero value is supported.
type Setting struct {
	Name       string
	DaemonName string // the daemon's name for it: --node-monitor-period, or the name in its file
	Help       string
	Default    any
	Fixed      string

	bounds string
	field  []int
}

// Settings returns the settings of the configuration that def points to, in the order of its fields. def contains the
// defaults.
func Settings(def any) []Setting { return settingsIn(reflect.ValueOf(def).Elem(), nil) }

func settingsIn(value reflect.Value, at []int) (list []Setting) {
	for i := range value.NumField() {
		field, path := value.Type().Field(i), append(slices.Clone(at), i)
		if field.Anonymous {
			list = append(list, settingsIn(value.Field(i), path)...)
			continue
		}
		name := field.Tag.Get("setting")
		if name == "" {
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if flag := field.Tag.Get("flag"); flag != "" {
			key = "--" + flag
		}
		list = append(list, Setting{
			Name: name, DaemonName: key, Help: cmp.Or(field.Tag.Get("doc"), field.Tag.Get("help")),
			Default: value.Field(i).Interface(), Fixed: field.Tag.Get("fixed"),
			bounds: field.Tag.Get("range"), field: path,
		})
	}
	return list
}

// Others returns the fields that users cannot set, by the daemon's names without dashes. The values explain why, or are
// empty.
func Others(def any) map[string]string {
	list := map[string]string{}
	t := reflect.TypeOf(def).Elem()
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous {
			maps.Copy(list, Others(reflect.New(field.Type).Interface()))
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if key += field.Tag.Get("flag"); field.Tag.Get("setting") == "" && key != "" {
			list[key] = field.Tag.Get("refused")
		}
	}
	return list
}

// Of returns the setting's value in the configuration that cfg points to.
func (s Setting) Of(cfg any) any { return s.in(cfg).Interface() }

// Put sets the setting's value in the configuration that cfg points to. It panics if the type is wrong.
func (s Setting) Put(cfg, value any) { s.in(cfg).Set(reflect.ValueOf(value)) }

func (s Setting) in(cfg any) reflect.Value { return reflect.ValueOf(cfg).Elem().FieldByIndex(s.field) }

// Text returns a value of a setting in the syntax of the language.
func Text(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return duration(v)
	case metav1.Duration:
		return duration(v.Duration)
	case string:
		return fmt.Sprintf("%q", v)
	case *bool:
		return fmt.Sprint(v != nil && *v)
	case []string:
		if v == nil {
			return "[]"
		}
	case map[string]string:
		if v == nil {
			return "{}"
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// duration formats a duration without zero minutes and seconds.
func duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return fmt.Sprintf("%q", text)
}

// Chosen holds the settings that were explicitly set. Applied to a configuration, it leaves all others unchanged.
type Chosen[T any] struct {
	values T
	names  []string // sorted
}

// Choose sets a setting. It panics if the name is unknown or the type is wrong.
func (c *Chosen[T]) Choose(name string, value any) {
	for _, s := range Settings(&c.values) {
		if s.Name == name {
			s.Put(&c.values, value)
			c.names = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(c.names), name))))
			return
		}
	}
	panic(fmt.Sprintf("config: %T has no setting %s", c.values, name))
}

// Names returns the names of the settings that were set, sorted.
func (c Chosen[T]) Names() []string { return c.names }

// Over applies the settings to a configuration.
func (c Chosen[T]) Over(cfg *T) {
	if len(c.names) == 0 {
		return
	}
	for _, s := range Settings(&c.values) {
		if slices.Contains(c.names, s.Name) {
			s.Put(cfg, s.Of(&c.values))
		}
	}
}

// MarshalJSON encodes the settings by name.
func (c Chosen[T]) MarshalJSON() ([]byte, error) {
	if len(c.names) == 0 { // as in most machines of a state
		return []byte("{}"), nil
	}
	chosen := map[string]any{}
	for _, s := range Settings(&c.values) {
		if slices.Contains(c.names, s.Name) {
			chosen[s.Name] = s.Of(&c.values)
		}
	}
	return json.Marshal(chosen)
}

// UnmarshalJSON decodes settings. Unknown names are ignored, since another release may have written them.
func (c *Chosen[T]) UnmarshalJSON(text []byte) error {
	var chosen map[string]json.RawMessage
	if err := json.Unmarshal(text, &chosen); err != nil {
		return err
	}
	*c = Chosen[T]{}
	if len(chosen) == 0 {
		return nil
	}
	for _, s := range Settings(&c.values) {
		raw, ok := chosen[s.Name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, s.in(&c.values).Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		c.names = append(c.names, s.Name)
	}
	slices.Sort(c.names)
	return nil
}
