package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// namespaceLifecycle refuses objects in namespaces that do not exist or are being deleted. It protects the cluster's
// own namespaces from deletion.
type namespaceLifecycle struct {
	objects api.CurrentObjects
}

var undeletableNamespaces = map[string]bool{
	metav1.NamespaceDefault: true,
	metav1.NamespaceSystem:  true,
	metav1.NamespacePublic:  true,
}

// Admit refuses to create objects in missing or terminating namespaces, before other plugins fail for lack of the
// namespace's objects. It keeps updates of a namespace from changing its finalizers.
func (p *namespaceLifecycle) Admit(ctx context.Context, a *api.Admission) error {
	if isOperation(a, "UPDATE", namespacesGR) {
		ns, ok := a.Object.(*corev1.Namespace)
		old, also := a.Old.(*corev1.Namespace)
		if ok && also {
			ns.Spec.Finalizers = append([]corev1.FinalizerName(nil), old.Spec.Finalizers...)
		}
	}
	if a.Resource.GroupResource() == namespacesGR {
		if a.Operation == "DELETE" && undeletableNamespaces[a.Name] {
			return forbidden(a, errors.New("this namespace may not be deleted"))
		}
		return nil
	}
	if a.Operation != "CREATE" || a.Namespace == "" ||
		a.Resource.GroupResource() == (resourceName{Group: "authorization.k8s.io",
			Resource: "localsubjectaccessreviews"}) {
		return nil
	}
	obj, err := currentObject(ctx, p.objects, namespacesGR, "", a.Namespace)
	if err != nil {
		return err
	}
	if obj == nil {
		return apierrors.NewNotFound(namespacesGR, a.Namespace)
	}
	if ns := obj.(*corev1.Namespace); ns.Status.Phase != corev1.NamespaceTerminating && ns.DeletionTimestamp == nil {
		return nil
	}
	refusal := apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", a.Namespace))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being "+
			"terminated", a.Namespace), Field: "metadata.namespace",
	})
	return refusal
}
