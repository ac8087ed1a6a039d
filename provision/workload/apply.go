package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/state"
)

// parallel is how many objects are looked at at a time.
const parallel = 16

// Plan compares all objects with the live ones by what a dry run of applying them gives. What
// the API refuses is among the entries, and is a run.Refused with all of it besides. ended are the objects that were applied, are not declared any more,
// and are not there any more either.
func (l *Live) Plan(ctx context.Context, c *config.Cluster, before []state.Object) (entries []plan.Object, ended []state.Object, err error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, nil, err
	}
	known(desired, c, before)
	entries = make([]plan.Object, len(desired))
	failed := make([]error, len(desired))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, d := range desired {
		g.Go(func() error {
			var err error
			entries[i], err = l.try(gctx, d)
			if refuses(err) {
				failed[i], err = err, nil
			}
			return err
		})
	}
	if err = g.Wait(); err != nil {
		return nil, nil, err
	}
	refused := refusals(desired, entries, failed)
	for _, r := range refused {
		entries[r.at].Action, entries[r.at].Note, entries[r.at].Diff = plan.Refused, r.Err.Error(), nil
	}
	for _, o := range obsolete(desired, before) {
		live, err := l.get(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		if live == nil {
			ended = append(ended, o)
			continue
		}
		entry := plan.Object{Address: o.Address, Kind: o.Kind, Name: fullName(o.Namespace, o.Name), Action: plan.Remove, Note: "no longer declared"}
		if live.GetDeletionTimestamp() != nil {
			entry.Action, entry.Note = plan.None, "no longer declared, and going already"
			if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
				entry.Note += ": it waits for " + strings.Join(finalizers, ", ")
			}
		} else if owner := others(live); owner != "" {
			entry.Action, entry.Note = plan.None, "no longer declared, and stays: it was made anew by "+owner
			ended = append(ended, o)
		}
		entries = append(entries, entry)
	}
	if len(refused) > 0 {
		return entries, ended, said(refused)
	}
	return entries, ended, nil
}

// compare returns what applying an object would change.
func (l *Live) compare(ctx context.Context, d Desired) (plan.Object, error) {
	o := plan.Object{Address: d.Address, Kind: d.Object.GetKind(), Name: fullName(d.Object.GetNamespace(), d.Object.GetName())}
	live, err := l.get(ctx, d.reference())
	if err != nil {
		return o, err
	}
	if live == nil {
		o.Action = plan.Create
		return o, nil
	}
	by := maker(live)
	if by != "" && !d.Known {
		o.Action = plan.Change
		return o, foreignError{d.Address, by}
	}
	result, err := l.dryRun(ctx, d)
	if err != nil {
		o.Action = plan.Change
		return o, err
	}
	if o.Diff = Diff(live, result); len(o.Diff) > 0 {
		o.Action, o.Note = plan.Change, consequence(o, live, result)
		if by != "" {
			o.Note = strings.TrimPrefix(o.Note+"; taken over from "+by, "; ")
		}
	}
	return o, nil
}

// consequence says what a change leads to.
func consequence(o plan.Object, before, after *unstructured.Unstructured) string {
	if o.Kind != "Deployment" {
		return ""
	}
	for _, line := range o.Diff {
		if strings.HasPrefix(line, "spec.template.") {
			n, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
			return "roll " + plan.Number(int(n), "pod")
		}
	}
	was, _, _ := unstructured.NestedInt64(before.Object, "spec", "replicas")
	now, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
	if was != now {
		return fmt.Sprintf("scale from %d to %d", was, now)
	}
	return ""
}

func fullName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// get returns a live object, nil when there is none or no such kind.
func (l *Live) get(ctx context.Context, o state.Object) (*unstructured.Unstructured, error) {
	client, err := l.client(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), o.Namespace)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	live, err := client.Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: look at %s %s: %w", o.Address, o.Kind, fullName(o.Namespace, o.Name), err)
	}
	return live, nil
}

func (l *Live) client(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	resource := l.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), nil
}

// obsolete are the objects that were applied and are no longer declared.
func obsolete(desired []Desired, before []state.Object) (list []state.Object) {
	for _, o := range before {
		if !slices.ContainsFunc(desired, func(d Desired) bool { return d.reference().Same(o) }) {
			list = append(list, o)
		}
	}
	return list
}

// startup is how long a cluster that has just started may refuse what it will soon accept.
const startup = 30 * time.Second

// Apply brings everything in, in order, and prunes. What the API refuses is left out, and is a run.Refused with all of it. Nothing
// begins that depends on it.
func (l *Live) Apply(ctx context.Context, c *config.Cluster, before []state.Object, say func(plan.Object)) ([]state.Object, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	known(desired, c, before)
	var applied []state.Object
	var refused run.Refused
	kept := func() []state.Object { // what is there whatever happens: done so far, and what was before
		list := slices.Clone(applied)
		for _, o := range before {
			if !slices.Contains(list, o) {
				list = append(list, o)
			}
		}
		return list
	}
	deadline := time.Now().Add(startup)
	for i, d := range desired {
		if i > 0 && d.Wave > desired[i-1].Wave { // depends_on: what it names works before this begins
			if len(refused.List) > 0 {
				refused.Waiting = len(desired) - i
				return kept(), refused
			}
			if err := l.wait(ctx, desired[:i], say); err != nil {
				return kept(), err
			}
		}
		o, err := l.applyOne(ctx, d, deadline)
		switch {
		case refuses(err):
			r := refusal(d, err)
			refused.List = append(refused.List, r)
			o.Action, o.Note, o.Diff = plan.Refused, r.Err.Error(), nil
		case err != nil:
			return kept(), fmt.Errorf("%s: apply %s %s: %w", d.Address, o.Kind, o.Name, err)
		}
		if !d.Keep && !errors.As(err, new(foreignError)) {
			applied = append(applied, d.reference()) // one that is refused may be there from before
		}
		if o.Action != plan.None {
			say(o)
		}
	}
	for _, o := range obsolete(desired, before) {
		removed, err := l.prune(ctx, o)
		if err != nil {
			return kept(), err
		}
		if removed {
			say(plan.Object{Address: o.Address, Kind: o.Kind, Name: fullName(o.Namespace, o.Name), Action: plan.Remove, Note: "removed"})
		}
	}
	if len(refused.List) > 0 {
		return applied, refused
	}
	return applied, nil
}

// References are the objects that Apply remembers as its own.
func (l *Live) References(c *config.Cluster) ([]state.Object, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	var list []state.Object
	for _, d := range desired {
		if !d.Keep {
			list = append(list, d.reference())
		}
	}
	return list, nil
}

// applyOne applies an object unless a dry run says that nothing would change, so
// that a run with nothing to do writes nothing. Until the deadline it tries again what may pass by itself.
func (l *Live) applyOne(ctx context.Context, d Desired, deadline time.Time) (plan.Object, error) {
	pause := 100 * time.Millisecond
	for {
		o, err := l.compare(ctx, d)
		if err == nil && o.Action != plan.None {
			var client dynamic.ResourceInterface
			if client, err = l.client(d.Object.GroupVersionKind(), d.Object.GetNamespace()); err == nil {
				_, err = l.write(ctx, client, d)
			}
		}
		if err == nil {
			return o, nil
		}
		if !soon(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return o, err
		}
		l.mapper.Reset() // a kind may have been defined a moment ago
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// soon reports whether an error may pass by itself: the cluster starts, or a
// controller has not done its part yet.
func soon(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, new(foreignError)) {
		return false
	}
	if !errors.As(err, &status) {
		return true // the connection, or a kind that is not served yet
	}
	return apierrors.IsNotFound(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err) ||
		apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "service account") || strings.Contains(err.Error(), "not yet"))
}

// prune deletes an object that is still ours.
func (l *Live) prune(ctx context.Context, o state.Object) (bool, error) {
	live, err := l.get(ctx, o)
	if err != nil || live == nil || others(live) != "" || live.GetDeletionTimestamp() != nil {
		return false, err
	}
	client, err := l.client(live.GroupVersionKind(), o.Namespace)
	if err != nil {
		return false, err
	}
	background, uid := metav1.DeletePropagationBackground, live.GetUID()
	err = client.Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%s: remove %s %s: %w", o.Address, o.Kind, fullName(o.Namespace, o.Name), err)
	}
	return true, nil
}

// others says whose an object is that was applied from here once, and has been made anew by somebody else since: then none of its
// fields is of this manager. It is empty for what is ours, whatever its labels say: a chart writes its own.
func others(live *unstructured.Unstructured) string {
	var managers []string
	for _, f := range live.GetManagedFields() {
		if f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply {
			return ""
		}
		if f.Subresource == "" && !slices.Contains(managers, f.Manager) {
			managers = append(managers, f.Manager)
		}
	}
	switch {
	case live.GetLabels()[ManagedByLabel] == Manager:
		return ""
	case len(managers) == 0:
		return "somebody else"
	}
	return strings.Join(managers, ", ")
}
