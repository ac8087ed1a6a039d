// Package tree finds the objects that an object owns, directly or through others, with the rights of the caller.
package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"clusterctl/kube/discovery"
)

// Node is an object with those that it owns. What another node's object owns, too, is in the tree once.
type Node struct {
	Group     string  `json:"group,omitempty"`
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	State     string  `json:"state"`            // as Health returned it
	Reason    string  `json:"reason,omitempty"` // as Health returned it
	Owns      []*Node `json:"owns,omitempty"`

	uid      types.UID
	resource schema.GroupVersionResource
}

// Report is a tree, and what is missing in it.
type Report struct {
	Root   *Node    `json:"root"`
	Unseen []string `json:"unseen"` // what could not be read, such as secrets: forbidden
}

// Clients are the clients that make the requests.
type Clients struct {
	Discovery discovery.Interface
	Metadata  metadata.Interface // finds what an object owns
	Dynamic   dynamic.Interface  // reads the objects of the tree
	// Health returns the state of an object, and what it waits for.
	Health func(*unstructured.Unstructured) (state, reason string)
}

// The limits of a report.
const (
	deadline   = time.Minute // for all requests together
	pageSize   = 500
	maxPages   = 20 // of one kind
	maxObjects = 500
	maxDepth   = 20
)

// ignoredResources are resources whose objects are not read, because they are many and own nothing.
var ignoredResources = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// Read returns an object with what it owns. word names its kind as for kubectl, such as deploy or deployments.apps. The
// namespace is ignored for kinds without namespaces.
func Read(ctx context.Context, c Clients, word, namespace, name string) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	report := &Report{Unseen: []string{}}
	lists, err := c.Discovery.ServerPreferredResources()
	var incomplete *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &incomplete) {
		return nil, fmt.Errorf("read the kinds of the cluster: %w", err)
	}
	if incomplete != nil {
		report.Unseen = append(report.Unseen, incomplete.Error())
	}
	all := resourcesOf(discovery.WithVerbs(lists, "list", "get"))
	at := slices.IndexFunc(all, func(r resource) bool { return r.hasName(word) })
	if at < 0 {
		return nil, fmt.Errorf("the cluster has no kind %q", word)
	}
	kind := all[at]
	if !kind.Namespaced {
		namespace = ""
	}
	root, err := c.Metadata.Resource(kind.gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", strings.ToLower(kind.Kind), name, err)
	}
	owned := map[types.UID][]*Node{}
	for _, r := range all {
		if namespace != "" && !r.Namespaced || slices.Contains(ignoredResources, r.gvr.GroupResource()) {
			continue // what is in no namespace is owned by nothing in one
		}
		if err := c.addOwned(ctx, r, namespace, owned); err != nil {
			report.Unseen = append(report.Unseen, fmt.Sprintf("%s: %v", r.gvr.GroupResource(), err))
		}
	}
	report.Root = newNode(kind, root)
	if count := build(report.Root, owned, map[types.UID]bool{root.UID: true}, 1); count > maxObjects {
		report.Unseen = append(report.Unseen, fmt.Sprintf("%d of %d objects", count-maxObjects, count))
	}
	left := maxObjects
	c.readStates(ctx, report.Root, &left)
	return report, nil
}

// resource is a resource in the preferred version of its group.
type resource struct {
	metav1.APIResource
	gvr schema.GroupVersionResource
}

// hasName reports whether a word names the resource, as for kubectl.
func (r resource) hasName(word string) bool {
	plain, group, hasGroup := strings.Cut(strings.ToLower(word), ".")
	return (!hasGroup || group == r.gvr.Group) && (plain == r.Name || plain == r.SingularName ||
		plain == strings.ToLower(r.Kind) || slices.Contains(r.ShortNames, plain))
}

func resourcesOf(lists []*metav1.APIResourceList) (all []resource) {
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // no request could be sent
		}
		for _, r := range list.APIResources {
			all = append(all, resource{r, version.WithResource(r.Name)})
		}
	}
	return all
}

func newNode(r resource, o *metav1.PartialObjectMetadata) *Node {
	return &Node{Group: r.gvr.Group, Kind: r.Kind, Namespace: o.Namespace, Name: o.Name, uid: o.UID, resource: r.gvr}
}

// addOwned adds the objects of a resource that have owners, by their owners.
func (c Clients) addOwned(ctx context.Context, r resource, namespace string, owned map[types.UID][]*Node) error {
	options := metav1.ListOptions{Limit: pageSize}
	for range maxPages {
		page, err := c.Metadata.Resource(r.gvr).Namespace(namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			o := &page.Items[i]
			for _, owner := range o.OwnerReferences {
				owned[owner.UID] = append(owned[owner.UID], newNode(r, o))
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
	return fmt.Errorf("only the first %d were read", pageSize*maxPages)
}

// build adds to a node what it owns, and returns the number of objects. seen has the objects that the tree has.
func build(n *Node, owned map[types.UID][]*Node, seen map[types.UID]bool, depth int) int {
	count := 1
	for _, o := range owned[n.uid] {
		if seen[o.uid] || depth == maxDepth {
			continue
		}
		seen[o.uid] = true
		n.Owns = append(n.Owns, o)
		count += build(o, owned, seen, depth+1)
	}
	slices.SortFunc(n.Owns, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return count
}

// readStates reads the states of a node and of what it owns, and removes what exceeds the number of objects that are
// left.
func (c Clients) readStates(ctx context.Context, n *Node, left *int) {
	*left--
	object, err := c.Dynamic.Resource(n.resource).Namespace(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		n.State, n.Reason = "Unknown", err.Error()
	} else {
		n.State, n.Reason = c.Health(object)
	}
	for i, o := range n.Owns {
		if *left <= 0 {
			n.Owns = n.Owns[:i]
			return
		}
		c.readStates(ctx, o, left)
	}
}
