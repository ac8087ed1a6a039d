package kinds

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The functions of a Kind take any object; those that a kind declares take its own
// type. These turn the second into the first. The API server hands a kind only
// objects that its New made.

func made[T any, P interface {
	*T
	runtime.Object
}]() func() runtime.Object {
	return func() runtime.Object { return P(new(T)) }
}

func does[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(T)) }
}

func updates[T runtime.Object](f func(obj, old T)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) { f(obj.(T), old.(T)) }
}

func checks[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList { return f(obj.(T)) }
}

func compares[T runtime.Object](f func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(T), old.(T)) }
}

// warns gives f a nil old, not an empty one, for what is new.
func warns[T any, P interface {
	*T
	runtime.Object
}](f func(obj, old P) []string) func(obj, old runtime.Object) []string {
	return func(obj, old runtime.Object) []string {
		was, _ := old.(P)
		return f(obj.(P), was)
	}
}

func row[T runtime.Object](f func(T) []any) func(runtime.Object) []any {
	return func(obj runtime.Object) []any { return f(obj.(T)) }
}

func selectable[T runtime.Object](f func(T) fields.Set) func(runtime.Object) fields.Set {
	return func(obj runtime.Object) fields.Set { return f(obj.(T)) }
}

// status declares a status subresource whose writes copyStatus makes, and of which all of wrong say what is wrong.
func status[T runtime.Object](copyStatus func(to, from T), wrong ...func(obj, old T) field.ErrorList) *Status {
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

// prepared has f settle what of a new status clients do not decide.
func (s *Status) prepared(f func(obj, old runtime.Object)) *Status {
	s.Prepare = f
	return s
}

// keeping has a write to the status leave fields of metadata as they are; all, if none is named.
func (s *Status) keeping(names ...string) *Status {
	s.Keeps, s.KeepsMeta = names, len(names) == 0
	return s
}

// columns declares kubectl's columns in order: names alone are strings, a suffix
// says otherwise: "Desired:integer", "IP*" (shown with -o wide only).
func columns(names ...string) []metav1.TableColumnDefinition {
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
		c.Description = describe[c.Name]
		out = append(out, c)
	}
	return out
}
