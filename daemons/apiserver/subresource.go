package apiserver

import (
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/request"
)

// subresources returns the handlers of subresources. status and scale are not among them: a kind has these by declaring
// how they work.
func (s *Server) subresources() map[string]func(*request.Request) error {
	return map[string]func(*request.Request) error{
		"binding":             s.createPodBinding,
		"eviction":            s.evict,
		"token":               s.createToken,
		"approval":            s.serveObjectSubresource,
		"finalize":            s.finalize,
		"ephemeralcontainers": s.servePartSubresource(copyEphemeralContainers),
		"resize":              s.servePartSubresource(copyResize),
		"log":                 s.streams.ServeKubelet,
		"exec":                s.streams.ServeKubelet,
		"attach":              s.streams.ServeKubelet,
		"portforward":         s.streams.ServeKubelet,
		"proxy":               s.streams.ServeProxy,
	}
}

func (s *Server) serveSubresource(q *request.Request) error {
	if q.Name == "" {
		return request.PageNotFound()
	}
	switch {
	case q.Subresource == "status" && q.Served.Status != nil:
		return s.serveObjectSubresource(q)
	case q.Subresource == "scale" && q.Served.Scale != nil:
		return s.serveScale(q)
	case slices.Contains(q.Served.Subresources, q.Subresource):
		if handle := s.subresources()[q.Subresource]; handle != nil {
			return handle(q)
		}
	}
	return request.PageNotFound()
}

// serveObjectSubresource serves a subresource that reads and writes the whole object, under rules of its own.
func (s *Server) serveObjectSubresource(q *request.Request) error {
	switch q.Verb {
	case "get":
		return s.reads.Get(q)
	case "update":
		return s.update(q)
	case "patch":
		return s.patch(q)
	}
	return request.MethodNotAllowed(q)
}

// addSubresourceTypes adds the types of subresources to the scheme.
func addSubresourceTypes(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	if !scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Binding")) {
		scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Binding{})
	}
}

// servePartSubresource serves a subresource that changes a part of the object. take copies that part to the stored
// object.
func (s *Server) servePartSubresource(take func(to, from runtime.Object)) func(*request.Request) error {
	return func(q *request.Request) error {
		if q.Verb == "get" {
			return s.reads.Get(q)
		}
		if q.Verb != "update" && q.Verb != "patch" {
			return request.MethodNotAllowed(q)
		}
		w, err := s.newWrite(q)
		if err != nil {
			return err
		}
		next, err := s.changeFromRequest(w)
		if err != nil {
			return err
		}
		e, err := w.modify(q.HTTP.Context(), func(live runtime.Object) (runtime.Object, error) {
			if live == nil {
				return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
			}
			sent, err := next(live)
			if err != nil {
				return nil, err
			}
			obj := live.DeepCopyObject()
			take(obj, sent)
			return obj, nil
		})
		if err != nil {
			return err
		}
		return q.WriteEntry(200, e)
	}
}

// changeFromRequest returns a function that returns the live object as a PUT or PATCH changes it.
func (s *Server) changeFromRequest(w *write) (func(live runtime.Object) (runtime.Object, error), error) {
	q := w.q
	if q.Verb == "patch" {
		patchType, data, _, err := readPatch(q)
		if err != nil {
			return nil, err
		}
		return func(live runtime.Object) (runtime.Object, error) { return w.patchObject(live, patchType, data) }, nil
	}
	obj, err := s.decodeSent(q)
	if err != nil {
		return nil, err
	}
	return func(live runtime.Object) (runtime.Object, error) {
		sent, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		stored, err := meta.Accessor(live)
		if err != nil {
			return nil, err
		}
		return obj, checkVersion(q, sent, stored)
	}, nil
}

func copyEphemeralContainers(to, from runtime.Object) {
	pod, ok := to.(*corev1.Pod)
	sent, also := from.(*corev1.Pod)
	if ok && also {
		pod.Spec.EphemeralContainers = sent.DeepCopy().Spec.EphemeralContainers
	}
}

func copyResize(to, from runtime.Object) {
	pod, ok := to.(*corev1.Pod)
	sent, also := from.(*corev1.Pod)
	if !ok || !also {
		return
	}
	pod.Spec = sent.DeepCopy().Spec // validation refuses other changes than sizes, instead of ignoring them
}

// createToken issues a token for a service account.
func (s *Server) createToken(q *request.Request) error {
	if q.Verb != "create" || s.options.Token == nil {
		return request.MethodNotAllowed(q)
	}
	return s.issueToken(q)
}

// finalize updates a namespace's spec.finalizers, which keep it until it is empty.
func (s *Server) finalize(q *request.Request) error {
	if q.Verb != "update" {
		return request.MethodNotAllowed(q)
	}
	return s.servePartSubresource(func(to, from runtime.Object) {
		ns, ok := to.(*corev1.Namespace)
		sent, also := from.(*corev1.Namespace)
		if ok && also {
			ns.Spec.Finalizers = slices.Clone(sent.Spec.Finalizers)
		}
	})(q)
}
