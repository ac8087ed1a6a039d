package apiserver

import (
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/request"
)

// subresources returns the handlers of subresources. status and scale are not among them: a kind has these by declaring
// how they work.
func (s *resourceHandlers) subresources() map[string]func(*request.Request) error {
	writes := s.writes.Subresources()
	return map[string]func(*request.Request) error{
		"binding":             writes.BindPod,
		"eviction":            writes.Evict,
		"token":               writes.CreateToken,
		"approval":            writes.ServeObject,
		"finalize":            writes.Finalize,
		"ephemeralcontainers": writes.ServeEphemeralContainers,
		"resize":              writes.ServeResize,
		"log":                 s.streams.ServeKubelet,
		"exec":                s.streams.ServeKubelet,
		"attach":              s.streams.ServeKubelet,
		"portforward":         s.streams.ServeKubelet,
		"proxy":               s.streams.ServeProxy,
	}
}

func (s *resourceHandlers) serveSubresource(q *request.Request) error {
	if q.Name == "" {
		return request.PageNotFound()
	}
	switch {
	case q.Subresource == "status" && q.Served.Status != nil:
		return s.writes.Subresources().ServeObject(q)
	case q.Subresource == "scale" && q.Served.Scale != nil:
		return s.writes.Subresources().ServeScale(q)
	case slices.Contains(q.Served.Subresources, q.Subresource):
		if handle := s.subresources()[q.Subresource]; handle != nil {
			return handle(q)
		}
	}
	return request.PageNotFound()
}

// addSubresourceTypes adds the types of subresources to the scheme.
func addSubresourceTypes(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	if !scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Binding")) {
		scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Binding{})
	}
}
