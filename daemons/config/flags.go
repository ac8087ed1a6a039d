// Package config holds one plain struct for each daemon. Provisioning writes a daemon's configuration from it, and the
// daemon reads its configuration into it.
//
// The flag tags of a struct name the daemon's command line flags. Flags have upstream's names wherever upstream has the
// setting, so that runbooks and scanners keep working. A daemon that also reads a configuration file, such as the
// kubelet, has a struct of its own for the file's fields, in upstream's format. Its --config flag names the file.
package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags returns a flag set that sets the fields of the struct that cfg points to. Every field with a flag tag gets a
// flag, whose default is the field's value at the time of the call. The help tag is the flag's usage. The field's type
// must be string, bool, int, float64, time.Duration, []string or map[string]string. Fields of embedded structs count as
// the struct's own.
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
// same values, in the order of the fields. def points to the defaults. A field that equals its default is left out,
// unless it has the tag `written:"always"`. That tag is for security settings: scanners look for them in the command
// line, and know only upstream's defaults.
func Args(cfg, def any) []string {
	var args []string
	value, defaults := reflect.ValueOf(cfg).Elem(), reflect.ValueOf(def).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		flag := field.Tag.Get("flag")
		if field.Anonymous {
			args = append(args, Args(value.Field(i).Addr().Interface(), defaults.Field(i).Addr().Interface())...)
		}
		isDefault := reflect.DeepEqual(value.Field(i).Interface(), defaults.Field(i).Interface()) &&
			field.Tag.Get("written") != "always"
		if flag == "" || isDefault {
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
