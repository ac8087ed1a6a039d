package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// namespaceLifecycle refuses objects in namespaces that do not exist or are being deleted. It protects the cluster's
// own namespaces from deletion.
type namespaceLifecycle struct {
	objects api.Objects

	mu     sync.Mutex
	missed map[string]time.Time // namespaces that did not appear within the wait
}

var undeletableNamespaces = map[string]bool{
	metav1.NamespaceDefault: true,
	metav1.NamespaceSystem:  true,
	metav1.NamespacePublic:  true,
}

const namespaceWait = 200 * time.Millisecond

// A dry run of a plan sends many objects of a namespace that does not exist yet. Only the first of them waits for the
// namespace; those within missedTTL of it do not. maxMissed is how many namespaces are remembered.
const (
	missedTTL = 5 * time.Second
	maxMissed = 100
)

func (p *namespaceLifecycle) waitTime(a *api.Admission) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.missed[a.Namespace]; ok && a.DryRun && time.Since(at) < missedTTL {
		return 0
	}
	return namespaceWait
}

func (p *namespaceLifecycle) recordMissing(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missed == nil || len(p.missed) >= maxMissed {
		p.missed = map[string]time.Time{}
	}
	p.missed[namespace] = time.Now()
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
	obj, ok := p.objects.Get(namespacesGR, "", a.Namespace)
	if maxWait := p.waitTime(a); !ok && maxWait > 0 {
		obj, ok = waitForObject(ctx, p.objects, namespacesGR, "", a.Namespace, maxWait)
	}
	if !ok {
		p.recordMissing(a.Namespace)
		return apierrors.NewNotFound(namespacesGR, a.Namespace)
	}
	if ns := obj.(*corev1.Namespace); ns.Status.Phase != corev1.NamespaceTerminating && ns.DeletionTimestamp == nil {
		return nil
	}
	err := apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", a.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being "+
			"terminated", a.Namespace), Field: "metadata.namespace",
	})
	return err
}
