package apiserver

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// create stores the object that the client sent as a new object.
func (s *Server) create(q *request) error {
	w, err := s.newWrite(q)
	if err != nil {
		return err
	}
	obj, err := s.decodeSent(q)
	if err != nil {
		return err
	}
	e, err := w.insert(q.http.Context(), obj)
	if err != nil {
		return err
	}
	q.auditRecord.setName(e.Namespace, e.Name)
	return writeEntry(q, http.StatusCreated, e)
}

// decodeSent decodes the object in the request body, converts it to the stored version, and checks its name and
// namespace against the URL.
func (s *Server) decodeSent(q *request) (runtime.Object, error) {
	obj := q.served.NewObject()
	if err := s.decode(q, q.served.Version(), obj); err != nil {
		return nil, err
	}
	obj, err := q.served.ToStored(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, setNameAndNamespace(q, m)
}

// authorizeCreate returns an error if the user may not create the object that a write would create.
func (s *Server) authorizeCreate(q *request) error {
	if len(s.options.Authorizers) == 0 {
		return nil
	}
	asked := q.Request
	asked.Verb = "create"
	return s.authorizeUser(q.http.Context(), q.user, asked)
}

// update replaces an object, or its status.
func (s *Server) update(q *request) error {
	w, err := s.newWrite(q)
	if err != nil {
		return err
	}
	obj, err := s.decodeSent(q)
	if err != nil {
		return err
	}
	sent, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	version := sent.GetResourceVersion()
	code := http.StatusOK
	e, err := w.modify(q.http.Context(), func(live runtime.Object) (runtime.Object, error) {
		code = http.StatusOK
		next := obj.DeepCopyObject()
		if live == nil {
			if !q.served.CreateOnUpdate || q.Subresource != "" {
				return nil, apierrors.NewNotFound(q.groupResource(), q.Name)
			}
			if sent.GetUID() != "" {
				return nil, s.uidMismatch(q, sent.GetUID(), "")
			}
			code = http.StatusCreated
			return next, s.authorizeCreate(q)
		}
		stored, err := meta.Accessor(live)
		if err != nil {
			return nil, err
		}
		// A wrong UID is reported first, by the code that prepares the update.
		if q.served.ConditionalUpdate && (version == "" || version == "0") &&
			(sent.GetUID() == "" || sent.GetUID() == stored.GetUID()) {
			return nil, invalidError(schema.GroupKind{Group: q.groupResource().Group, Kind: q.groupResource().Resource},
				q.Name, field.ErrorList{
					field.Invalid(
						field.NewPath("metadata", "resourceVersion"),
						uint64(0),
						"must be specified for an update",
					)})
		}
		return next, checkVersion(q, sent, stored)
	})
	if err != nil {
		return err
	}
	return writeEntry(q, code, e)
}

// serveReview answers the creation of a kind that is not stored.
func (s *Server) serveReview(q *request) error {
	if q.served.Resource == "bindings" {
		return s.createBinding(q)
	}
	handle := s.options.Reviews[q.served.GR()]
	if handle == nil {
		return methodNotAllowed(q)
	}
	if err := q.writeOptions(); err != nil {
		return err
	}
	obj := q.served.NewObject()
	if err := s.decode(q, q.served.Version(), obj); err != nil {
		return err
	}
	if m, err := meta.Accessor(obj); err == nil && q.served.Namespaced {
		if err := setNameAndNamespace(q, m); err != nil {
			return err
		}
	}
	if q.served.Default != nil {
		q.served.Default(obj)
	}
	if q.served.Validate != nil {
		if errs := q.served.Validate(obj); len(errs) > 0 {
			return invalidError(q.served.GVK.GroupKind(), "", errs)
		}
	}
	if err := s.admitSubresource(q, "CREATE", q.served.Version(), obj, false); err != nil {
		return err
	}
	answer, err := handle(q.http.Context(), q.user, obj)
	if err != nil {
		return err
	}
	if answer == nil {
		return errors.New("a review has no answer")
	}
	return q.media.WriteObject(q.w, http.StatusCreated, q.served.Version(), answer)
}
