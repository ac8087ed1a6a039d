package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/kinds/extensions"
)

// aggregatedVersion is a group version that another server serves.
type aggregatedVersion struct {
	target            backend.Target
	resources         []metav1.APIResource // as listed by that server at its last check
	documents         openAPIDocuments     // fetched at the same check
	unavailableReason string               // why requests are not passed on; empty if they are
}

// serverOfDocument returns the server that answers a path without a resource: the path of a group version, or of its
// OpenAPI document.
func (o *servedKinds) serverOfDocument(path string) *aggregatedVersion {
	if len(o.aggregated) == 0 {
		return nil
	}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(path, "/openapi/v3"), "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" {
		return nil
	}
	return o.aggregated[schema.GroupVersion{Group: parts[1], Version: parts[2]}]
}

// proxyToAggregated forwards a request to the server that serves its group version, with the user in headers.
func (s *Server) proxyToAggregated(q *request) error {
	a := q.aggregated
	if a.unavailableReason != "" {
		return apierrors.NewServiceUnavailable("the server is currently unable to handle the request: " +
			a.unavailableReason)
	}
	transport, err := s.backends.Transport(a.target, q.http.Header.Get("Upgrade") != "")
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{
				Scheme:   "https",
				Host:     a.target.Name(),
				Path:     q.http.URL.Path,
				RawPath:  q.http.URL.RawPath,
				RawQuery: q.http.URL.RawQuery,
			}
			r.Out.Host = a.target.Name()
			r.SetXForwarded()
			header.RemoveHTTP2Upgrade(r.Out.Header)
			setUserHeaders(r.Out.Header, q.user)
		},
		ModifyResponse: func(r *http.Response) error {
			// When the request times out, the server may still end its response. That response is empty and must not be
			// used.
			if err := q.http.Context().Err(); err != nil {
				return err
			}
			if r.StatusCode == http.StatusSwitchingProtocols && q.becomeStream != nil {
				q.becomeStream()
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(context.Cause(q.http.Context()), context.DeadlineExceeded) {
				s.writeError(q, context.DeadlineExceeded)
			} else if q.http.Context().Err() == nil {
				s.writeError(q, apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err)))
			}
		},
	}
	proxy.ServeHTTP(q.w, q.http)
	return nil
}

// setUserHeaders sets the headers that name the user. Credentials and identity headers that the client sent are
// removed.
func setUserHeaders(h http.Header, u api.User) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
	h.Set("X-Remote-User", u.Name)
	if u.UID != "" {
		h.Set("X-Remote-Uid", u.UID)
	}
	for _, group := range u.Groups {
		h.Add("X-Remote-Group", group)
	}
	for key, values := range u.Extra {
		for _, value := range values {
			h.Add("X-Remote-Extra-"+url.PathEscape(key), value)
		}
	}
}

var apiServicesGVR = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

const (
	availabilityInterval = 10 * time.Second
	availabilityTimeout  = 5 * time.Second
	maxDocumentSize      = 16 << 20
)

// monitorAggregated checks periodically, until ctx ends, whether the servers behind APIServices answer, and writes the
// result to the APIServices' conditions.
func (s *Server) monitorAggregated(ctx context.Context) error {
	services := s.cache.Resource(apiServicesGVR.GroupResource())
	if services == nil || s.cache.WaitFor(ctx, 1) != nil {
		return nil // not served, or ctx ended
	}
	select {
	case <-s.bootstrapDone: // objects that other requests wait for are created first
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(availabilityInterval)
	defer tick.Stop()
	var was map[schema.GroupVersion]*aggregatedVersion
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
			s.log.Warn("register what is served here", "err", err)
		}
		next := map[schema.GroupVersion]*aggregatedVersion{}
		for _, obj := range s.Objects().List(apiServicesGVR.GroupResource(), "") {
			registered, ok := obj.(*apiregistrationv1.APIService)
			if !ok {
				continue
			}
			gv := schema.GroupVersion{Group: registered.Spec.Group, Version: registered.Spec.Version}
			a, condition := s.checkAvailability(ctx, registered, was[gv])
			if a != nil {
				next[gv] = a
			}
			if err := s.writeAvailable(ctx, registered, condition); err != nil && ctx.Err() == nil {
				s.log.Warn("write whether an API service is available", "apiservice", registered.Name, "err", err)
			}
		}
		for gv, a := range was {
			if services.ReadError(gv.Version+"."+gv.Group) != nil {
				next[gv] = a // an APIService that cannot be read keeps its previous state
			}
		}
		if !sameServed(was, next) {
			s.serveAggregated(next)
			was = next
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
			case <-s.kindSources.changed:
			case <-again:
			}
		}
		cursor.Close()
	}
	return nil
}

// checkAvailability reports whether the server behind an APIService answers. A local APIService is always available,
// and its requests are not passed on.
func (s *Server) checkAvailability(
	ctx context.Context,
	r *apiregistrationv1.APIService,
	was *aggregatedVersion,
) (*aggregatedVersion, apiregistrationv1.APIServiceCondition) {
	say := func(status apiregistrationv1.ConditionStatus, reason,
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
	a := &aggregatedVersion{target: backend.Target{
		Namespace: r.Spec.Service.Namespace, Service: r.Spec.Service.Name, Port: 443,
		CABundle: r.Spec.CABundle, Insecure: r.Spec.InsecureSkipTLSVerify, Certificate: s.options.FrontProxy,
	}}
	if len(a.target.CABundle) == 0 && s.options.ClusterCA != nil {
		a.target.AdditionalCAs = s.options.ClusterCA()
	}
	if r.Spec.Service.Port != nil {
		a.target.Port = *r.Spec.Service.Port
	}
	if was != nil {
		a.resources, a.documents = was.resources, was.documents
	}
	where := "service/" + r.Spec.Service.Name + " in \"" + r.Spec.Service.Namespace + "\""
	no := func(reason, message string) (*aggregatedVersion, apiregistrationv1.APIServiceCondition) {
		a.unavailableReason = message
		s.metrics.unavailable.WithLabelValues(r.Name, reason).Inc()
		return a, say(apiregistrationv1.ConditionFalse, reason, message)
	}
	if _, there := s.Objects().Get(schema.GroupResource{Resource: "services"}, r.Spec.Service.Namespace,
		r.Spec.Service.Name); !there {
		return no("ServiceNotFound", where+" is not present")
	}
	if _, err := s.backends.Endpoints(a.target); err != nil {
		return no("MissingEndpoints", fmt.Sprintf("endpoints for %s: %v", where, err))
	}
	resources, err := s.fetchResources(ctx, a.target, r.Spec.Group, r.Spec.Version)
	if err != nil {
		return no("FailedDiscoveryCheck", fmt.Sprintf("failing or missing response from %s: %v", where, err))
	}
	a.resources = resources
	s.fetchDocuments(ctx, a, schema.GroupVersion{Group: r.Spec.Group, Version: r.Spec.Version})
	return a, say(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
}

// fetchResources returns the resources that a server lists for a group version.
func (s *Server) fetchResources(
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
func (s *Server) writeAvailable(
	ctx context.Context,
	r *apiregistrationv1.APIService,
	c apiregistrationv1.APIServiceCondition,
) error {
	i := slices.IndexFunc(
		r.Status.Conditions,
		func(have apiregistrationv1.APIServiceCondition) bool { return have.Type == c.Type },
	)
	c.LastTransitionTime = metav1.NewTime(s.options.Now().UTC().Truncate(time.Second))
	if i >= 0 {
		have := r.Status.Conditions[i]
		if have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
			return nil
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
	}
	q := s.newInternalRequest(ctx, apiServicesGVR, "", r.Name)
	q.Subresource = "status"
	w := &write{s: s, q: q, manager: serverFieldManager, subresource: "status"}
	_, err := w.modify(ctx, setAvailableCondition(r, c))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sameServed reports whether clients would see no difference between a and b.
func sameServed(a, b map[schema.GroupVersion]*aggregatedVersion) bool {
	if len(a) != len(b) {
		return false
	}
	for gv, x := range a {
		y := b[gv]
		if y == nil || x.unavailableReason != y.unavailableReason || x.target.Name() != y.target.Name() ||
			string(x.target.CABundle) != string(y.target.CABundle) ||
			x.target.Insecure != y.target.Insecure || !x.documents.equal(y.documents) ||
			!slices.EqualFunc(x.resources, y.resources, sameResource) {
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
		next.Status.Conditions = slices.DeleteFunc(
			next.Status.Conditions,
			func(have apiregistrationv1.APIServiceCondition) bool { return have.Type == c.Type },
		)
		next.Status.Conditions = append(next.Status.Conditions, c)
		return next, nil
	}
}
