// Package config holds one plain struct for each daemon: what provisioning
// renders is exactly what the daemon reads.
//
// A struct is spelled once. Its flag tags name the daemon's command line flags,
// which are upstream's wherever upstream has the setting, so that runbooks and
// scanners keep working. A daemon that reads a configuration file as well (the
// kubelet, the proxy) has that file's fields in a struct of its own, in the
// upstream shape, named by its --config flag.
package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags returns a flag set that sets the fields of the struct that cfg points
// to. A field's value at the time of the call is its flag's default. Fields of
// types string, bool, int, float64, time.Duration, []string and map[string]string that
// have a flag tag take part; a help tag is the flag's usage. Embedded structs' fields
// are the struct's own.
func Flags(name string, cfg any) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	value := reflect.ValueOf(cfg).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		flag, help := field.Tag.Get("flag"), field.Tag.Get("help")
		if field.Anonymous {
			set.AddFlagSet(Flags(name, value.Field(i).Addr().Interface()))
		}
		if flag == "" {
			continue
		}
		switch p := value.Field(i).Addr().Interface().(type) {
		case *string:
			set.StringVar(p, flag, *p, help)
		case *bool:
			set.BoolVar(p, flag, *p, help)
		case *int:
			set.IntVar(p, flag, *p, help)
		case *float64:
			set.Float64Var(p, flag, *p, help)
		case *time.Duration:
			set.DurationVar(p, flag, *p, help)
		case *[]string:
			set.StringSliceVar(p, flag, *p, help)
		case *map[string]string:
			set.StringToStringVar(p, flag, *p, help)
		default:
			panic(fmt.Sprintf("config: field %s has a type that no flag can set", field.Name))
		}
	}
	return set
}

// Args renders the fields of the struct that cfg points to as command line arguments that Flags' set parses back to the
// same values, in the order of the fields. A field at its default (as in def, a pointer to the same type) is left out,
// unless its tag says `written:"always"`: scanners look for what is decided about security in the command line, and
// know no defaults but upstream's.
func Args(cfg, def any) []string {
	var args []string
	value, defaults := reflect.ValueOf(cfg).Elem(), reflect.ValueOf(def).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		flag := field.Tag.Get("flag")
		if field.Anonymous {
			args = append(args, Args(value.Field(i).Addr().Interface(), defaults.Field(i).Addr().Interface())...)
		}
		usual := reflect.DeepEqual(value.Field(i).Interface(), defaults.Field(i).Interface()) &&
			field.Tag.Get("written") != "always"
		if flag == "" || usual {
			continue
		}
		args = append(args, "--"+flag+"="+text(value.Field(i).Interface()))
	}
	return args
}

func text(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, k := range sortedKeys(v) {
			pairs = append(pairs, k+"="+v[k])
		}
		return strings.Join(pairs, ",")
	default:
		return fmt.Sprint(v)
	}
}
