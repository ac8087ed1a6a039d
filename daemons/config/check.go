package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem is an error in a configuration, in the words of its daemon.
type Problem struct {
	Name string // of the setting; or the daemon's own name for it, if users cannot set it
	Text string
	With string // the other setting, if each value alone would be valid
}

// checked is a configuration with checks beyond the range of single values.
type checked interface{ problems() []Problem }

// Problems returns the errors in the configuration that cfg points to. clusterctl calls it when it reads a
// configuration, and the daemon when it starts, so that both accept the same configurations.
func Problems(cfg any) (list []Problem) {
	value := reflect.ValueOf(cfg).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if field.Anonymous {
			list = append(list, Problems(value.Field(i).Addr().Interface())...)
		}
		if reason := field.Tag.Get("refused"); reason != "" && !value.Field(i).IsZero() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			list = append(list, Problem{Name: name, Text: reason})
		}
	}
	for _, s := range Settings(cfg) {
		if len(s.field) == 1 && s.bounds != "" {
			if err := within(s.bounds, s.Of(cfg)); err != nil {
				list = append(list, Problem{Name: s.Name, Text: err.Error()})
			}
		}
	}
	if c, ok := cfg.(checked); ok {
		list = append(list, c.problems()...)
	}
	return list
}

// Check returns all Problems as one error, for the daemon's start.
func Check(cfg any) error {
	var errs []error
	settings := Settings(cfg)
	for _, p := range Problems(cfg) {
		field := p.Name
		if i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == p.Name }); i >= 0 {
			field = settings[i].DaemonName
		}
		errs = append(errs, fmt.Errorf("%s: %s", field, p.Text))
	}
	return errors.Join(errs...)
}

// within returns an error if a value is out of its range.
func within(bounds string, value any) error {
	special, limits, ok := strings.Cut(bounds, "|")
	if !ok {
		special, limits = "", bounds
	}
	low, high, _ := strings.Cut(limits, "..")
	var current, minimum, maximum float64
	var read func(string) (float64, error)
	switch v := value.(type) {
	case int:
		current, read = float64(v), func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	case float64:
		current, read = v, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	case time.Duration:
		current, read = v.Seconds(), seconds
	case metav1.Duration:
		current, read = v.Seconds(), seconds
	default:
		return fmt.Errorf("a range of %T", value)
	}
	if special != "" {
		if one, err := read(special); err == nil && one == current {
			return nil
		}
	}
	minimum, err := read(low)
	if err == nil && high != "" {
		maximum, err = read(high)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the range %s: %w", bounds, err)
	case current >= minimum && (high == "" || current <= maximum):
		return nil
	}
	text := "must be at least " + low
	if high != "" {
		text = fmt.Sprintf("must be from %s to %s", low, high)
	}
	if special != "" {
		text += ", or " + special
	}
	return fmt.Errorf("%s, and is %s", text, strings.Trim(Text(value), `"`))
}

func seconds(text string) (float64, error) {
	d, err := time.ParseDuration(cmp.Or(text, "0s"))
	return d.Seconds(), err
}
