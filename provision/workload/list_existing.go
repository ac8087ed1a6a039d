package workload

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/provision/state"
)

// listFrom is the number of objects of one kind and namespace from which they are listed instead of read one by one.
// listPage is the size of a page.
const (
	listFrom = 8
	listPage = 500
)

// listScope identifies what one list contains.
type listScope struct{ apiVersion, kind, namespace string }

func scopeOf(o state.Object) listScope { return listScope{o.APIVersion, o.Kind, o.Namespace} }

// listedObjects holds the results of lists. Objects that are not in it are read individually, unless their place was
// listed completely.
type listedObjects struct {
	objects  map[state.Object]*unstructured.Unstructured
	complete map[listScope]bool
}

// listExisting lists the objects of places where a list is cheaper than single reads.
func (l *connection) listExisting(ctx context.Context, objects []state.Object) (*listedObjects, error) {
	count := map[listScope]int{}
	for _, o := range objects {
		count[scopeOf(o)]++
	}
	found := &listedObjects{objects: map[state.Object]*unstructured.Unstructured{}, complete: map[listScope]bool{}}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for p, n := range count {
		if n < listFrom {
			continue
		}
		g.Go(func() error {
			items, whole, err := l.list(ctx, p, n)
			mu.Lock()
			defer mu.Unlock()
			for i := range items {
				found.objects[state.Object{APIVersion: p.apiVersion, Kind: p.kind, Namespace: p.namespace,
					Name: items[i].GetName()}.Identity()] = &items[i]
			}
			found.complete[p] = whole
			return err
		})
	}
	return found, g.Wait()
}

// list lists all objects of a place, or, if these are many more than n, those with clusterctl's label. The latter is
// not complete, because the label may have been removed.
func (l *connection) list(ctx context.Context, p listScope, n int) (items []unstructured.Unstructured, whole bool,
	err error) {
	client, err := l.client(schema.FromAPIVersionAndKind(p.apiVersion, p.kind), p.namespace)
	if meta.IsNoMatchError(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	all, err := client.List(ctx, metav1.ListOptions{Limit: int64(max(listPage, 2*n))})
	if err == nil && all.GetContinue() == "" {
		return all.Items, true, nil
	}
	options := metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + l.fieldManager(), Limit: listPage}
	for err == nil {
		var page *unstructured.UnstructuredList
		if page, err = client.List(ctx, options); err != nil {
			break
		}
		items = append(items, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return items, false, nil
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsResourceExpired(err) { // the remaining objects are read one by one
		return items, false, nil
	}
	return nil, false, fmt.Errorf("list objects of kind %s: %w", p.kind, err)
}

// get returns an object that look has found, or reads it.
func (s *listedObjects) get(ctx context.Context, l *connection, o state.Object) (*unstructured.Unstructured, error) {
	if s == nil {
		return l.get(ctx, o)
	}
	if live := s.objects[o.Identity()]; live != nil || s.complete[scopeOf(o)] {
		return live, nil
	}
	return l.get(ctx, o)
}

// with returns the results with live objects that callers have read. s may be nil.
func (s *listedObjects) with(desired []Desired) *listedObjects {
	for _, d := range desired {
		if d.read == nil {
			continue
		}
		if s == nil {
			s = &listedObjects{}
		}
		if s.objects == nil {
			s.objects = map[state.Object]*unstructured.Unstructured{}
		}
		s.objects[d.reference().Identity()] = d.read
	}
	return s
}

// references returns the references of desired objects.
func references(desired []Desired) []state.Object {
	list := make([]state.Object, len(desired))
	for i, d := range desired {
		list[i] = d.reference()
	}
	return list
}
