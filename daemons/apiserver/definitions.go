package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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

var definitionsGVR = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// extension is a kind that is served because a CustomResourceDefinition declares it.
type extension struct {
	definition *apiextensionsv1.CustomResourceDefinition // the version that is served
	kind       *kinds.Kind
}

// checkDefinitionsServed is the readiness check that fails until the CustomResourceDefinitions are served.
func (s *Server) checkDefinitionsServed() error {
	if s.definitionsReady.Load() || s.cache.Resource(definitionsGVR.GroupResource()) == nil {
		return nil
	}
	return errors.New("the definitions of custom resources are not served yet")
}

// serveDefinitions serves the kinds that CustomResourceDefinitions declare, until ctx ends. The server is not ready
// before extend has processed all of them once.
func (s *Server) serveDefinitions(ctx context.Context) error {
	crds := s.cache.Resource(definitionsGVR.GroupResource())
	if crds == nil {
		return nil // not served
	}
	if err := s.cache.WaitFor(ctx, 1); err != nil {
		return nil // ctx ended
	}
	serving := map[string]extension{}
	const first, most = 100 * time.Millisecond, 5 * time.Second
	for pause := first; ctx.Err() == nil; {
		snapshot := crds.Snapshot()
		cursor, err := crds.Watch(cache.Topic{}, snapshot.Revision)
		if err != nil {
			continue // the cache was reloaded meanwhile
		}
		more, err := s.syncDefinitions(ctx, snapshot, serving)
		var retry <-chan time.Time
		if ctx.Err() == nil {
			s.processedDefinitions.advance(snapshot.Revision)
		}
		if err == nil {
			s.definitionsReady.Store(true)
			s.servedDefinitions.advance(snapshot.Revision)
			pause = first
		} else if ctx.Err() == nil {
			s.log.Warn("serving what definitions declare", "err", err)
		}
		if err != nil || more {
			retry = time.After(pause)
			pause = min(2*pause, most)
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

// definitionProgress is the revision up to which CustomResourceDefinitions have been processed.
type definitionProgress struct {
	mu       sync.Mutex
	revision int64
	changed  chan struct{}
}

func (f *definitionProgress) advance(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = revision
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wait returns when that revision has been reached, or ctx ends.
func (f *definitionProgress) wait(ctx context.Context, revision int64) {
	for {
		f.mu.Lock()
		if f.revision >= revision {
			f.mu.Unlock()
			return
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// definitionTimeout is how long a request for an unknown resource waits for its definition.
const definitionTimeout = 3 * time.Second

// waitForDiscovery delays a discovery or OpenAPI request until the document covers every definition that any server has
// established. A client that saw a definition as established may look for its kind at any server. current does not wait
// for definitions that cannot be served, and not at all while the store does not answer.
func (s *Server) waitForDiscovery(q *request.Request, crds *cache.Resource) {
	if q.HTTP.Method != http.MethodGet ||
		!strings.HasPrefix(q.Path, "/apis") && !strings.HasPrefix(q.Path, "/openapi/") ||
		s.upkeep.CheckStore() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(q.HTTP.Context(), definitionTimeout)
	defer cancel()
	if _, err := s.cache.WaitForCurrent(ctx); err == nil {
		s.processedDefinitions.wait(ctx, crds.Revision())
	}
}

// waitForDefinition delays a request for a resource that is not served here until this server has processed every
// definition that any server has established. A client that saw a definition as established may ask any server at once.
func (s *Server) waitForDefinition(q *request.Request) error {
	crds := s.cache.Resource(definitionsGVR.GroupResource())
	if crds != nil && !q.Resource && q.Aggregated == nil {
		s.waitForDiscovery(q, crds)
	}
	if q.IsServed || q.Aggregated != nil || !q.Resource || crds == nil || !strings.Contains(q.Group, ".") {
		return nil
	}
	if err := crds.ReadError(q.GroupResource().String()); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("what defines the resource cannot be read: %w", err))
	}
	ctx, cancel := context.WithTimeout(q.HTTP.Context(), definitionTimeout)
	defer cancel()
	if _, err := s.cache.WaitForCurrent(ctx); err != nil {
		return nil // treat it as not served
	}
	s.servedDefinitions.wait(ctx, crds.Revision())
	q.LookUpKind(s.serving.Load())
	return nil
}

// syncDefinitions makes the served kinds match a snapshot of the definitions. more reports that it must be called
// again, because something is still under way.
func (s *Server) syncDefinitions(
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
		status := custom.NewStatus(d, names, s.options.Now())
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
		if was, ok := serving[d.Name]; !ok || declaresOtherKinds(was.definition, d) {
			if err := s.serveDefinition(ctx, d, was, serving); err != nil {
				failed = append(failed, err)
				continue
			}
			changed = true
		}
	}
	for _, d := range all {
		// Watches continue, so that they report the deletion of the objects.
		if was, ok := serving[d.Name]; ok && d.DeletionTimestamp != nil {
			was.kind.Untyped.Family.IsClosed.Store(true)
		}
	}
	for name, was := range serving {
		if wanted[name] || s.cache.Resource(definitionsGVR.GroupResource()).ReadError(name) != nil {
			continue // a definition that cannot be read is served as before
		}
		s.cache.Remove(was.kind)
		s.owners.RemoveKind(was.kind)
		delete(serving, name)
		changed = true
	}
	if changed {
		s.serveKinds(sortedKinds(serving))
	}
	for _, d := range all {
		if d.DeletionTimestamp == nil ||
			!slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
			continue
		}
		if was, ok := serving[d.Name]; ok && was.kind.Untyped.Family.IsClosed.Load() ||
			!apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			left, err := s.deleteInstances(ctx, d, was.kind)
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
func (s *Server) serveDefinition(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	was extension,
	serving map[string]extension,
) error {
	k, err := custom.NewKind(d, s.backends)
	if err != nil {
		return err
	}
	for _, builtin := range s.options.Storage.kinds {
		if builtin.GR() == k.GR() {
			return fmt.Errorf("the definition %s declares what is served already", d.Name)
		}
	}
	if err := s.cache.Add(ctx, k); err != nil {
		return err
	}
	if was.kind != nil {
		s.owners.RemoveKind(was.kind)
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
func (s *Server) writeDefinitionStatus(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	status apiextensionsv1.CustomResourceDefinitionStatus,
) error {
	own := write.Own{Resource: definitionsGVR, Subresource: "status", Name: d.Name}
	_, err := s.writes.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
		now, ok := live.(*apiextensionsv1.CustomResourceDefinition)
		switch {
		case !ok:
			return nil, apierrors.NewNotFound(definitionsGVR.GroupResource(), d.Name)
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
func (s *Server) deleteInstances(
	ctx context.Context,
	d *apiextensionsv1.CustomResourceDefinition,
	k *kinds.Kind,
) (left bool, err error) {
	if k != nil {
		if _, err := s.cache.WaitForCurrent(ctx); err != nil {
			return true, err
		}
		var all []*cache.Entry
		s.cache.Resource(k.GR()).Snapshot().Ascend("", "", func(e *cache.Entry) bool {
			all = append(all, e)
			return true
		})
		for _, e := range all {
			gone, err := s.writes.Remove(ctx, wire.Served{Kind: k}, e.Namespace, e.Name, &metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return true, fmt.Errorf("delete %s %s for its definition is going: %w", k.GR(), e.Key, err)
			}
			left = left || err == nil && !gone
		}
	}
	if left {
		return true, nil
	}
	_, err = s.writes.Change(ctx, write.Own{Resource: definitionsGVR, Name: d.Name},
		func(live runtime.Object) (runtime.Object, error) {
			now, ok := live.(*apiextensionsv1.CustomResourceDefinition)
			if !ok || now.UID != d.UID {
				return nil, apierrors.NewNotFound(definitionsGVR.GroupResource(), d.Name)
			}
			next := now.DeepCopy()
			next.Finalizers = slices.DeleteFunc(
				next.Finalizers,
				func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer },
			)
			return next, nil
		})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("let the definition %s go: %w", d.Name, err)
	}
	return false, nil
}
