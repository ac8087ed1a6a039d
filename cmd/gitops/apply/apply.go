// Package apply applies the objects of GitSources with the engine of `clusterctl apply`, as service accounts.
package apply

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
	"clusterctl/provision/workload"
)

// requestTimeout limits one request that is no watch.
const requestTimeout = 30 * time.Second

// Cluster implements gitops.Cluster. It impersonates service accounts, so that it has none of their rights itself.
type Cluster struct {
	config  *rest.Config
	watches *watches

	mu       sync.Mutex // guards appliers
	appliers map[string]*applier
}

// maxAppliers limits the appliers that are kept. A source can name any account.
const maxAppliers = 128

// New returns a cluster that is reached with a configuration. Its user may impersonate service accounts.
func New(config *rest.Config) *Cluster {
	return &Cluster{config: config, watches: newWatches(), appliers: map[string]*applier{}}
}

// As implements gitops.Cluster.
func (c *Cluster) As(namespace, account string) (gitops.Applier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	user := "system:serviceaccount:" + namespace + ":" + account
	if a := c.appliers[user]; a != nil {
		return a, nil
	}
	config := rest.CopyConfig(c.config)
	config.Timeout = requestTimeout
	config.Impersonate.UserName = user // the API server adds the groups of service accounts
	live, err := workload.NewLive(config, gitsource.Manager)
	if err != nil {
		return nil, err
	}
	forWatches := rest.CopyConfig(config)
	forWatches.Timeout = 0 // a watch has a limit of its own
	watching, err := metadata.NewForConfig(forWatches)
	if err != nil {
		return nil, err
	}
	a := &applier{live, user, watching, c.watches}
	if len(c.appliers) >= maxAppliers {
		clear(c.appliers) // they only save time
	}
	c.appliers[user] = a
	return a, nil
}

// applier acts as one account.
type applier struct {
	live     *workload.Live
	user     string
	metadata metadata.Interface // for watches
	watches  *watches
}

// reference returns how the engine names an object.
func reference(id gitops.ObjectID) state.Object {
	return state.Object{Address: id.String(), APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace,
		Name: id.Name}
}

// Get implements gitops.Reader.
func (a *applier) Get(ctx context.Context, id gitops.ObjectID) (*unstructured.Unstructured, error) {
	found, err := a.Find(ctx, []gitops.ObjectID{id})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Scope implements gitops.Applier.
func (a *applier) Scope(_ context.Context, kind schema.GroupKind) (gitops.Scope, error) {
	namespaced, served, err := a.live.IsNamespaced(kind)
	switch {
	case err != nil || !served:
		return gitops.ScopeUnknown, err
	case namespaced:
		return gitops.ScopeNamespaced, nil
	}
	return gitops.ScopeCluster, nil
}

// Find implements gitops.Applier.
func (a *applier) Find(ctx context.Context, ids []gitops.ObjectID) ([]*unstructured.Unstructured, error) {
	list := make([]state.Object, len(ids))
	for i, id := range ids {
		list[i] = reference(id)
	}
	return a.live.FindEach(ctx, list)
}

// Compare implements gitops.Applier.
func (a *applier) Compare(ctx context.Context, objects []gitops.Object) ([]gitops.Result, error) {
	outcomes, err := a.live.CompareEach(ctx, desired(objects))
	return results(outcomes), err
}

// Apply implements gitops.Applier.
func (a *applier) Apply(ctx context.Context, objects []gitops.Object) ([]gitops.Result, error) {
	outcomes, err := a.live.ApplyEach(ctx, desired(objects))
	return results(outcomes), err
}

// Delete implements gitops.Applier.
func (a *applier) Delete(ctx context.Context, id gitops.ObjectID, uid types.UID) error {
	return a.live.DeleteObject(ctx, reference(id), uid)
}

// desired returns the objects for the engine.
func desired(objects []gitops.Object) []workload.Desired {
	list := make([]workload.Desired, len(objects))
	for i, o := range objects {
		list[i] = workload.NewDesired(o.ID().String(), o.Unstructured, o.Adopt).WithLive(o.Live)
	}
	return list
}

// results converts what the engine returns.
func results(outcomes []workload.Outcome) []gitops.Result {
	list := make([]gitops.Result, len(outcomes))
	for i, o := range outcomes {
		list[i] = gitops.Result{Diff: o.Diff, Err: o.Err, Live: o.Live}
		switch o.Action {
		case plan.Create:
			list[i].Action = gitops.ActionCreate
		case plan.Change:
			list[i].Action = gitops.ActionChange
		}
		if manager, ok := workload.ForeignManager(o.Err); ok {
			list[i].Err = fmt.Errorf("it exists and was created by %s; to take it over, set its annotation %s to %q",
				manager, gitsource.AdoptAnnotation, gitsource.Enabled)
		}
	}
	return list
}
