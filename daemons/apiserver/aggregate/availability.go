package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds/extensions"
)

var apiServicesGVR = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

const (
	availabilityInterval = 10 * time.Second
	availabilityTimeout  = 5 * time.Second
	maxDocumentSize      = 16 << 20
)

// Run checks periodically, until ctx ends, whether the servers behind APIServices answer, and writes the
// result to the APIServices' conditions.
func (s *Aggregator) Run(ctx context.Context) error {
	services := s.config.Cache.Resource(apiServicesGVR.GroupResource())
	if services == nil || s.config.Cache.WaitFor(ctx, 1) != nil {
		return nil // not served, or ctx ended
	}
	select {
	case <-s.config.Bootstrapped: // objects that other requests wait for are created first
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(availabilityInterval)
	defer tick.Stop()
	var before map[schema.GroupVersion]*Version
	all := registeredRevisions{-1, -1} // nothing registered yet
	for ctx.Err() == nil {
		snapshot := services.Snapshot()
		cursor, err := services.Watch(cache.Topic{}, snapshot.Revision)
		if err != nil {
			continue // the cache was reloaded meanwhile
		}
		if now, err := s.registerAPIServices(ctx, all); err == nil {
			all = now
		} else if ctx.Err() == nil {
			s.config.Log.Warn("register what is served here", "err", err)
		}
		next := map[schema.GroupVersion]*Version{}
		for _, obj := range s.config.Cache.Objects().List(apiServicesGVR.GroupResource(), "") {
			registered, ok := obj.(*apiregistrationv1.APIService)
			if !ok {
				continue
			}
			gv := schema.GroupVersion{Group: registered.Spec.Group, Version: registered.Spec.Version}
			a, condition := s.checkAvailability(ctx, registered, before[gv])
			if a != nil {
				next[gv] = a
			}
			if err := s.writeAvailable(ctx, registered, condition); err != nil && ctx.Err() == nil {
				s.config.Log.Warn("write whether an API service is available", "apiservice", registered.Name, "err",
					err)
			}
		}
		for gv, a := range before {
			if services.ReadError(gv.Version+"."+gv.Group) != nil {
				next[gv] = a // an APIService that cannot be read keeps its previous state
			}
		}
		if !sameServed(before, next) {
			s.server.ServeAggregated(next)
			before = next
		}
		again := tick.C
		events, wake, err := cursor.Next()
		if err != nil { // some APIService cannot be read; retry, because no event reports the end of that
			again = time.After(time.Second)
		}
		if len(events) == 0 {
			select {
			case <-ctx.Done():
			case <-wake:
			case <-s.config.Changed:
			case <-again:
			}
		}
		cursor.Close()
	}
	return nil
}

// checkAvailability reports whether the server behind an APIService answers. A local APIService is always available,
// and its requests are not passed on.
func (s *Aggregator) checkAvailability(
	ctx context.Context,
	r *apiregistrationv1.APIService,
	before *Version,
) (*Version, apiregistrationv1.APIServiceCondition) {
	newCondition := func(status apiregistrationv1.ConditionStatus, reason,
		message string) apiregistrationv1.APIServiceCondition {
		return apiregistrationv1.APIServiceCondition{
			Type:    apiregistrationv1.Available,
			Status:  status,
			Reason:  reason,
			Message: message,
		}
	}
	if r.Spec.Service == nil {
		return nil, extensions.LocalAPIService(metav1.Time{})
	}
	a := &Version{target: backend.Target{
		Namespace: r.Spec.Service.Namespace, Service: r.Spec.Service.Name, Port: 443,
		CABundle: r.Spec.CABundle, Insecure: r.Spec.InsecureSkipTLSVerify, Certificate: s.config.FrontProxy,
	}}
	a.Handle = func(q *request.Request) error { return s.proxyToAggregated(q, a) }
	if len(a.target.CABundle) == 0 && s.config.ClusterCA != nil {
		a.target.AdditionalCAs = s.config.ClusterCA()
	}
	if r.Spec.Service.Port != nil {
		a.target.Port = *r.Spec.Service.Port
	}
	if before != nil {
		a.Resources, a.Documents = before.Resources, before.Documents
	}
	where := "service/" + r.Spec.Service.Name + " in \"" + r.Spec.Service.Namespace + "\""
	no := func(reason, message string) (*Version, apiregistrationv1.APIServiceCondition) {
		a.UnavailableReason = message
		s.unavailable.WithLabelValues(r.Name, reason).Inc()
		return a, newCondition(apiregistrationv1.ConditionFalse, reason, message)
	}
	if _, ok := s.config.Cache.Objects().Get(schema.GroupResource{Resource: "services"}, r.Spec.Service.Namespace,
		r.Spec.Service.Name); !ok {
		return no("ServiceNotFound", where+" is not present")
	}
	if _, err := s.config.Backends.Endpoints(a.target); err != nil {
		return no("MissingEndpoints", fmt.Sprintf("endpoints for %s: %v", where, err))
	}
	resources, err := s.fetchResources(ctx, a.target, r.Spec.Group, r.Spec.Version)
	if err != nil {
		return no("FailedDiscoveryCheck", fmt.Sprintf("failing or missing response from %s: %v", where, err))
	}
	a.Resources = resources
	s.fetchDocuments(ctx, a, schema.GroupVersion{Group: r.Spec.Group, Version: r.Spec.Version})
	return a, newCondition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
}

// fetchResources returns the resources that a server lists for a group version.
func (s *Aggregator) fetchResources(
	ctx context.Context,
	target backend.Target,
	group, version string,
) ([]metav1.APIResource, error) {
	data, _, err := s.fetchDocument(ctx, target, "/apis/"+group+"/"+version, "")
	if err != nil {
		return nil, err
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal(data, list); err != nil {
		return nil, fmt.Errorf("read the list of resources: %w", err)
	}
	if list.GroupVersion != group+"/"+version {
		return nil, errors.New("the list of resources is of " + list.GroupVersion)
	}
	return list.APIResources, nil
}

// writeAvailable writes the condition of an APIService if it changed.
func (s *Aggregator) writeAvailable(
	ctx context.Context,
	r *apiregistrationv1.APIService,
	c apiregistrationv1.APIServiceCondition,
) error {
	i := slices.IndexFunc(r.Status.Conditions,
		func(current apiregistrationv1.APIServiceCondition) bool { return current.Type == c.Type })
	c.LastTransitionTime = metav1.NewTime(s.config.Now().UTC().Truncate(time.Second))
	if i >= 0 {
		current := r.Status.Conditions[i]
		if current.Status == c.Status && current.Reason == c.Reason && current.Message == c.Message {
			return nil
		}
		if current.Status == c.Status {
			c.LastTransitionTime = current.LastTransitionTime
		}
	}
	_, err := s.config.Writes.Change(ctx, write.Own{Resource: apiServicesGVR, Subresource: "status", Name: r.Name},
		setAvailableCondition(r, c))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sameServed reports whether clients would see no difference between a and b.
func sameServed(a, b map[schema.GroupVersion]*Version) bool {
	if len(a) != len(b) {
		return false
	}
	for gv, x := range a {
		y := b[gv]
		if y == nil || x.UnavailableReason != y.UnavailableReason || x.target.Name() != y.target.Name() ||
			string(x.target.CABundle) != string(y.target.CABundle) ||
			x.target.Insecure != y.target.Insecure || !x.Documents.equal(y.Documents) ||
			!slices.EqualFunc(x.Resources, y.Resources, sameResource) {
			return false
		}
	}
	return true
}

func sameResource(a, b metav1.APIResource) bool { return equality.Semantic.DeepEqual(a, b) }

// setAvailableCondition returns a function that sets a condition of an APIService. It fails if the APIService was
// deleted and created again since.
func setAvailableCondition(
	r *apiregistrationv1.APIService,
	c apiregistrationv1.APIServiceCondition,
) func(live runtime.Object) (runtime.Object, error) {
	return func(live runtime.Object) (runtime.Object, error) {
		now, ok := live.(*apiregistrationv1.APIService)
		if !ok || now.UID != r.UID {
			return nil, apierrors.NewNotFound(apiServicesGVR.GroupResource(), r.Name)
		}
		next := now.DeepCopy()
		next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions,
			func(current apiregistrationv1.APIServiceCondition) bool { return current.Type == c.Type })
		next.Status.Conditions = append(next.Status.Conditions, c)
		return next, nil
	}
}
