package extend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/custom"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds"
)

// DefinitionsGVR is the resource of CustomResourceDefinitions.
var DefinitionsGVR = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// extension is a kind that is served because a CustomResourceDefinition declares it.
type extension struct {
	definition *apiextensionsv1.CustomResourceDefinition // the version that is served
	kind       *kinds.Kind
}

// CheckServed is the readiness check that fails until the CustomResourceDefinitions are served.
func (s *Definitions) CheckServed() error {
	if s.isReady.Load() || s.config.Cache.Resource(DefinitionsGVR.GroupResource()) == nil {
		return nil
	}
	return errors.New("the definitions of custom resources are not served yet")
}

// Run serves the kinds that CustomResourceDefinitions declare, until ctx ends. The server is not ready
// before Run has processed all of them once.
func (s *Definitions) Run(ctx context.Context) error {
	crds := s.config.Cache.Resource(DefinitionsGVR.GroupResource())
	if crds == nil {
		return nil // not served
	}
	if err := s.config.Cache.WaitFor(ctx, 1); err != nil {
		return nil // ctx ended
	}
	serving := map[string]extension{}
	const first, maximum = 100 * time.Millisecond, 5 * time.Second
	for pause := first; ctx.Err() == nil; {
		snapshot := crds.Snapshot()
		cursor, err := crds.Watch(cache.Topic{}, snapshot.Revision)
		if err != nil {
			continue // the cache was reloaded meanwhile
		}
		more, err := s.syncDefinitions(ctx, snapshot, serving)
		var retry <-chan time.Time
		if ctx.Err() == nil {
			s.processed.advance(snapshot.Revision)
		}
		if err == nil {
			s.isReady.Store(true)
			s.served.advance(snapshot.Revision)
			pause = first
		} else if ctx.Err() == nil {
			s.config.Log.Warn("serving what definitions declare", "err", err)
		}
		if err != nil || more {
			retry = time.After(pause)
			pause = min(2*pause, maximum)
		}
		events, wake, err := cursor.Next()
		if err == nil && len(events) == 0 {
			select {
			case <-ctx.Done():
			case <-wake:
			case <-retry:
			}
		}
		cursor.Close()
	}
	return nil
}

// definitionTimeout is how long a request for an unknown resource waits for its definition.
const definitionTimeout = 3 * time.Second

// waitForDiscovery delays a discovery or OpenAPI request until the document covers every definition that any server has
// established. A client that saw a definition as established may look for its kind at any server. current does not wait
// for definitions that cannot be served, and not at all while the store does not answer.
func (s *Definitions) waitForDiscovery(q *request.Request, crds *cache.Resource) {
	if q.HTTP.Method != http.MethodGet ||
		!strings.HasPrefix(q.Path, "/apis") && !strings.HasPrefix(q.Path, "/openapi/") ||
		s.server.CheckStore() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(q.HTTP.Context(), definitionTimeout)
	defer cancel()
	if _, err := s.config.Cache.WaitForCurrent(ctx); err == nil {
		s.processed.wait(ctx, crds.Revision())
	}
}

// Wait delays a request for a resource that is not served here until this server has processed every definition that
// any server has established. A client that saw a definition as established may ask any server at once. mayBeServed
// reports whether the resource may be served now.
func (s *Definitions) Wait(q *request.Request) (mayBeServed bool, err error) {
	crds := s.config.Cache.Resource(DefinitionsGVR.GroupResource())
	if crds != nil && !q.Resource && q.Aggregated == nil {
		s.waitForDiscovery(q, crds)
	}
	if q.IsServed || q.Aggregated != nil || !q.Resource || crds == nil || !strings.Contains(q.Group, ".") {
		return false, nil
	}
	if err := crds.ReadError(q.GroupResource().String()); err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("what defines the resource cannot be read: %w", err))
	}
	ctx, cancel := context.WithTimeout(q.HTTP.Context(), definitionTimeout)
	defer cancel()
	if _, err := s.config.Cache.WaitForCurrent(ctx); err != nil {
		return false, nil // treat it as not served
	}
	s.served.wait(ctx, crds.Revision())
	return true, nil
}

// syncDefinitions makes the served kinds match a snapshot of the definitions. more reports that it must be called
// again, because something is still under way.
func (s *Definitions) syncDefinitions(
	ctx context.Context,
	snapshot *cache.Snapshot,
	serving map[string]extension,
) (more bool, err error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	snapshot.Ascend("", "", func(e *cache.Entry) bool {
		if obj, err := e.Object(); err == nil { // a definition that cannot be read is served as before
			if d, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
				all = append(all, d)
			}
		}
		return true
	})
	var failed []error
	wanted, changed := map[string]bool{}, false
	names := custom.NamesOf(all)
	for _, d := range all {
		status := custom.NewStatus(d, names, s.config.Now())
		if !equality.Semantic.DeepEqual(status, d.Status) {
			// A definition is served after its accepted names are stored, so that all servers know them. A later
			// definition may not claim the same names.
			names.Accept(d, status.AcceptedNames)
			if err := s.writeDefinitionStatus(ctx, d, status); err != nil {
				failed = append(failed, err)
			}
			wanted[d.Name] = serving[d.Name].kind != nil
			continue
		}
		if !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			continue
		}
		wanted[d.Name] = true
		if before, ok := serving[d.Name]; !ok || declaresOtherKinds(before.definition, d) {
			if err := s.serveDefinition(ctx, d, before, serving); err != nil {
				failed = append(failed, err)
				continue
			}
			changed = true
		}
	}
	for _, d := range all {
		// Watches continue, so that they report the deletion of the objects.
		if before, ok := serving[d.Name]; ok && d.DeletionTimestamp != nil {
			before.kind.Untyped.Family.IsClosed.Store(true)
		}
	}
	for name, before := range serving {
		if wanted[name] || s.config.Cache.Resource(DefinitionsGVR.GroupResource()).ReadError(name) != nil {
			continue // a definition that cannot be read is served as before
		}
		s.config.Cache.Remove(before.kind)
		s.config.Owners.RemoveKind(before.kind)
		delete(serving, name)
		changed = true
	}
	if changed {
		s.server.ServeKinds(sortedKinds(serving))
	}
	for _, d := range all {
		if d.DeletionTimestamp == nil ||
			!slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
			continue
		}
		if before, ok := serving[d.Name]; ok && before.kind.Untyped.Family.IsClosed.Load() ||
			!apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			left, err := s.deleteInstances(ctx, d, before.kind)
			more = more || left
			if err != nil {
				failed = append(failed, err)
			}
		}
	}
	return more, errors.Join(failed...)
}

// declaresOtherKinds reports whether two states of a definition declare different kinds.
func declaresOtherKinds(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return a != b && (a.UID != b.UID ||
		!equality.Semantic.DeepEqual(a.Spec, b.Spec) ||
		!equality.Semantic.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames))
}

// serveDefinition serves the kind that a definition declares, in place of the kind that it declared before.
func (s *Definitions) serveDefinition(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	before extension,
	serving map[string]extension,
) error {
	k, err := custom.NewKind(d, s.config.Backends)
	if err != nil {
		return err
	}
	for _, builtin := range s.config.BuiltIn {
		if builtin.GR() == k.GR() {
			return fmt.Errorf("the definition %s declares what is served already", d.Name)
		}
	}
	if err := s.config.Cache.Add(ctx, k); err != nil {
		return err
	}
	if before.kind != nil {
		s.config.Owners.RemoveKind(before.kind)
	}
	serving[d.Name] = extension{d, k}
	return nil
}

// sortedKinds returns the kinds, ordered by group and resource.
func sortedKinds(serving map[string]extension) []*kinds.Kind {
	var list []*kinds.Kind
	for _, e := range serving {
		list = append(list, e.kind)
	}
	slices.SortFunc(list, func(a, b *kinds.Kind) int {
		return strings.Compare(a.GVK.Group+"/"+a.Resource, b.GVK.Group+"/"+b.Resource)
	})
	return list
}

// writeDefinitionStatus writes the status of a definition, with the result of checking its names.
func (s *Definitions) writeDefinitionStatus(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	status apiextensionsv1.CustomResourceDefinitionStatus,
) error {
	own := write.Own{Resource: DefinitionsGVR, Subresource: "status", Name: d.Name}
	_, err := s.config.Writes.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
		now, ok := live.(*apiextensionsv1.CustomResourceDefinition)
		switch {
		case !ok:
			return nil, apierrors.NewNotFound(DefinitionsGVR.GroupResource(), d.Name)
		case now.ResourceVersion != d.ResourceVersion:
			return live, nil // the definition changed since its status was computed
		}
		next := now.DeepCopy()
		next.Status = status
		return next, nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of the definition %s: %w", d.Name, err)
	}
	return nil
}

// deleteInstances deletes the objects of a definition that is being deleted, and removes the definition's finalizer
// when no object is left. left reports that finalizers keep some objects.
func (s *Definitions) deleteInstances(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	k *kinds.Kind,
) (left bool, err error) {
	if k != nil {
		if _, err := s.config.Cache.WaitForCurrent(ctx); err != nil {
			return true, err
		}
		var all []*cache.Entry
		s.config.Cache.Resource(k.GR()).Snapshot().Ascend("", "", func(e *cache.Entry) bool {
			all = append(all, e)
			return true
		})
		for _, e := range all {
			isGone, err := s.config.Writes.Remove(ctx, wire.Served{Kind: k}, e.Namespace, e.Name,
				&metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return true, fmt.Errorf("delete %s %s for its definition is going: %w", k.GR(), e.Key, err)
			}
			left = left || err == nil && !isGone
		}
	}
	if left {
		return true, nil
	}
	_, err = s.config.Writes.Change(ctx, write.Own{Resource: DefinitionsGVR, Name: d.Name},
		func(live runtime.Object) (runtime.Object, error) {
			now, ok := live.(*apiextensionsv1.CustomResourceDefinition)
			if !ok || now.UID != d.UID {
				return nil, apierrors.NewNotFound(DefinitionsGVR.GroupResource(), d.Name)
			}
			next := now.DeepCopy()
			next.Finalizers = slices.DeleteFunc(next.Finalizers,
				func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer })
			return next, nil
		})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("let the definition %s go: %w", d.Name, err)
	}
	return false, nil
}
