package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// Applied finds the objects that clusterctl has applied, by their field manager, to rebuild a lost state. Declared
// objects get their blocks' addresses. Namespaces that are not declared are left out: they were created for the objects
// in them, and deleting them would delete those objects. problems describe the kinds that could not be listed.
func (l *Live) Applied(ctx context.Context, c *config.Cluster) (list []state.Object, problems []string, err error) {
	declared, err := Objects(c)
	if err != nil {
		return nil, nil, err
	}
	kinds, problems, err := l.listableKinds()
	if err != nil {
		return nil, nil, err
	}
	client, err := metadata.NewForConfig(l.REST())
	if err != nil {
		return nil, nil, fmt.Errorf("prepare to list the API's objects: %w", err)
	}
	found, failed := make([][]state.Object, len(kinds)), make([]error, len(kinds))
	var g errgroup.Group
	g.SetLimit(maxGatherParallel)
	for i, k := range kinds {
		g.Go(func() error {
			found[i], failed[i] = listApplied(ctx, client, k)
			return nil
		})
	}
	_ = g.Wait() // never an error: a kind that cannot be listed does not stop the others
	for _, o := range slices.Concat(found...) {
		at := slices.IndexFunc(declared, func(d Desired) bool {
			own := d.reference()
			// an object declared without a namespace is in the default one
			own.Namespace = cmp.Or(own.Namespace, o.Namespace)
			return own.IsSame(o) &&
				(d.Object.GetNamespace() != "" || o.Namespace == "" || o.Namespace == metav1.NamespaceDefault)
		})
		switch {
		case at >= 0 && declared[at].IsNeverPruned, at < 0 && o.Kind == "Namespace", o.Kind == "Node", isInventory(o):
		case at >= 0:
			list = append(list, declared[at].reference())
		default:
			o.Address = fmt.Sprintf("object.%s.%s.%s", o.APIVersion, o.Kind, o.FullName())
			list = append(list, o)
		}
	}
	names := make([]schema.GroupVersionResource, len(kinds))
	for i, k := range kinds {
		names[i] = k.resource
	}
	return list, append(problems, describeUnlisted(names, failed)...), nil
}

// listApplied lists the objects of a kind that have fields applied by clusterctl.
func listApplied(ctx context.Context, client metadata.Interface, k listedKind) (list []state.Object, err error) {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: gatherPage}
	for {
		page, err := client.Resource(k.resource).List(ctx, options)
		if err != nil {
			return list, err
		}
		for _, o := range page.Items {
			if slices.ContainsFunc(o.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
				return f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
			}) {
				list = append(
					list,
					state.Object{
						APIVersion: k.resource.GroupVersion().String(),
						Kind:       k.kind,
						Namespace:  o.Namespace,
						Name:       o.Name,
					},
				)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return list, nil
		}
	}
}

// Revision returns the current revision of the store.
func (l *Live) Revision(ctx context.Context) (int64, error) {
	client, err := metadata.NewForConfig(l.REST())
	if err != nil {
		return 0, fmt.Errorf("prepare to ask the API for its revision: %w", err)
	}
	list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("ask the API for its revision: %w", err)
	}
	return strconv.ParseInt(list.ResourceVersion, 10, 64)
}
