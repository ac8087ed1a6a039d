package write

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/kinds/core"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/value"
)

// maxGeneratedName and randomLength define generated names as upstream does: the base, cut to fit, and five random
// characters.
const (
	maxGeneratedName = 63
	randomLength     = 5
)

// prepareCreate sets the metadata that clients cannot choose for a new object, such as UID, timestamps and generation.
func (a *attempt) prepareCreate(context.Context) error {
	k := a.q.Served.Kind
	m, err := meta.Accessor(a.next.obj)
	if err != nil {
		return err
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		base := m.GetGenerateName()
		m.SetName(base[:min(len(base), maxGeneratedName-randomLength)] + rand.String(randomLength))
	}
	m.SetUID(uuid.NewUUID())
	m.SetCreationTimestamp(metav1.Time{Time: a.s.config.Now().UTC().Truncate(time.Second)})
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
	m.SetResourceVersion("")
	m.SetGeneration(0)
	if k.HasGeneration {
		m.SetGeneration(1)
	}
	if k.PrepareCreate != nil {
		k.PrepareCreate(a.next.obj)
	}
	kinds.ClearDisabled(a.next.obj, nil)
	return nil
}

// prepareUpdate keeps the parts of the stored object that an update cannot change, such as UID, timestamps and status.
func (a *attempt) prepareUpdate(context.Context) error {
	k := a.q.Served.Kind
	m, err := meta.Accessor(a.next.obj)
	if err != nil {
		return err
	}
	old, err := meta.Accessor(a.live.obj)
	if err != nil {
		return err
	}
	if uid := m.GetUID(); uid != "" && uid != old.GetUID() && a.q.Verb != "patch" {
		return a.s.uidMismatch(a.q, uid, old.GetUID())
	} else if uid == "" {
		m.SetUID(old.GetUID()) // validation refuses a patch that changes the UID
	}
	m.SetCreationTimestamp(old.GetCreationTimestamp())
	// An update cannot undo a deletion. Validation refuses an update that would begin one.
	if at := old.GetDeletionTimestamp(); at != nil {
		m.SetDeletionTimestamp(at)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil {
		m.SetDeletionGracePeriodSeconds(grace)
	}
	m.SetGeneration(old.GetGeneration())
	m.SetSelfLink("")
	switch a.w.subresource {
	case "status":
		a.next.obj = statusOnly(k, a.next.obj, a.live.obj)
		kinds.ClearDisabled(a.next.obj, a.live.obj)
		return nil
	case partSubresource:
		if k.HasGeneration && a.q.Subresource != "binding" && specChanged(k, a.next.obj, a.live.obj) {
			m.SetGeneration(old.GetGeneration() + 1)
		}
		return nil
	}
	if k.Status != nil {
		k.Status.Copy(a.next.obj, a.live.obj)
	}
	if k.PrepareUpdate != nil {
		k.PrepareUpdate(a.next.obj, a.live.obj)
	}
	kinds.ClearDisabled(a.next.obj, a.live.obj)
	if k.HasGeneration && (specChanged(k, a.next.obj, a.live.obj) || k.RaisesGeneration != nil &&
		k.RaisesGeneration(a.next.obj, a.live.obj)) {
		m.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

// statusOnly returns the stored object with the status of obj. It also takes the metadata that a status update may
// change: labels, annotations, finalizers and owner references.
func statusOnly(k *kinds.Kind, obj, stored runtime.Object) runtime.Object {
	next := stored.DeepCopyObject()
	if k.Status != nil {
		k.Status.Copy(next, obj)
		if k.Status.Prepare != nil {
			k.Status.Prepare(next, stored)
		}
	}
	from, fromErr := meta.Accessor(obj)
	to, toErr := meta.Accessor(next)
	if fromErr == nil && toErr == nil {
		if !k.Status.KeepsAllMeta {
			to.SetAnnotations(from.GetAnnotations())
			to.SetFinalizers(from.GetFinalizers())
			if !slices.Contains(k.Status.KeptMeta, "labels") {
				to.SetLabels(from.GetLabels())
			}
			if !slices.Contains(k.Status.KeptMeta, "ownerReferences") {
				to.SetOwnerReferences(from.GetOwnerReferences())
			}
		}
		to.SetManagedFields(from.GetManagedFields())
		to.SetUID(from.GetUID())
	}
	return next
}

// specChanged reports whether anything but metadata and status differs.
func specChanged(k *kinds.Kind, obj, old runtime.Object) bool {
	a, b := ownership.ShallowCopy(obj), ownership.ShallowCopy(old)
	if k.Status != nil {
		k.Status.Copy(a, b)
	}
	for _, o := range []runtime.Object{a, b} {
		o.GetObjectKind().SetGroupVersionKind(k.GVK)
		if u, ok := o.(*unstructured.Unstructured); ok {
			delete(u.Object, "metadata")
			continue
		}
		if f := reflect.ValueOf(o).Elem().FieldByName("ObjectMeta"); f.IsValid() {
			f.SetZero()
		}
	}
	return !value.Same(a, b)
}

// validate returns all errors of the write together.
func (a *attempt) validate(context.Context) error {
	k := a.q.Served.Kind
	m, err := meta.Accessor(a.next.obj)
	if err != nil {
		return err
	}
	names := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if k.NameErrors != nil {
		names = k.NameErrors
	}
	path := field.NewPath("metadata")
	var errs field.ErrorList
	var otherwise func(obj, old runtime.Object) field.ErrorList
	if a.q.Served.Alias != nil {
		otherwise = a.q.Served.Alias.Checks
	}
	if a.live.obj == nil {
		errs = validation.ValidateObjectMetaAccessor(m, k.Namespaced, names, path)
		switch {
		case otherwise != nil:
			errs = append(errs, otherwise(a.next.obj, nil)...)
		case k.Validate != nil:
			errs = append(errs, k.Validate(a.next.obj)...)
		}
	} else {
		old, err := meta.Accessor(a.live.obj)
		if err != nil {
			return err
		}
		m.SetResourceVersion(old.GetResourceVersion())
		for _, wrong := range pathvalidation.ValidatePathSegmentName(m.GetGenerateName(), true) {
			errs = append(errs, field.Invalid(path.Child("generateName"), m.GetGenerateName(), wrong))
		}
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(m, old, path)...)
		switch {
		case a.w.subresource == "status":
			if k.Status != nil && k.Status.Validate != nil {
				errs = append(errs, k.Status.Validate(a.next.obj, a.live.obj)...)
			}
		case a.w.subresource == partSubresource:
			// The handler of the subresource changed only its part of the object.
			if a.q.Subresource == "ephemeralcontainers" {
				errs = append(errs, podspec.ValidateEphemeralContainers(a.next.obj, a.live.obj)...)
			}
			if a.q.Subresource == "resize" {
				errs = append(errs, core.ValidateResize(a.next.obj, a.live.obj)...)
			}
		case otherwise != nil:
			errs = append(errs, otherwise(a.next.obj, a.live.obj)...)
		case k.ValidateUpdate != nil:
			errs = append(errs, k.ValidateUpdate(a.next.obj, a.live.obj)...)
		case k.Validate != nil:
			errs = append(errs, k.Validate(a.next.obj)...)
		}
		errs = kinds.RemoveOldAliasErrors(errs, a.live.obj)
	}
	if len(errs) > 0 {
		return request.InvalidError(k.GVK.GroupKind(), m.GetName(), errs)
	}
	if k.Warnings != nil && a.w.subresource == "" {
		for _, text := range k.Warnings(a.next.obj, a.live.obj) {
			a.q.Answer.Warn(text)
		}
	}
	return nil
}

// canRemove reports whether an object under deletion can be removed, because nothing delays it any more.
func canRemove(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	if err != nil || m.GetDeletionTimestamp() == nil || len(m.GetFinalizers()) > 0 {
		return false
	}
	if grace := m.GetDeletionGracePeriodSeconds(); grace != nil && *grace != 0 {
		return false
	}
	if ns, ok := obj.(*corev1.Namespace); ok && len(ns.Spec.Finalizers) > 0 {
		return false
	}
	return true
}

// setFieldOwners sets the owners of the changed fields, unless apply has done so. Like upstream, a binding leaves them
// unchanged, because the server itself assigns the pod to its node.
func (a *attempt) setFieldOwners(context.Context) error {
	if a.w.isApply || a.q.Subresource == "binding" {
		return nil
	}
	live := a.live.obj
	if live == nil {
		live = a.q.Served.New()
		if m, err := meta.Accessor(a.next.obj); err == nil {
			// Nothing owns fields that a new object cannot have.
			m.SetDeletionTimestamp(nil)
			m.SetDeletionGracePeriodSeconds(nil)
		}
	}
	obj, err := a.s.config.Owners.Update(a.q.Served, a.q.Subresource, a.live.converted, live, a.next.obj, a.w.manager)
	if err != nil {
		return err
	}
	a.next.obj = obj
	return nil
}

// checkVersion returns a conflict if the client sent another resource version than the stored one.
func checkVersion(q *request.Request, sent, stored metav1.Object) error {
	if v := sent.GetResourceVersion(); v != "" && v != "0" && v != stored.GetResourceVersion() {
		return conflictError(q)
	}
	return nil
}

func conflictError(q *request.Request) error {
	return apierrors.NewConflict(q.GroupResource(), q.Name, fmt.Errorf(
		"the object has been modified; please apply your changes to the latest version and try again"))
}

// setNameAndNamespace sets the namespace and, if the path has one, the name of a sent object. It returns an error if
// they differ from the path.
func setNameAndNamespace(q *request.Request, m metav1.Object) error {
	if !q.Served.Namespaced {
		m.SetNamespace("")
	} else if err := setNamespace(q, m); err != nil {
		return err
	}
	if q.Name == "" || q.Verb == "create" {
		return nil
	}
	switch {
	case m.GetName() == "" && q.Verb != "update":
		m.SetName(q.Name)
	case m.GetName() == "":
		return apierrors.NewBadRequest("name must be provided")
	case m.GetName() != q.Name:
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), q.Name))
	}
	return nil
}

// setNamespace sets the namespace of a sent object to that of the path. It returns an error if the object has another
// one.
func setNamespace(q *request.Request, m metav1.Object) error {
	if in := m.GetNamespace(); in != "" && in != q.Namespace {
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	m.SetNamespace(q.Namespace)
	return nil
}

func uidString(text *types.UID) string {
	if text == nil {
		return ""
	}
	return strings.TrimSpace(string(*text))
}
