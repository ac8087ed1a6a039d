// Package discovery reads which resources an API server serves, and maps kinds to resources. It replaces client-go's
// packages discovery and restmapper, which link all versions of all kinds into the program.
package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// timeout limits each request.
const timeout = 32 * time.Second

// Interface describes Client. client-go's fake implements it as well.
type Interface interface {
	// RESTClient sends requests to any path.
	RESTClient() rest.Interface
	// ServerVersion returns the server's version.
	ServerVersion() (*version.Info, error)
	// ServerResourcesForGroupVersion returns the resources of a group version.
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
	// ServerGroupsAndResources returns all groups, and their resources in all versions. With an ErrGroupDiscoveryFailed
	// the lists are incomplete.
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
	// ServerPreferredResources returns each resource in the preferred version of its group, without subresources. If
	// the error is an ErrGroupDiscoveryFailed, the lists are incomplete.
	ServerPreferredResources() ([]*metav1.APIResourceList, error)
	// ServerPreferredNamespacedResources is like ServerPreferredResources, for namespaced resources only.
	ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error)
}

// Client reads the discovery documents of one API server.
type Client struct{ rest rest.Interface }

var _ Interface = (*Client)(nil)

// New returns a client that shares an HTTP client with others.
func New(cfg *rest.Config, client *http.Client) (*Client, error) {
	c := rest.CopyConfig(cfg)
	c.APIPath, c.GroupVersion = "", nil
	statuses := runtime.NewScheme() // of error answers
	metav1.AddToGroupVersion(statuses, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(statuses).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	api, err := rest.UnversionedRESTClientForConfigAndClient(c, client)
	if err != nil {
		return nil, fmt.Errorf("create the discovery client: %w", err)
	}
	return &Client{api}, nil
}

// RESTClient implements Interface.
func (c *Client) RESTClient() rest.Interface { return c.rest }

// ServerVersion implements Interface.
func (c *Client) ServerVersion() (*version.Info, error) {
	var v version.Info
	return &v, c.get("/version", runtime.ContentTypeJSON, &v)
}

// ServerResourcesForGroupVersion implements Interface.
func (c *Client) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	path := "/apis/" + groupVersion
	if groupVersion == "v1" {
		path = "/api/v1"
	}
	var list metav1.APIResourceList
	if err := c.get(path, runtime.ContentTypeJSON, &list); err != nil {
		return nil, err
	}
	return &list, nil
}

// aggregatedType is the media type of a document that describes all groups.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func (c *Client) get(path, accept string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	text, err := c.rest.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode the discovery document of %s: %w", path, err)
	}
	return nil
}

// groups returns all groups, the core group first, with their versions in order of preference.
func (c *Client) groups() ([]apidiscovery.APIGroupDiscovery, error) {
	core, err := c.groupsAt("/api")
	if err != nil {
		return nil, err
	}
	named, err := c.groupsAt("/apis")
	if err != nil {
		return nil, err
	}
	return append(core, named...), nil
}

// groupsAt returns the groups of a document. A document in another format is an error, because it would look like one
// without groups.
func (c *Client) groupsAt(path string) ([]apidiscovery.APIGroupDiscovery, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := c.get(path, aggregatedType, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("read the discovery document of %s: it is of kind %q, not APIGroupDiscoveryList", path,
			list.Kind)
	}
	return list.Items, nil
}

// ServerGroupsAndResources implements Interface.
func (c *Client) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	all, err := c.groups()
	if err != nil {
		return nil, nil, err
	}
	var groups []*metav1.APIGroup
	var lists []*metav1.APIResourceList
	for _, g := range all {
		group := &metav1.APIGroup{Name: g.Name}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version}
			group.Versions = append(group.Versions, version)
			if list := resources(gv, v); len(list.APIResources) > 0 {
				lists = append(lists, list)
			}
		}
		if len(group.Versions) > 0 {
			group.PreferredVersion = group.Versions[0]
		}
		groups = append(groups, group)
	}
	return groups, lists, unknownVersionsError(all)
}

// ServerPreferredResources implements Interface.
func (c *Client) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return c.preferredResources(func(metav1.APIResource) bool { return true })
}

// ServerPreferredNamespacedResources implements Interface.
func (c *Client) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return c.preferredResources(func(r metav1.APIResource) bool { return r.Namespaced })
}

func (c *Client) preferredResources(wanted func(metav1.APIResource) bool) ([]*metav1.APIResourceList, error) {
	all, err := c.groups()
	if err != nil {
		return nil, err
	}
	var lists []*metav1.APIResourceList
	for _, g := range all {
		seen := map[string]bool{}
		for _, v := range g.Versions {
			list := resources(schema.GroupVersion{Group: g.Name, Version: v.Version}, v)
			list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
				if strings.Contains(r.Name, "/") || seen[r.Name] {
					return true
				}
				seen[r.Name] = true
				return !wanted(r)
			})
			if len(list.APIResources) > 0 {
				lists = append(lists, list)
			}
		}
	}
	return lists, unknownVersionsError(all)
}

// resources returns the resources and subresources of a version.
func resources(gv schema.GroupVersion, v apidiscovery.APIVersionDiscovery) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for _, r := range v.Resources {
		resource := metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: r.Scope == apidiscovery.ScopeNamespace,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		if setKind(&resource, r.ResponseKind) {
			list.APIResources = append(list.APIResources, resource)
		}
		for _, s := range r.Subresources {
			sub := metav1.APIResource{
				Name: r.Resource + "/" + s.Subresource, SingularName: r.SingularResource,
				Namespaced: resource.Namespaced,
				Verbs:      s.Verbs,
			}
			if setKind(&sub, s.ResponseKind) {
				list.APIResources = append(list.APIResources, sub)
			}
		}
	}
	return list
}

// setKind sets a resource's kind, and reports whether it has one.
func setKind(r *metav1.APIResource, kind *metav1.GroupVersionKind) bool {
	if kind == nil || kind.Kind == "" {
		return false
	}
	r.Group, r.Version, r.Kind = kind.Group, kind.Version, kind.Kind
	return true
}

// ErrGroupDiscoveryFailed names group versions whose resources are unknown, because their server does not answer.
type ErrGroupDiscoveryFailed struct{ Groups map[schema.GroupVersion]error }

// Error implements error, with client-go's text.
func (e *ErrGroupDiscoveryFailed) Error() string {
	var list []string
	for gv, err := range e.Groups {
		list = append(list, fmt.Sprintf("%s: %v", gv, err))
	}
	slices.Sort(list)
	return "unable to retrieve the complete list of server APIs: " + strings.Join(list, ", ")
}

// unknownVersionsError returns an ErrGroupDiscoveryFailed for the versions whose resources are unknown, or nil if there
// are none.
func unknownVersionsError(all []apidiscovery.APIGroupDiscovery) error {
	failed := map[schema.GroupVersion]error{}
	for _, g := range all {
		for _, v := range g.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale {
				gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
				failed[gv] = fmt.Errorf("stale GroupVersion discovery: %v", gv)
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &ErrGroupDiscoveryFailed{failed}
}

// WithVerbs returns the resources of lists that have all of some verbs.
func WithVerbs(lists []*metav1.APIResourceList, verbs ...string) []*metav1.APIResourceList {
	var out []*metav1.APIResourceList
	for _, list := range lists {
		kept := *list
		kept.APIResources = nil
		for _, r := range list.APIResources {
			if !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(r.Verbs, verb) }) {
				kept.APIResources = append(kept.APIResources, r)
			}
		}
		if len(kept.APIResources) > 0 {
			out = append(out, &kept)
		}
	}
	return out
}
