package workload

import (
	"context"
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
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// maxParallel is the maximum number of objects that are processed at the same time.
const maxParallel = 16

// Plan compares all objects with the live ones, by a dry run of applying them. Objects that the API refuses are among
// the entries, and the error is a run.Refused that lists them. ended are the objects that were applied before, are no
// longer declared, and no longer exist.
func (l *Live) Plan(
	ctx context.Context,
	c *config.Cluster,
	before []state.Object,
) (entries []plan.Object, ended []state.Object, err error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, nil, err
	}
	markAdoptable(desired, c, before)
	l.unchanged.open(ctx, l)
	defer l.unchanged.save()
	removed := obsoleteObjects(desired, before)
	existing, err := l.listExisting(ctx, append(references(desired), removed...))
	if err != nil {
		return nil, nil, err
	}
	entries = make([]plan.Object, len(desired))
	failed := make([]error, len(desired))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, d := range desired {
		g.Go(func() error {
			var err error
			entries[i], err = l.tryApply(gctx, d, existing)
			if isRefusal(err) {
				failed[i], err = err, nil
			}
			return err
		})
	}
	if err = g.Wait(); err != nil {
		return nil, nil, err
	}
	refused := unresolvedRefusals(desired, entries, failed)
	for _, r := range refused {
		entries[r.index].Action, entries[r.index].Note, entries[r.index].Diff = plan.Refused, r.Err.Error(), nil
	}
	lives, err := l.getAll(ctx, removed, existing)
	if err != nil {
		return nil, nil, err
	}
	for i, o := range removed {
		live := lives[i]
		if live == nil {
			ended = append(ended, o)
			continue
		}
		entry := plan.Object{
			Address: o.Address,
			Kind:    o.Kind,
			Name:    fullName(o.Namespace, o.Name),
			Action:  plan.Remove,
			Note:    "no longer declared",
		}
		if live.GetDeletionTimestamp() != nil {
			entry.Action, entry.Note = plan.None, "no longer declared, and going "+
				"already"+deletionDelay(live.GetFinalizers())
		} else if owner := l.foreignManagers(live); owner != "" {
			entry.Action, entry.Note = plan.None, "no longer declared, and stays: it was created again by "+owner
			ended = append(ended, o)
		}
		entries = append(entries, entry)
	}
	if len(refused) > 0 {
		return entries, ended, joinRefusals(refused)
	}
	return entries, ended, nil
}

// compare returns what applying an object would change. It replaces ignored fields of d with those of the live object.
func (l *Live) compare(ctx context.Context, d *Desired, existing *listedObjects) (plan.Object, error) {
	o := plan.Object{
		Address: d.Address,
		Kind:    d.Object.GetKind(),
		Name:    fullName(d.Object.GetNamespace(), d.Object.GetName()),
	}
	live, err := existing.get(ctx, l.connection, d.reference())
	if err != nil {
		return o, err
	}
	if live == nil {
		o.Action = plan.Create
		return o, nil
	}
	if live.GetDeletionTimestamp() != nil { // it will be deleted in any case; a new object can take its name afterwards
		going := deletingError{live.GetFinalizers()}
		o.Action, o.Note = plan.Create, going.Error()
		return o, going
	}
	// A program that compares the same objects again and again spends most of its time with unchanged ones.
	if l.unchanged.hasChangingDeclarations && len(d.Ignored.Fields) == 0 && !d.Ignored.All &&
		isApplied(d.Object, live, l.fieldManager()) {
		d.live = live
		return o, nil
	}
	return l.compareLive(ctx, d, o, live)
}

// compareLive compares an object with the live one by a dry run, unless it is known to be unchanged.
func (l *Live) compareLive(ctx context.Context, d *Desired, o plan.Object,
	live *unstructured.Unstructured) (plan.Object, error) {
	by := l.creatorOf(live)
	if by != "" && !d.CanAdopt {
		o.Action = plan.Change
		return o, foreignError{d.Address, by}
	}
	if d.Ignored.All {
		return o, nil
	}
	*d = d.OverLive(live)
	d.live = live
	if l.unchanged.isUnchanged(*d, live) {
		return o, nil
	}
	result, err := l.dryRun(ctx, *d)
	if err != nil {
		o.Action = plan.Change
		return o, err
	}
	if o.Diff = Diff(live, result); len(o.Diff) > 0 {
		o.Action, o.Note = plan.Change, describeConsequence(o, live, result)
		if by != "" {
			o.Note = joinNotes(o.Note, "taken over from "+by)
		}
		if isPools(o.Kind, d.Object.GetNamespace(), d.Object.GetName()) {
			o.Note = joinNotes(o.Note, l.lostAddresses(ctx, live, result))
		}
	} else {
		l.unchanged.record(*d, live)
	}
	return o, nil
}

// getAll returns the live objects, nil for those that do not exist.
func (l *connection) getAll(ctx context.Context, list []state.Object,
	existing *listedObjects) ([]*unstructured.Unstructured, error) {
	found := make([]*unstructured.Unstructured, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, o := range list {
		g.Go(func() (err error) {
			found[i], err = existing.get(ctx, l, o)
			return err
		})
	}
	return found, g.Wait()
}

// joinNotes joins two notes.
func joinNotes(note, more string) string {
	if note == "" || more == "" {
		return note + more
	}
	return note + "; " + more
}

// describeConsequence describes what a change of a Deployment causes.
func describeConsequence(o plan.Object, before, after *unstructured.Unstructured) string {
	if o.Kind != "Deployment" {
		return ""
	}
	for _, line := range o.Diff {
		if strings.HasPrefix(line, "spec.template.") {
			n, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
			return "roll " + plan.Number(int(n), "pod")
		}
	}
	old, _, _ := unstructured.NestedInt64(before.Object, "spec", "replicas")
	now, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
	if old != now {
		return fmt.Sprintf("scale from %d to %d", old, now)
	}
	return ""
}

func fullName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// get returns a live object, or nil if the object or its kind does not exist.
func (l *connection) get(ctx context.Context, o state.Object) (*unstructured.Unstructured, error) {
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

func (l *connection) client(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
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

// obsoleteObjects returns the objects that were applied before and are no longer declared.
func obsoleteObjects(desired []Desired, before []state.Object) (list []state.Object) {
	declared := make(map[state.Object]bool, len(desired))
	for _, d := range desired {
		declared[d.reference().Identity()] = true
	}
	for _, o := range before {
		if !declared[o.Identity()] {
			list = append(list, o)
		}
	}
	return list
}

// startupTimeout is how long a new cluster may refuse objects that it will soon accept.
const startupTimeout = 30 * time.Second

// Apply applies all objects in order, and prunes. It skips objects that the API refuses and returns a run.Refused that
// lists them. Objects that depend on refused ones are not applied.
func (l *Live) Apply(
	ctx context.Context,
	c *config.Cluster,
	before []state.Object,
	report func(plan.Object),
) ([]state.Object, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	markAdoptable(desired, c, before)
	l.unchanged.open(ctx, l)
	defer l.unchanged.save()
	var applied []state.Object
	var refused session.RefusedError
	kept := func() []state.Object { // the objects to record on an error: those applied so far, and those from before
		list := slices.Clone(applied)
		return append(list, missingFrom(list, before)...)
	}
	deadline := time.Now().Add(startupTimeout)
	var again []Desired // objects that were refused
	retry := func() (err error) {
		again, refused.List, err = l.retry(ctx, again, refused.List, report)
		return err
	}
	for from, to := 0, 0; from < len(desired); from = to {
		// because of depends_on, all earlier objects must be healthy first
		if from > 0 && desired[from].Wave > desired[from-1].Wave {
			if err := retry(); err != nil {
				return kept(), err
			}
			if len(refused.List) > 0 {
				refused.Waiting = len(desired) - from
				return kept(), refused
			}
			if err := l.wait(ctx, desired[:from], report); err != nil {
				return kept(), err
			}
		}
		to = parallelEnd(desired, from)
		done, list, err := l.applyAll(ctx, desired[from:to], deadline, report)
		applied, refused.List, again = append(applied, done...), append(refused.List, list...), append(again,
			refusedObjects(desired[from:to], list)...)
		if err != nil {
			return kept(), err
		}
	}
	obsolete := obsoleteObjects(desired, before)
	if err := l.pruneAll(ctx, obsolete, report); err != nil {
		return kept(), err
	}
	applied = append(applied, l.endingSources(ctx, obsolete)...)
	if err := retry(); err != nil {
		return applied, err
	}
	if len(refused.List) > 0 {
		return applied, refused
	}
	return applied, nil
}

// missingFrom returns the objects of more that are not in list.
func missingFrom(list, more []state.Object) (rest []state.Object) {
	in := make(map[state.Object]bool, len(list))
	for _, o := range list {
		in[o] = true
	}
	for _, o := range more {
		if !in[o] {
			rest = append(rest, o)
		}
	}
	return rest
}

// References returns the objects that the state records after Apply.
func (l *Live) References(c *config.Cluster) ([]state.Object, error) {
	desired, err := Objects(c)
	if err != nil {
		return nil, err
	}
	var list []state.Object
	for _, d := range desired {
		if !d.IsNeverPruned {
			list = append(list, d.reference())
		}
	}
	return list, nil
}

// foreignManagers returns the field managers of an object that was applied before and has since been recreated by
// someone else: the client's field manager manages none of its fields. It returns "" for our own objects, whatever
// their labels, since charts set their own.
func (l *Live) foreignManagers(live *unstructured.Unstructured) string {
	for _, entry := range rawManagedFields(live) {
		if entry["manager"] == l.fieldManager() && entry["operation"] == string(metav1.ManagedFieldsOperationApply) {
			return ""
		}
	}
	var managers []string
	for _, f := range live.GetManagedFields() {
		if f.Subresource == "" && !slices.Contains(managers, f.Manager) {
			managers = append(managers, f.Manager)
		}
	}
	switch {
	case live.GetLabels()[ManagedByLabel] == l.fieldManager():
		return ""
	case len(managers) == 0:
		return "somebody else"
	}
	return strings.Join(managers, ", ")
}
