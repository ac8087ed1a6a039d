package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// Maximum lengths of an event's fields in bytes.
const (
	maxEventWord = 128
	maxEventNote = 1024
)

// validateEvent requires an event to be in the namespace of its object, or in default for a cluster-scoped object. An
// event with an eventTime must also name its reporter and the action.
func validateEvent(e *corev1.Event) field.ErrorList {
	path := field.NewPath("involvedObject", "namespace")
	about := e.InvolvedObject.Namespace
	var errs field.ErrorList
	if about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem ||
		about != "" && about != e.Namespace {
		errs = append(errs, field.Invalid(path, about, "does not match event.namespace"))
	}
	if e.EventTime.IsZero() {
		return errs
	}
	return append(errs, validateEventWords(e, "reportingComponent", "message")...)
}

// validateEventWords requires the fields of new-style events, under the names that the version uses.
func validateEventWords(e *corev1.Event, controller, note string) field.ErrorList {
	errs := validateEventWord(e.ReportingInstance, field.NewPath("reportingInstance"))
	errs = append(errs, validateEventWord(e.Action, field.NewPath("action"))...)
	errs = append(errs, validateEventWord(e.Reason, field.NewPath("reason"))...)
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath(controller), ""))
	} else {
		errs = append(errs, validate.Invalid(field.NewPath(controller), e.ReportingController,
			validation.IsQualifiedName(e.ReportingController))...)
	}
	if len(e.Message) > maxEventNote {
		errs = append(errs, field.Invalid(field.NewPath(note), "", "can have at most 1024 characters"))
	}
	return errs
}

func validateEventWord(word string, path *field.Path) field.ErrorList {
	switch {
	case word == "":
		return field.ErrorList{field.Required(path, "")}
	case len(word) > maxEventWord:
		return field.ErrorList{field.Invalid(path, "", "can have at most 128 characters")}
	}
	return nil
}

// checkEvent validates events.k8s.io/v1, which is strict: all fields are required, and only the series may change.
func checkEvent(obj, before runtime.Object) field.ErrorList {
	e := obj.(*corev1.Event)
	if before == nil {
		return checkNewEvent(e)
	}
	old := before.(*corev1.Event)
	var errs field.ErrorList
	for _, f := range []struct {
		name              string
		current, previous any
	}{
		{"regarding", e.InvolvedObject, old.InvolvedObject}, {"reason", e.Reason, old.Reason},
		{"note", e.Message, old.Message},
		{"deprecatedSource", e.Source, old.Source}, {"deprecatedCount", e.Count, old.Count}, {"type", e.Type, old.Type},
		{"action", e.Action, old.Action},
		{"deprecatedFirstTimestamp", seconds(e.FirstTimestamp), seconds(old.FirstTimestamp)},
		{"deprecatedLastTimestamp", seconds(e.LastTimestamp), seconds(old.LastTimestamp)},
		{"eventTime", e.EventTime.Truncate(time.Microsecond).UnixMicro(),
			old.EventTime.Truncate(time.Microsecond).UnixMicro()},
		{"related", e.Related, old.Related}, {"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, validate.Immutable(f.current, f.previous, field.NewPath(f.name))...)
	}
	return append(errs, validateSeries(e.Series)...)
}

func seconds(t metav1.Time) int64 { return t.Unix() }

func checkNewEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if about := e.InvolvedObject.Namespace; about == "" && e.Namespace != metav1.NamespaceDefault &&
		e.Namespace != metav1.NamespaceSystem ||
		about != "" && about != e.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("regarding", "namespace"), about,
			"does not match event.namespace"))
	}
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	errs = append(errs, validateEventWords(e, "reportingController", "note")...)
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "",
			"has invalid value: "+e.Type+", must be one of: Normal, Warning"))
	}
	for _, old := range []struct {
		name  string
		empty bool
	}{
		{"deprecatedFirstTimestamp", e.FirstTimestamp.IsZero()}, {"deprecatedLastTimestamp", e.LastTimestamp.IsZero()},
		{"deprecatedCount", e.Count == 0}, {"deprecatedSource", e.Source == corev1.EventSource{}},
	} {
		if !old.empty {
			errs = append(errs, field.Forbidden(field.NewPath(old.name), "needs to be unset"))
		}
	}
	return append(errs, validateSeries(e.Series)...)
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), s.Count, "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}
