package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
)

func Events() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Event"),
		Resource: "events", Singular: "event", ShortNames: []string{"ev"}, Namespaced: true, CreateOnUpdate: true,
		Dependents: kind.NoDependents, Expires: true,
		New: kind.New[corev1.Event](), NewList: kind.New[corev1.EventList](),
		Aliases: []kind.Alias{{
			GVK: eventsv1.SchemeGroupVersion.WithKind("Event"),
			New: kind.New[eventsv1.Event](), NewList: kind.New[eventsv1.EventList](),
			FromHub: func(o runtime.Object) (runtime.Object, error) { return newEvent(o.(*corev1.Event)), nil },
			ToHub:   func(o runtime.Object) (runtime.Object, error) { return coreEvent(o.(*eventsv1.Event)), nil },
			Checks:  checkEvent,
		}},
		Validate: kind.AdaptValidate(validateEvent),
		Fields:   kind.AdaptFields(eventFields),
		Columns: kind.NewColumns("Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message",
			"First Seen*", "Count:integer*", "Name*"),
		Row: kind.AdaptRow(eventRow), RowHasName: true,
	}
}

func newEvent(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject,
		Related: e.Related, Note: e.Message, Type: e.Type, DeprecatedSource: e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func coreEvent(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding,
		Related: e.Related, Message: e.Note, Type: e.Type, Source: e.DeprecatedSource,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func eventFields(e *corev1.Event) fields.Set {
	o, source := e.InvolvedObject, e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind": o.Kind, "involvedObject.namespace": o.Namespace, "involvedObject.name": o.Name,
		"involvedObject.uid": string(o.UID), "involvedObject.apiVersion": o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion, "involvedObject.fieldPath": o.FieldPath,
		"regarding.kind": o.Kind, "regarding.namespace": o.Namespace, "regarding.name": o.Name,
		"regarding.uid": string(o.UID), "regarding.apiVersion": o.APIVersion,
		"regarding.resourceVersion": o.ResourceVersion, "regarding.fieldPath": o.FieldPath,
		"reason": e.Reason, "reportingComponent": e.ReportingController, "reportingController": e.ReportingController,
		"source": source, "type": e.Type,
	}
}

func eventRow(e *corev1.Event) []any {
	first, last := cell.Age(e.FirstTimestamp), cell.Age(e.LastTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = cell.AgeMicro(e.EventTime)
	}
	count := int64(e.Count)
	if e.Series != nil {
		last, count = cell.AgeMicro(e.Series.LastObservedTime), int64(e.Series.Count)
	} else if e.LastTimestamp.IsZero() {
		last = first
	}
	if count == 0 {
		count = 1 // seen once, and not a series yet
	}
	object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	if e.InvolvedObject.Kind == "" {
		object = e.InvolvedObject.Name
	}
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	if host := e.Source.Host; host != "" {
		source = fmt.Sprintf("%s, %s", source, host)
	} else if e.ReportingInstance != "" {
		source = fmt.Sprintf("%s, %s", source, e.ReportingInstance)
	}
	return []any{
		last,
		e.Type,
		e.Reason,
		object,
		e.InvolvedObject.FieldPath,
		source,
		strings.TrimSpace(e.Message),
		first,
		count,
		e.Name,
	}
}
