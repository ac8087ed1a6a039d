package write

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/request"
)

// Create stores the object that the client sent as a new object.
func (s *Writes) Create(q *request.Request) error {
	w, err := s.newWrite(q)
	if err != nil {
		return err
	}
	obj, err := decodeSent(q)
	if err != nil {
		return err
	}
	e, err := w.insert(q.HTTP.Context(), obj)
	if err != nil {
		return err
	}
	q.Answer.Audit.SetName(e.Namespace, e.Name)
	return q.WriteEntry(http.StatusCreated, e)
}

// decodeSent decodes the object in the request body, converts it to the stored version, and checks its name and
// namespace against the URL.
func decodeSent(q *request.Request) (runtime.Object, error) {
	obj := q.Served.NewObject()
	if err := body.Decode(q, q.Served.Version(), obj); err != nil {
		return nil, err
	}
	obj, err := q.Served.ToStored(obj)
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
func (s *Writes) authorizeCreate(q *request.Request) error {
	attributes := q.Request
	attributes.Verb = "create"
	return s.server.Authorize(q.HTTP.Context(), q.User, attributes)
}

// Update replaces an object, or its status.
func (s *Writes) Update(q *request.Request) error {
	w, err := s.newWrite(q)
	if err != nil {
		return err
	}
	obj, err := decodeSent(q)
	if err != nil {
		return err
	}
	sent, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	version := sent.GetResourceVersion()
	code := http.StatusOK
	e, err := w.modify(q.HTTP.Context(), func(live runtime.Object) (runtime.Object, error) {
		code = http.StatusOK
		next := obj.DeepCopyObject()
		if live == nil {
			if !q.Served.CreateOnUpdate || q.Subresource != "" {
				return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
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
		if q.Served.ConditionalUpdate && (version == "" || version == "0") &&
			(sent.GetUID() == "" || sent.GetUID() == stored.GetUID()) {
			return nil, request.InvalidError(schema.GroupKind{Group: q.GroupResource().Group,
				Kind: q.GroupResource().Resource},
				q.Name, field.ErrorList{
					field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0),
						"must be specified for an update")})
		}
		return next, checkVersion(q, sent, stored)
	})
	if err != nil {
		return err
	}
	return q.WriteEntry(code, e)
}

// Review answers the creation of a kind that is not stored.
func (s *Writes) Review(q *request.Request) error {
	if q.Served.Resource == "bindings" {
		return s.Subresources().createBinding(q)
	}
	handle := s.config.Reviews[q.Served.GR()]
	if handle == nil {
		return request.MethodNotAllowed(q)
	}
	if err := q.WriteOptions(); err != nil {
		return err
	}
	obj := q.Served.NewObject()
	if err := body.Decode(q, q.Served.Version(), obj); err != nil {
		return err
	}
	if m, err := meta.Accessor(obj); err == nil && q.Served.Namespaced {
		if err := setNameAndNamespace(q, m); err != nil {
			return err
		}
	}
	if q.Served.Default != nil {
		q.Served.Default(obj)
	}
	if q.Served.Validate != nil {
		if errs := q.Served.Validate(obj); len(errs) > 0 {
			return request.InvalidError(q.Served.GVK.GroupKind(), "", errs)
		}
	}
	if err := s.admitter.AdmitSubresource(q, "CREATE", q.Served.Version(), obj, false); err != nil {
		return err
	}
	answer, err := handle(q.HTTP.Context(), q.User, obj)
	if err != nil {
		return err
	}
	if answer == nil {
		return errors.New("a review has no answer")
	}
	return q.Media.WriteObject(q.Answer, http.StatusCreated, q.Served.Version(), answer)
}

// TerminatingError returns the error for creating an object whose definition is being deleted.
func TerminatingError(q *request.Request) error {
	err := apierrors.NewMethodNotSupported(q.GroupResource(), q.Verb)
	err.ErrStatus.Message = fmt.Sprintf("create not allowed while custom resource definition is terminating: %s",
		q.GroupResource())
	return err
}
