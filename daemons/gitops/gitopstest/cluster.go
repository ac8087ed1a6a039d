package gitopstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Cluster is a cluster in memory. Its methods are safe for concurrent use.
type Cluster struct {
	// Refuse returns an error for an object that the API refuses. nil refuses nothing.
	Refuse func(o, live *unstructured.Unstructured) error
	// Finalizing reports whether deleted objects stay until Finish is called. nil means that they do not.
	Finalizing func(id gitops.ObjectID) bool

	mu      sync.Mutex
	allow   func(account, verb string, id gitops.ObjectID) bool
	kinds   map[schema.GroupKind]gitops.Scope
	objects map[key]*stored
	uids    int
	writes  []string
	reads   int
}

type key struct {
	schema.GroupKind
	namespace, name string
}

// stored is an object, and the fields that were applied last.
type stored struct {
	live    *unstructured.Unstructured
	applied map[string]any
}

// NewCluster returns a cluster with some kinds and the usual namespaces.
func NewCluster() *Cluster {
	c := &Cluster{objects: map[key]*stored{}, kinds: map[schema.GroupKind]gitops.Scope{}}
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "ServiceAccount", "Pod", "PersistentVolumeClaim"} {
		c.kinds[schema.GroupKind{Kind: kind}] = gitops.ScopeNamespaced
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		c.kinds[schema.GroupKind{Group: "apps", Kind: kind}] = gitops.ScopeNamespaced
	}
	c.kinds[schema.GroupKind{Group: "batch", Kind: "Job"}] = gitops.ScopeNamespaced
	c.kinds[schema.GroupKind{Kind: "Namespace"}] = gitops.ScopeCluster
	c.kinds[schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}] = gitops.ScopeCluster
	c.kinds[schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}] = gitops.ScopeCluster
	for _, name := range []string{"default", "kube-system"} {
		c.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Namespace", Name: name}, nil)
	}
	return c
}

func keyOf(id gitops.ObjectID) key { return key{id.GroupKind(), id.Namespace, id.Name} }

// Put creates or changes an object as another client. change receives the object's content.
func (c *Cluster) Put(id gitops.ObjectID, change func(content map[string]any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.objects[keyOf(id)]
	if s == nil {
		s = &stored{live: c.create(id)}
		s.live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update"}})
		c.objects[keyOf(id)] = s
	}
	if change != nil {
		before := s.live.DeepCopy()
		change(s.live.Object)
		c.touch(s.live, before)
	}
}

// Remove removes an object as another client.
func (c *Cluster) Remove(id gitops.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, keyOf(id))
}

// Finish removes an object that is being deleted. It reports whether there was one.
func (c *Cluster) Finish(id gitops.ObjectID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.objects[keyOf(id)]
	if s == nil || s.live.GetDeletionTimestamp() == nil {
		return false
	}
	delete(c.objects, keyOf(id))
	return true
}

// Live returns a copy of an object, or nil.
func (c *Cluster) Live(id gitops.ObjectID) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.objects[keyOf(id)]; s != nil {
		return s.live.DeepCopy()
	}
	return nil
}

// Writes returns the writes since the last call, such as "create v1 ConfigMap default/a".
func (c *Cluster) Writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.writes
	c.writes = nil
	return list
}

// Reads returns the number of objects that were read, compared or applied since the last call.
func (c *Cluster) Reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.reads
	c.reads = 0
	return n
}

// create returns a new object. The caller holds mu.
func (c *Cluster) create(id gitops.ObjectID) *unstructured.Unstructured {
	c.uids++
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": id.APIVersion, "kind": id.Kind,
		"metadata": map[string]any{"name": id.Name}}}
	if id.Namespace != "" {
		o.SetNamespace(id.Namespace)
	}
	o.SetUID(types.UID("uid-" + strconv.Itoa(c.uids)))
	o.SetGeneration(1)
	o.SetResourceVersion(strconv.Itoa(c.uids))
	return o
}

// touch updates the generation and the version of a changed object.
func (c *Cluster) touch(o, before *unstructured.Unstructured) {
	c.uids++
	if !reflect.DeepEqual(declared(o.Object), declared(before.Object)) {
		o.SetGeneration(before.GetGeneration() + 1)
	}
	o.SetResourceVersion(strconv.Itoa(c.uids))
}

// declared returns the content of an object without its metadata and its status.
func declared(content map[string]any) map[string]any {
	out := maps.Clone(content)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// As implements gitops.Cluster.
func (c *Cluster) As(namespace, account string) (gitops.Applier, error) {
	return &applier{c, namespace + "/" + account}, nil
}

// applier acts as one account.
type applier struct {
	*Cluster
	account string
}

// SetAllow sets the function that reports whether an account, as NAMESPACE/NAME, may do something to an object. It is
// called with the cluster locked. nil allows everything.
func (c *Cluster) SetAllow(allow func(account, verb string, id gitops.ObjectID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allow = allow
}

func (a *applier) may(verb string, id gitops.ObjectID) error {
	if a.allow == nil || a.allow(a.account, verb, id) {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: id.GroupKind().Group, Resource: id.Kind}, id.Name,
		fmt.Errorf("account %s cannot %s it", a.account, verb))
}

// Scope implements gitops.Applier.
func (a *applier) Scope(_ context.Context, kind schema.GroupKind) (gitops.Scope, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kinds[kind], nil
}

// Get implements gitops.Reader.
func (a *applier) Get(ctx context.Context, id gitops.ObjectID) (*unstructured.Unstructured, error) {
	found, err := a.Find(ctx, []gitops.ObjectID{id})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Find implements gitops.Applier.
func (a *applier) Find(_ context.Context, ids []gitops.ObjectID) ([]*unstructured.Unstructured, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := make([]*unstructured.Unstructured, len(ids))
	a.reads += len(ids)
	for i, id := range ids {
		if err := a.may("get", id); err != nil {
			return nil, err
		}
		if a.kinds[id.GroupKind()] == gitops.ScopeUnknown {
			return nil, fmt.Errorf("the API does not serve %s in %s", id.Kind, id.APIVersion)
		}
		if s := a.objects[keyOf(id)]; s != nil {
			found[i] = s.live.DeepCopy()
		}
	}
	return found, nil
}

// Versions implements gitops.Tracker. It knows the versions of objects that the account may read.
func (a *applier) Versions(ids []gitops.ObjectID) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	versions := make([]string, len(ids))
	for i, id := range ids {
		if s := a.objects[keyOf(id)]; s != nil && a.may("get", id) == nil {
			versions[i] = gitops.VersionOf(s.live)
		}
	}
	return versions
}

// Compare implements gitops.Applier.
func (a *applier) Compare(_ context.Context, objects []gitops.Object) ([]gitops.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	results := make([]gitops.Result, len(objects))
	for i, o := range objects {
		results[i] = a.apply(o, objects, true)
	}
	return results, nil
}

// Apply implements gitops.Applier.
func (a *applier) Apply(_ context.Context, objects []gitops.Object) ([]gitops.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	results := make([]gitops.Result, len(objects))
	for i, o := range objects {
		results[i] = a.apply(o, nil, false)
	}
	return results, nil
}

// apply applies an object. planned are objects that exist when the object is applied.
func (a *applier) apply(o gitops.Object, planned []gitops.Object, isDryRun bool) gitops.Result {
	id := o.ID()
	a.reads++
	s := a.objects[keyOf(id)]
	fail := func(err error) gitops.Result { return gitops.Result{Err: err} }
	if a.kinds[id.GroupKind()] == gitops.ScopeUnknown {
		if slices.ContainsFunc(planned,
			func(p gitops.Object) bool { return p.GetKind() == "CustomResourceDefinition" }) {
			return gitops.Result{Action: gitops.ActionCreate}
		}
		return fail(fmt.Errorf("there is no such kind in %s", id.APIVersion))
	}
	if err := a.may("patch", id); err != nil {
		return fail(err)
	}
	if s != nil && s.live.GetDeletionTimestamp() != nil {
		return fail(errors.New("the object is being deleted"))
	}
	if s != nil && s.applied == nil && !o.Adopt {
		return fail(fmt.Errorf("it exists and was created by %s", s.live.GetManagedFields()[0].Manager))
	}
	if a.Refuse != nil {
		var live *unstructured.Unstructured
		if s != nil {
			live = s.live.DeepCopy()
		}
		if err := a.Refuse(o.Unstructured, live); err != nil {
			return fail(err)
		}
	}
	namespace := key{schema.GroupKind{Kind: "Namespace"}, "", id.Namespace}
	if id.Namespace != "" && a.objects[namespace] == nil {
		if isDryRun && slices.ContainsFunc(planned, func(p gitops.Object) bool { return keyOf(p.ID()) == namespace }) {
			return gitops.Result{Action: gitops.ActionCreate}
		}
		return fail(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, id.Namespace))
	}
	return a.write(o, s, isDryRun)
}

// write merges an object into the live one.
func (a *applier) write(o gitops.Object, s *stored, isDryRun bool) gitops.Result {
	id := o.ID()
	result := gitops.Result{Action: gitops.ActionChange}
	if s == nil {
		result.Action = gitops.ActionCreate
		if isDryRun {
			return result
		}
		s = &stored{live: a.create(id)}
		a.objects[keyOf(id)] = s
	}
	merged := s.live.DeepCopy()
	merge(merged.Object, o.Object, s.applied)
	merged.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: gitsource.Manager, Operation: "Apply"}})
	if result.Action == gitops.ActionChange {
		result.Diff = diff("", s.live.Object, merged.Object)
		if len(result.Diff) == 0 && s.applied != nil {
			return gitops.Result{Live: s.live.DeepCopy()}
		}
	}
	if isDryRun {
		return result
	}
	a.writes = append(a.writes, string(result.Action)+" "+id.String())
	a.touch(merged, s.live)
	s.live, s.applied = merged, runtime.DeepCopyJSON(o.Object)
	if result.Action == gitops.ActionCreate {
		merged.SetGeneration(1)
	}
	if id.Kind == "CustomResourceDefinition" {
		a.establish(merged)
	}
	result.Live = merged.DeepCopy()
	return result
}

// establish serves the kind of a definition.
func (a *applier) establish(o *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
	a.kinds[schema.GroupKind{Group: group, Kind: kind}] = gitops.ScopeCluster
	if scope == "Namespaced" {
		a.kinds[schema.GroupKind{Group: group, Kind: kind}] = gitops.ScopeNamespaced
	}
	o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
}

// Delete implements gitops.Applier.
func (a *applier) Delete(_ context.Context, id gitops.ObjectID, uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.may("delete", id); err != nil {
		return err
	}
	s := a.objects[keyOf(id)]
	if s == nil || s.live.GetUID() != uid {
		return nil
	}
	a.writes = append(a.writes, "delete "+id.String())
	if a.Finalizing != nil && a.Finalizing(id) {
		now := metav1.Now()
		s.live.SetDeletionTimestamp(&now)
		return nil
	}
	delete(a.objects, keyOf(id))
	return nil
}

// merge sets the fields of from in to, and removes those that were applied before and are not in from.
func merge(to, from, before map[string]any) {
	for k, v := range before {
		if _, ok := from[k]; !ok {
			if inner, isMap := v.(map[string]any); isMap {
				if toInner, ok := to[k].(map[string]any); ok {
					merge(toInner, map[string]any{}, inner)
					continue
				}
			}
			delete(to, k)
		}
	}
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		toInner, wasMap := to[k].(map[string]any)
		if !isMap {
			to[k] = runtime.DeepCopyJSONValue(v)
			continue
		}
		if !wasMap {
			toInner = map[string]any{}
			to[k] = toInner
		}
		beforeInner, _ := before[k].(map[string]any)
		merge(toInner, inner, beforeInner)
	}
}

// diff returns the fields that differ, except for those that the server maintains.
func diff(path string, a, b map[string]any) (lines []string) {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		at := path + k
		if slices.Contains([]string{"metadata.managedFields", "metadata.generation", "metadata.resourceVersion"}, at) {
			continue
		}
		x, ok := a[k].(map[string]any)
		y, ok2 := b[k].(map[string]any)
		switch {
		case ok && ok2:
			lines = append(lines, diff(at+".", x, y)...)
		case !reflect.DeepEqual(a[k], b[k]):
			lines = append(lines, fmt.Sprintf("%s: %v → %v", at, a[k], b[k]))
		}
	}
	return lines
}
