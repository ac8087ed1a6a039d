package aggregate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"clusterctl/daemons/apiserver/extend"
)

// automanaged is the label of APIServices that the server creates itself. managedOnStart marks those of built-in group
// versions. managedTrue marks those that exist as long as a CustomResourceDefinition does.
const (
	autoManagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	managedOnStart   = "onstart"
	managedTrue      = "true"
)

// priority is the rank of a group, and of a version in its group.
type priority struct{ group, version int32 }

// priorities are upstream's. Clients that read APIServices use them to order groups and versions.
var priorities = map[schema.GroupVersion]priority{
	{Version: "v1"}:                                        {18000, 1},
	{Group: "apps", Version: "v1"}:                         {17800, 15},
	{Group: "events.k8s.io", Version: "v1"}:                {17750, 15},
	{Group: "authentication.k8s.io", Version: "v1"}:        {17700, 15},
	{Group: "authorization.k8s.io", Version: "v1"}:         {17600, 15},
	{Group: "autoscaling", Version: "v1"}:                  {17500, 15},
	{Group: "autoscaling", Version: "v2"}:                  {17500, 30},
	{Group: "batch", Version: "v1"}:                        {17400, 15},
	{Group: "certificates.k8s.io", Version: "v1"}:          {17300, 15},
	{Group: "networking.k8s.io", Version: "v1"}:            {17200, 15},
	{Group: "policy", Version: "v1"}:                       {17100, 15},
	{Group: "rbac.authorization.k8s.io", Version: "v1"}:    {17000, 15},
	{Group: "storage.k8s.io", Version: "v1"}:               {16800, 15},
	{Group: "apiextensions.k8s.io", Version: "v1"}:         {16700, 15},
	{Group: "admissionregistration.k8s.io", Version: "v1"}: {16700, 15},
	{Group: "scheduling.k8s.io", Version: "v1"}:            {16600, 15},
	{Group: "coordination.k8s.io", Version: "v1"}:          {16500, 15},
	{Group: "node.k8s.io", Version: "v1"}:                  {16300, 15},
	{Group: "discovery.k8s.io", Version: "v1"}:             {16200, 15},
	{Group: "resource.k8s.io", Version: "v1"}:              {16200, 15},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}: {16100, 21},
	{Group: apiregistrationv1.GroupName, Version: "v1"}:    {0, 0}, // the group of APIServices itself has no APIService
	{Group: "storagemigration.k8s.io", Version: "v1"}:      {16000, 15},
}

// builtInPriority and definitionPriority are the priorities of group versions that have no entry in priorities.
var (
	builtInPriority    = priority{16000, 9}
	definitionPriority = priority{1000, 100}
)

// localAPIServices returns the APIServices of the group versions that this server serves itself.
func (s *Aggregator) localAPIServices() map[string]*apiregistrationv1.APIService {
	out := map[string]*apiregistrationv1.APIService{}
	add := func(gv schema.GroupVersion, rank priority, label string) {
		name := gv.Version + "." + gv.Group
		if _, exists := out[name]; exists || rank.group == 0 {
			return
		}
		out[name] = &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{autoManagedLabel: label}},
			Spec: apiregistrationv1.APIServiceSpec{
				Group:                gv.Group,
				Version:              gv.Version,
				GroupPriorityMinimum: rank.group,
				VersionPriority:      rank.version,
			},
		}
	}
	for _, k := range s.config.BuiltIn {
		of := func(gv schema.GroupVersion) {
			rank, ok := priorities[gv]
			if !ok {
				rank = builtInPriority
			}
			add(gv, rank, managedOnStart)
		}
		of(k.GVK.GroupVersion())
		for i := range k.Aliases {
			of(k.Aliases[i].GVK.GroupVersion())
		}
	}
	for _, obj := range s.config.Cache.Objects().List(extend.DefinitionsGVR.GroupResource(), "") {
		d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || d.DeletionTimestamp != nil || !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Served {
				add(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}, definitionPriority, managedTrue)
			}
		}
	}
	return out
}

// registeredRevisions holds the revisions of APIServices and definitions at the last registration.
type registeredRevisions struct{ services, definitions int64 }

// registerAPIServices creates an APIService for each group version that is served here, and deletes those of deleted
// definitions. It does not touch an APIService that refers to another server. It does nothing if nothing has changed
// since it returned was.
func (s *Aggregator) registerAPIServices(ctx context.Context, before registeredRevisions) (registeredRevisions, error) {
	objects := s.config.Cache.Objects()
	now := registeredRevisions{objects.Revision(apiServicesGVR.GroupResource()),
		objects.Revision(extend.DefinitionsGVR.GroupResource())}
	if now == before {
		return before, nil
	}
	wanted := s.localAPIServices()
	remnants := s.staleAPIServices(wanted)
	if len(remnants) > 0 {
		if _, err := s.config.Cache.WaitForCurrent(ctx); err != nil {
			return before, err // a group version that another server just added is not a remnant
		}
		wanted = s.localAPIServices()
		remnants = s.staleAPIServices(wanted)
	}
	for _, r := range remnants {
		_, err := s.config.Writes.Remove(ctx, s.server.Target(apiServicesGVR).Served, "", r.Name,
			&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return before, fmt.Errorf("delete the API service %s: %w", r.Name, err)
		}
	}
	services := s.config.Cache.Resource(apiServicesGVR.GroupResource())
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := objects.Get(apiServicesGVR.GroupResource(), "", name); ok || services.ReadError(name) != nil {
			continue // an unreadable object exists
		}
		if _, err := s.config.Writes.Ensure(ctx, wanted[name]); err != nil {
			return before, err
		}
	}
	return now, nil
}

// staleAPIServices returns the APIServices of deleted definitions. It returns none while some definition cannot be
// read, because they are not known then.
func (s *Aggregator) staleAPIServices(wanted map[string]*apiregistrationv1.APIService) (
	out []*apiregistrationv1.APIService) {
	if s.config.Cache.Resource(extend.DefinitionsGVR.GroupResource()).ReadError("") != nil {
		return nil
	}
	for _, obj := range s.config.Cache.Objects().List(apiServicesGVR.GroupResource(), "") {
		current, ok := obj.(*apiregistrationv1.APIService)
		if ok && wanted[current.Name] == nil && current.Labels[autoManagedLabel] == managedTrue &&
			current.Spec.Service == nil {
			out = append(out, current)
		}
	}
	return out
}
