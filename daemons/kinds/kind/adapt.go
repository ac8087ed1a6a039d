package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The functions in a Kind take any object, while the declarations of kinds use functions with the kind's own type. The
// functions in this file convert the latter into the former. The API server passes a kind only objects that its New
// created.

func New[T any, P interface {
	*T
	runtime.Object
}]() func() runtime.Object {
	return func() runtime.Object { return P(new(T)) }
}

func Adapt[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(T)) }
}

func AdaptUpdate[T runtime.Object](f func(obj, old T)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) { f(obj.(T), old.(T)) }
}

func AdaptValidate[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList { return f(obj.(T)) }
}

func AdaptValidateUpdate[T runtime.Object](f func(obj, old T) field.ErrorList) func(obj,
	old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(T), old.(T)) }
}

// AdaptWarnings passes f a nil old for new objects.
func AdaptWarnings[T any, P interface {
	*T
	runtime.Object
}](f func(obj, old P) []string) func(obj, old runtime.Object) []string {
	return func(obj, old runtime.Object) []string {
		before, _ := old.(P)
		return f(obj.(P), before)
	}
}

func AdaptRow[T runtime.Object](f func(T) []any) func(runtime.Object) []any {
	return func(obj runtime.Object) []any { return f(obj.(T)) }
}

func AdaptFields[T runtime.Object](f func(T) fields.Set) func(runtime.Object) fields.Set {
	return func(obj runtime.Object) fields.Set { return f(obj.(T)) }
}

// NewStatus declares a status subresource. copyStatus copies the status, and all of wrong validate it.
func NewStatus[T runtime.Object](copyStatus func(to, from T), wrong ...func(obj, old T) field.ErrorList) *Status {
	s := &Status{Copy: func(to, from runtime.Object) { copyStatus(to.(T), from.(T)) }}
	if len(wrong) > 0 {
		s.Validate = func(obj, old runtime.Object) (errs field.ErrorList) {
			for _, f := range wrong {
				errs = append(errs, f(obj.(T), old.(T))...)
			}
			return errs
		}
	}
	return s
}

// WithPrepare sets f as the function that sets status fields which clients cannot choose.
func (s *Status) WithPrepare(f func(obj, old runtime.Object)) *Status {
	s.Prepare = f
	return s
}

// WithKeptMeta lists the metadata fields that a write to the status does not change. Without names, it changes none.
func (s *Status) WithKeptMeta(names ...string) *Status {
	s.KeptMeta, s.KeepsAllMeta = names, len(names) == 0
	return s
}

// NewColumns declares kubectl's columns in order. A name alone is a string column. A suffix gives another type, as in
// "Desired:integer". A column such as "IP*" appears only with -o wide.
func NewColumns(names ...string) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, 0, len(names))
	for _, name := range names {
		c := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if n := len(c.Name); c.Name[n-1] == '*' {
			c.Name, c.Priority = c.Name[:n-1], 1
		}
		for _, t := range []string{"integer", "boolean", "date"} {
			if n := len(c.Name) - len(t) - 1; n > 0 && c.Name[n:] == ":"+t {
				c.Name, c.Type = c.Name[:n], t
			}
		}
		if c.Name == "Name" {
			c.Format = "name"
		}
		c.Description = columnDescriptions[c.Name]
		out = append(out, c)
	}
	return out
}
