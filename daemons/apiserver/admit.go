package apiserver

import (
	"context"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/policy"
	"clusterctl/daemons/apiserver/webhook"
)

// AskOutside adds the policies and webhooks that the cluster's objects configure to the admission plugins. They run
// after all other mutating plugins. Of the validating plugins they run before the last, the quota plugin, so that a
// refused write consumes no quota. Call AskOutside before Run, and after the other plugins are set.
func (s *Server) AskOutside(may api.Authorizer) {
	hooks := webhook.Options{Objects: s.Objects(), May: may, Reach: s.reach, Log: s.log, Counts: s.observed.webhooks}
	policies := policy.Options{
		Objects: s.Objects(), May: may, Params: params{s}, Log: s.log,
		Interfaces: admission.NewObjectInterfacesFromScheme(s.scheme), Types: s.typesOf,
	}
	s.o.Outside.Mutators = []api.Mutator{policy.NewMutating(policies), webhook.NewMutating(hooks)}
	s.o.Outside.Validators = []api.Validator{policy.NewValidating(policies), webhook.NewValidating(hooks)}
	s.o.Mutators = append(s.o.Mutators, s.o.Outside.Mutators...)
	s.o.Validators = slices.Insert(
		s.o.Validators,
		max(0, len(s.o.Validators)-1),
		append([]api.Validator{policy.NewAccess(policies)}, s.o.Outside.Validators...)...)
}

// admission returns the write in the form that admission plugins read. The value is valid until the next call.
func (w *write) admission() *api.Admission {
	w.asked = api.Admission{
		Operation: w.operation, User: w.q.user, Internal: w.q.internal,
		Kind: w.q.served.GVK, Resource: w.q.served.GVR(), Subresource: w.q.Subresource,
		Namespace: w.q.Namespace, Name: w.name(),
		Object: w.obj, Old: w.old, DryRun: w.dryRun, Warn: w.q.warn,
		Origin: w, Versions: w, Presented: w.q.presented || w.q.Subresource == "scale",
	}
	return &w.asked
}

// mutate calls the mutating plugins. It calls them a second time if one of them changed an object that earlier plugins
// had seen.
func (w *write) mutate() error {
	a := w.admission()
	if err := w.s.mutate(w.q.http.Context(), w.s.o.Mutators, a); err != nil {
		return err
	}
	w.obj = a.Object
	if w.q.Subresource == "scale" {
		return w.mutateScale()
	}
	return nil
}

func (s *Server) mutate(ctx context.Context, plugins []api.Mutator, a *api.Admission) error {
	if err := s.reliable(a); err != nil {
		return err
	}
	t := s.observed.admit(a, "admit")
	for {
		for _, plugin := range plugins {
			if err := t.took(plugin, plugin.Admit(ctx, a)); err != nil {
				return err
			}
		}
		if a.Again.Second || !a.Again.Wanted {
			t.end(nil)
			return nil
		}
		a.Again.Second = true
	}
}

// approve calls the validating plugins.
func (w *write) approve() error {
	a := w.admission()
	if err := w.s.approve(w.q.http.Context(), w.s.o.Validators, a); err != nil {
		return err
	}
	if w.q.Subresource == "scale" {
		a, err := w.scaleAdmission()
		if err != nil {
			return err
		}
		return w.s.approve(w.q.http.Context(), w.s.o.Outside.Validators, a)
	}
	return nil
}

func (s *Server) approve(ctx context.Context, plugins []api.Validator, a *api.Admission) error {
	t := s.observed.admit(a, "validate")
	for _, plugin := range plugins {
		if err := t.took(plugin, plugin.Validate(ctx, a)); err != nil {
			return err
		}
	}
	t.end(nil)
	return nil
}

// present passes the object that was sent to a subresource to webhooks and policies. They see that object, not the
// object that the subresource changes.
func (s *Server) present(
	q *request,
	operation string,
	kind schema.GroupVersionKind,
	obj runtime.Object,
	dryRun bool,
) error {
	return s.presentTo(s.o.Outside.Validators, q, operation, kind, obj, dryRun)
}

// presentTo does what present does, with the given validating plugins.
func (s *Server) presentTo(
	validators []api.Validator,
	q *request,
	operation string,
	kind schema.GroupVersionKind,
	obj runtime.Object,
	dryRun bool,
) error {
	a := &api.Admission{
		Operation: operation, User: q.user, Kind: kind, Resource: q.served.Name(), Subresource: q.Subresource,
		Namespace: q.Namespace, Name: q.Name, Object: obj, DryRun: dryRun, Warn: q.warn,
		Origin: &write{q: q, operation: operation, dryRun: dryRun},
	}
	if err := s.mutate(q.http.Context(), s.o.Outside.Mutators, a); err != nil {
		return err
	}
	q.presented = true
	return s.approve(q.http.Context(), validators, a)
}

// mutateScale lets webhooks and policies change a write to the scale subresource.
func (w *write) mutateScale() error {
	a, err := w.scaleAdmission()
	if err != nil {
		return err
	}
	if err := w.s.mutate(w.q.http.Context(), w.s.o.Outside.Mutators, a); err != nil {
		return err
	}
	if scale, ok := a.Object.(*autoscalingv1.Scale); ok {
		w.q.served.Scale.Set(w.obj, scale.Spec.Replicas)
	}
	return nil
}

func (w *write) scaleAdmission() (*api.Admission, error) {
	whole := *w.admission()
	a := &whole
	a.Kind, a.Resource, a.Versions, a.Presented = scaleKind, w.q.served.Name(), nil, false
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
func (w *write) Annotate(key, value string) { w.q.trail.annotate(key, value) }

// Audited implements api.Origin.
func (w *write) Audited(contents bool) bool { return w.q.trail.kept(contents) }

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
	manager, validation := w.q.query.Get("fieldManager"), w.q.query.Get("fieldValidation")
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
