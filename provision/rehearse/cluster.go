package rehearse

import (
	"context"
	"encoding/json"
	"sync"

	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/version"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
	"clusterctl/provision/workload"
)

// cluster simulates the API in memory. It has the objects that were applied, and a ready node for every machine.
type cluster struct {
	mu       sync.Mutex
	objects  []storedObject
	nodes    map[string]string
	cordoned map[string]bool
}

type storedObject struct {
	state.Object
	content string
	wanted  workload.Desired
}

func (l *cluster) declare(c *config.Cluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes, l.cordoned = map[string]string{}, map[string]bool{}
	for _, m := range c.Machines {
		l.nodes[m.Name] = "True"
	}
}

// Node returns that a node is ready and of this release.
func (l *cluster) Node(_ context.Context, name string) (ready, kubelet string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[name] == "" {
		return "", "", nil
	}
	return l.nodes[name], version.Kubernetes, nil
}

// wantedObjects returns the objects of a configuration.
func wantedObjects(c *config.Cluster) (list []storedObject, keep map[string]bool, err error) {
	desired, err := workload.Objects(c)
	if err != nil {
		return nil, nil, err
	}
	keep = map[string]bool{}
	for _, d := range desired {
		text, err := json.Marshal(d.Object)
		if err != nil {
			return nil, nil, err
		}
		o := state.Object{
			APIVersion: d.Object.GetAPIVersion(),
			Kind:       d.Object.GetKind(),
			Namespace:  d.Object.GetNamespace(),
			Name:       d.Object.GetName(),
			Address:    d.Address,
		}
		if d.IsNeverPruned {
			keep[d.Address] = true
		}
		list = append(list, storedObject{o, string(text), d})
	}
	return list, keep, nil
}

func planEntry(o state.Object, action string) plan.Object {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	return plan.Object{Address: o.Address, Kind: o.Kind, Name: name, Action: action}
}

// compare returns the action for each declared object and for each object that is no longer declared.
func (l *cluster) compare(
	c *config.Cluster,
	before []state.Object,
) (entries []plan.Object, list []storedObject, ended []state.Object, err error) {
	list, _, err = wantedObjects(c)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, o := range list {
		action := plan.Create
		for _, exists := range l.objects {
			if exists.IsSame(o.Object) {
				if o, err = withIgnored(o, exists); err != nil {
					return nil, nil, nil, err
				}
				list[i] = o
				if action = plan.Change; exists.content == o.content {
					action = plan.None
				}
			}
		}
		entries = append(entries, planEntry(o.Object, action))
	}
	for _, o := range before {
		declared := false
		for _, d := range list {
			declared = declared || d.IsSame(o)
		}
		exists := false
		for _, t := range l.objects {
			exists = exists || t.IsSame(o)
		}
		switch {
		case declared:
		case exists:
			entries = append(entries, planEntry(o, plan.Remove))
		default:
			ended = append(ended, o)
		}
	}
	return entries, list, ended, nil
}

// withIgnored returns the form of o that is applied over the existing object there. Ignored fields keep the values of
// there.
func withIgnored(o, existing storedObject) (storedObject, error) {
	if o.wanted.Ignored.All {
		return existing, nil
	}
	if len(o.wanted.Ignored.Fields) == 0 {
		return o, nil
	}
	o.wanted = o.wanted.OverLive(existing.wanted.Object)
	text, err := json.Marshal(o.wanted.Object)
	o.content = string(text)
	return o, err
}

func (l *cluster) Plan(
	_ context.Context,
	c *config.Cluster,
	before []state.Object,
) ([]plan.Object, []state.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, _, ended, err := l.compare(c, before)
	return entries, ended, err
}

func (l *cluster) Apply(
	_ context.Context,
	c *config.Cluster,
	before []state.Object,
	report func(plan.Object),
) ([]state.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, list, _, err := l.compare(c, before)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Action != plan.None {
			report(e)
		}
	}
	isGone := func(o storedObject) bool {
		for _, b := range before {
			if b.IsSame(o.Object) {
				return true
			}
		}
		for _, d := range list {
			if d.IsSame(o.Object) {
				return true
			}
		}
		return false
	}
	var kept []storedObject
	for _, o := range l.objects {
		if !isGone(o) {
			kept = append(kept, o)
		}
	}
	l.objects = append(kept, list...)
	return objectReferences(c)
}

func objectReferences(c *config.Cluster) (list []state.Object, err error) {
	objects, keep, err := wantedObjects(c)
	for _, o := range objects {
		if !keep[o.Address] {
			list = append(list, o.Object)
		}
	}
	return list, err
}

func (l *cluster) References(c *config.Cluster) ([]state.Object, error) { return objectReferences(c) }

func (l *cluster) Wait(context.Context, *config.Cluster, func(plan.Object)) error { return nil }

func (l *cluster) Nodes(context.Context) (map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes := map[string]string{}
	for name, ready := range l.nodes {
		nodes[name] = ready
	}
	return nodes, nil
}

func (l *cluster) IsCordoned(_ context.Context, node string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cordoned[node], nil
}

func (l *cluster) Cordon(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cordoned[node] = true
	return nil
}

func (l *cluster) Uncordon(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cordoned, node)
	return nil
}

func (l *cluster) Drain(_ context.Context, node string, _ func(string)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cordoned[node] = true
	return nil
}

func (l *cluster) Missing(_ context.Context, list []state.Object) (removed []state.Object, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range list {
		exists := false
		for _, t := range l.objects {
			exists = exists || t.IsSame(o)
		}
		if !exists {
			removed = append(removed, o)
		}
	}
	return removed, nil
}

func (l *cluster) Delete(_ context.Context, list []state.Object) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var kept []storedObject
	for _, t := range l.objects {
		deleted := false
		for _, o := range list {
			deleted = deleted || t.IsSame(o)
		}
		if !deleted {
			kept = append(kept, t)
		}
	}
	l.objects = kept
	return nil
}

func (l *cluster) DeleteNode(_ context.Context, node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
	return nil
}

// DeleteFormerNode implements run.Cluster. All nodes belong to the machines that have their names.
func (l *cluster) DeleteFormerNode(context.Context, string, inventory.Machine) (bool, error) {
	return false, nil
}

// AdmitReplicas implements run.Cluster. A rehearsal has no former users.
func (l *cluster) AdmitReplicas(context.Context) error { return nil }

// DropFormerRights implements run.Cluster. A rehearsal has no former rights.
func (l *cluster) DropFormerRights(context.Context) error { return nil }

// Revision implements run.Cluster. There is no store, so it returns a constant.
func (l *cluster) Revision(context.Context) (int64, error) { return 1, nil }

func (l *cluster) Applied(context.Context, *config.Cluster) (list []state.Object, problems []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.objects {
		list = append(list, o.Object)
	}
	return list, nil, nil
}
