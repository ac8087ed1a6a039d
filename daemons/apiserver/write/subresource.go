package write

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/request"
)

// Subresources answers requests for subresources that write.
type Subresources struct{ writes *Writes }

// ServeObject serves a subresource that reads and writes the whole object, under rules of its own.
func (s Subresources) ServeObject(q *request.Request) error {
	switch q.Verb {
	case "get":
		return s.writes.config.Reads.Get(q)
	case "update":
		return s.writes.Update(q)
	case "patch":
		return s.writes.Patch(q)
	}
	return request.MethodNotAllowed(q)
}

// servePartSubresource serves a subresource that changes a part of the object. take copies that part to the stored
// object.
func (s Subresources) servePartSubresource(take func(to, from runtime.Object)) func(*request.Request) error {
	return func(q *request.Request) error {
		if q.Verb == "get" {
			return s.writes.config.Reads.Get(q)
		}
		if q.Verb != "update" && q.Verb != "patch" {
			return request.MethodNotAllowed(q)
		}
		w, err := s.writes.newWrite(q)
		if err != nil {
			return err
		}
		next, err := changeFromRequest(w)
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
func changeFromRequest(w *write) (func(live runtime.Object) (runtime.Object, error), error) {
	q := w.q
	if q.Verb == "patch" {
		patchType, data, _, err := readPatch(q)
		if err != nil {
			return nil, err
		}
		return func(runtime.Object) (runtime.Object, error) {
			return patchObject(q, w.attempt.live, patchType, data)
		}, nil
	}
	obj, err := decodeSent(q)
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

// CreateToken issues a token for a service account.
func (s Subresources) CreateToken(q *request.Request) error {
	if q.Verb != "create" || s.writes.config.Token == nil {
		return request.MethodNotAllowed(q)
	}
	return s.issueToken(q)
}

// Finalize updates a namespace's spec.finalizers, which keep it until it is empty.
func (s Subresources) Finalize(q *request.Request) error {
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

// ServeEphemeralContainers reads and writes a pod's ephemeral containers.
func (s Subresources) ServeEphemeralContainers(q *request.Request) error {
	return s.servePartSubresource(copyEphemeralContainers)(q)
}

// ServeResize reads a pod, and writes the sizes of its containers.
func (s Subresources) ServeResize(q *request.Request) error {
	return s.servePartSubresource(copyResize)(q)
}
