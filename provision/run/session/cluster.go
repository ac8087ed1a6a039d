package session

import (
	"context"

	"clusterctl/daemons/config/inventory"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// Cluster is the part of the live cluster that a run needs.
type Cluster interface {
	// Plan compares the declared objects with those in the cluster. before are the objects applied earlier.
	Plan(
		ctx context.Context,
		c *config.Cluster,
		before []state.Object,
	) (entries []plan.Object, ended []state.Object, err error)
	// Apply applies the declared objects and prunes. It returns the objects that are now applied.
	Apply(ctx context.Context, c *config.Cluster, before []state.Object,
		report func(plan.Object)) ([]state.Object, error)
	// Wait waits until the applied objects are healthy.
	Wait(ctx context.Context, c *config.Cluster, report func(plan.Object)) error
	// Nodes returns for every node whether it is ready: True, False or Unknown.
	Nodes(ctx context.Context) (map[string]string, error)
	// Node returns whether a node is ready and the Kubernetes version of its kubelet, which is empty if the node does
	// not exist.
	Node(ctx context.Context, name string) (ready, kubelet string, err error)
	// IsCordoned reports whether a node is unschedulable. Cordon and Uncordon change that.
	IsCordoned(ctx context.Context, node string) (bool, error)
	Cordon(ctx context.Context, node string) error
	Uncordon(ctx context.Context, node string) error
	// Drain cordons a node and evicts its pods. It calls report with its progress.
	Drain(ctx context.Context, node string, report func(string)) error
	// References returns the objects that Apply would apply.
	References(c *config.Cluster) ([]state.Object, error)
	// Missing returns the objects of list that do not exist. Delete deletes objects and waits until they are gone.
	Missing(ctx context.Context, list []state.Object) ([]state.Object, error)
	Delete(ctx context.Context, list []state.Object) error
	// Applied finds the objects that clusterctl applied, to rebuild a lost state.
	Applied(ctx context.Context, c *config.Cluster) (list []state.Object, problems []string, err error)
	// Revision returns the store's current revision, as reported by the API.
	Revision(ctx context.Context) (int64, error)
	// DeleteNode deletes a Node object.
	DeleteNode(ctx context.Context, node string) error
	// DeleteFormerNode deletes a Node object that belongs to another machine than now, which has its name today. It
	// reports whether there was one.
	DeleteFormerNode(ctx context.Context, node string, now inventory.Machine) (bool, error)
	// AdmitReplicas gives the rights of former releases' users also to the users that daemons have on each machine,
	// until DropFormerRights: machines that were rolled back, or API servers of the former release, need them.
	AdmitReplicas(ctx context.Context) error
	// DropFormerRights deletes the role bindings of the users that daemons of former releases shared on all machines.
	DropFormerRights(ctx context.Context) error
}
