package write

import (
	"context"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
)

// admission returns the write in the form that admission plugins read. The value is valid until the next call.
func (w *write) admission() *api.Admission {
	w.cachedAdmission = api.Admission{
		Operation: w.operation, User: w.q.User, Internal: w.q.IsInternal,
		Kind: w.q.Served.GVK, Resource: w.q.Served.GVR(), Subresource: w.q.Subresource,
		Namespace: w.q.Namespace, Name: w.name(),
		Object: w.obj, Old: w.old, DryRun: w.dryRun, Warn: w.q.Answer.Warn,
		Origin: w, Versions: w, IsConverted: w.q.Answer.IsAdmitted || w.q.Subresource == "scale",
	}
	return &w.cachedAdmission
}

// runMutators calls the mutating plugins. It calls them a second time if one of them changed an object that earlier
// plugins had seen.
func (w *write) runMutators(ctx context.Context) error {
	a := w.admission()
	if err := w.s.admitter.runMutators(ctx, w.s.admitter.plugins.mutators, a); err != nil {
		return err
	}
	w.obj = a.Object
	if w.q.Subresource == "scale" {
		return w.mutateScale(ctx)
	}
	return nil
}

// runValidators calls the validating plugins.
func (w *write) runValidators(ctx context.Context) error {
	a := w.admission()
	if err := w.s.admitter.runValidators(ctx, w.s.admitter.plugins.validators, a); err != nil {
		return err
	}
	if w.q.Subresource == "scale" {
		a, err := w.scaleAdmission()
		if err != nil {
			return err
		}
		return w.s.admitter.runValidators(ctx, w.s.admitter.plugins.external.validators, a)
	}
	return nil
}

// mutateScale lets webhooks and policies change a write to the scale subresource.
func (w *write) mutateScale(ctx context.Context) error {
	a, err := w.scaleAdmission()
	if err != nil {
		return err
	}
	if err := w.s.admitter.runMutators(ctx, w.s.admitter.plugins.external.mutators, a); err != nil {
		return err
	}
	if scale, ok := a.Object.(*autoscalingv1.Scale); ok {
		w.q.Served.Scale.Set(w.obj, scale.Spec.Replicas)
	}
	return nil
}

func (w *write) scaleAdmission() (*api.Admission, error) {
	whole := *w.admission()
	a := &whole
	a.Kind, a.Resource, a.Versions, a.IsConverted = scaleKind, w.q.Served.Name(), nil, false
	var err error
	if a.Object, err = scaleOf(w.q, w.obj); err != nil {
		return nil, err
	}
	if w.old != nil {
		a.Old, err = scaleOf(w.q, w.old)
	}
	return a, err
}

// Annotate implements api.Origin.
func (w *write) Annotate(key, value string) { w.q.Answer.Audit.Annotate(key, value) }

// Audited implements api.Origin.
func (w *write) Audited(contents bool) bool { return w.q.Answer.Audit.IsRecorded(contents) }

// Verb implements api.Origin.
func (w *write) Verb() string { return w.q.Verb }

// Options implements api.Origin. Like upstream, it reports a patch as the options of the create or update that it
// results in.
func (w *write) Options() runtime.Object {
	var dry []string
	if w.dryRun {
		dry = []string{metav1.DryRunAll}
	}
	about := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind} }
	manager, validation := w.q.Query.Get("fieldManager"), w.q.Query.Get("fieldValidation")
	switch {
	case w.operation == "CONNECT":
		return nil
	case w.operation == "DELETE":
		o := &metav1.DeleteOptions{}
		if w.deletion != nil {
			o = w.deletion.DeepCopy()
		}
		o.TypeMeta = about("DeleteOptions")
		return o
	case w.operation == "CREATE":
		return &metav1.CreateOptions{
			TypeMeta:        about("CreateOptions"),
			DryRun:          dry,
			FieldManager:    manager,
			FieldValidation: validation,
		}
	}
	return &metav1.UpdateOptions{
		TypeMeta:        about("UpdateOptions"),
		DryRun:          dry,
		FieldManager:    manager,
		FieldValidation: validation,
	}
}
