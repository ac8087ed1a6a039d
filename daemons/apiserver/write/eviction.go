package write

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

// maxDisrupted is how many evictions a budget's status may list that its controller has not processed yet.
const maxDisrupted = 2000

var (
	evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")
	budgetsGVR   = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// Evict deletes a pod, unless a disruption budget does not allow it.
func (s Subresources) Evict(q *request.Request) error {
	if q.Verb != "create" {
		return request.MethodNotAllowed(q)
	}
	if err := q.WriteOptions(); err != nil {
		return err
	}
	e := &policyv1.Eviction{}
	if err := body.Decode(q, evictionKind, e); err != nil {
		return err
	}
	if err := setNamespace(q, e); err != nil {
		return err
	}
	if e.Name != "" && e.Name != q.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	o := e.DeleteOptions
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	if values := q.Query["dryRun"]; len(values) > 0 {
		o.DryRun = values
	}
	if err := request.InvalidOptions("DeleteOptions", validation.ValidateDeleteOptions(o)); err != nil {
		return err
	}
	v := &eviction{writes: s.writes, q: q, options: o}
	pod, err := v.pod()
	if err != nil {
		return err
	}
	// All admission plugins run before the budget is spent, since a refusal does not give it back. Otherwise a node
	// could use up the budgets of other nodes' pods.
	admitter := s.writes.admitter
	if err := admitter.admitSubresourceWith(admitter.all, q, "CREATE", evictionKind, e,
		v.isDryRun()); err != nil {
		return err
	}
	// The deletion must apply to the same pod that was checked.
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	o.Preconditions.UID = &pod.UID
	if err := v.run(pod); err != nil {
		return err
	}
	return q.Media.WriteObject(q.Answer, http.StatusCreated, request.StatusKind,
		&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// eviction is a request to evict a pod.
type eviction struct {
	writes  *Writes
	q       *request.Request
	options *metav1.DeleteOptions
}

func (v *eviction) isDryRun() bool { return len(v.options.DryRun) > 0 }

// pod returns the pod that is to be evicted.
func (v *eviction) pod() (*corev1.Pod, error) {
	q := v.q
	if _, err := v.writes.config.Reads.WaitForVersion(q.HTTP.Context(), ""); err != nil {
		return nil, err
	}
	entry, err := q.LiveEntry()
	if err != nil {
		return nil, err
	}
	obj, err := entry.Object()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, request.PageNotFound()
	}
	return pod, checkPreconditions(q, pod, v.options.Preconditions)
}

// evictionAttempts is how often an eviction is tried when it conflicts with other writes of its pod, as upstream does.
// evictionPause is the time between two tries.
const (
	evictionAttempts = 20
	evictionPause    = 500 * time.Millisecond
)

// run charges a pod's eviction to its disruption budget, and deletes the pod. If the pod's state made the eviction
// free, the deletion requires the pod version that was checked, because the pod may have become ready since.
func (v *eviction) run(pod *corev1.Pod) error {
	ours := v.options.Preconditions.ResourceVersion == nil // false if the client asked for a certain version
	for try := 1; !needsBudget(pod); try++ {
		err := v.remove(pod, !isFinishedOrDeleting(pod))
		if !ours || !apierrors.IsConflict(err) || try == evictionAttempts {
			return err
		}
		select {
		case <-time.After(evictionPause):
		case <-v.q.HTTP.Context().Done():
			return err
		}
		if pod, err = v.pod(); err != nil {
			return err
		}
	}
	spares, err := v.takeDisruption(pod)
	if err != nil {
		return err
	}
	err = v.remove(pod, spares != "")
	if ours && spares != "" && apierrors.IsConflict(err) {
		return budgetBusyError(spares)
	}
	return err
}

// remove records in the pod's status why it is evicted, and deletes it. With asSeen, it requires the pod version
// that was checked.
func (v *eviction) remove(pod *corev1.Pod, asSeen bool) error {
	o := v.options.DeepCopy()
	if asSeen && o.Preconditions.ResourceVersion == nil {
		o.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	if !v.isDryRun() {
		if err := v.mark(o.Preconditions); err != nil {
			return err
		}
	}
	_, _, err := v.writes.deleteObject(v.q.HTTP.Context(), v.q, v.q.Key(), o)
	return err
}

// mark records in the pod's status why it is evicted. If must names a resource version, mark replaces it with the
// version that this write produces.
func (v *eviction) mark(must *metav1.Preconditions) error {
	q := v.q
	w, one, err := v.writes.newInnerWrite(q.HTTP.Context(), q, corev1.SchemeGroupVersion.WithResource("pods"), "status",
		q.Namespace, q.Name)
	if err != nil {
		return err
	}
	e, err := w.modify(q.HTTP.Context(), func(live runtime.Object) (runtime.Object, error) {
		stored, ok := live.(*corev1.Pod)
		if !ok {
			return nil, apierrors.NewNotFound(one.GroupResource(), one.Name)
		}
		if err := checkPreconditions(q, stored, must); err != nil {
			return nil, err
		}
		pod := stored.DeepCopy()
		setPodCondition(
			pod,
			corev1.PodCondition{
				Type:               corev1.DisruptionTarget,
				Status:             corev1.ConditionTrue,
				Reason:             "EvictionByEvictionAPI",
				Message:            "Eviction API: evicting",
				ObservedGeneration: pod.Generation,
			},
		)
		return pod, nil
	})
	if err != nil || must.ResourceVersion == nil {
		return err
	}
	obj, err := e.Object()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		must.ResourceVersion = &pod.ResourceVersion
	}
	return nil
}

// needsBudget reports whether a pod's eviction counts against a disruption budget. It does not if the pod is finished,
// not started, or being deleted already.
func needsBudget(pod *corev1.Pod) bool {
	return !isFinishedOrDeleting(pod) && pod.Status.Phase != corev1.PodPending
}

// isFinishedOrDeleting reports whether a pod is finished or being deleted.
func isFinishedOrDeleting(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil
}

// takeDisruption takes one disruption from the budget that covers a pod. If it takes none because the pod is not ready,
// it returns the budget's name.
func (v *eviction) takeDisruption(pod *corev1.Pod) (spares string, err error) {
	found, err := budgetsOf(v.writes.config.Cache, pod)
	if err != nil || len(found) == 0 {
		return "", err
	}
	if len(found) > 1 {
		return "", &apierrors.StatusError{
			ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not " +
					"support."},
		}
	}
	budget := found[0]
	if !isPodReady(pod) &&
		(allowsUnhealthy(budget) || budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy &&
			budget.Status.DesiredHealthy > 0) {
		return budget.Name, nil // the pod is not among the healthy pods that the budget counts
	}
	ctx := v.q.HTTP.Context()
	w, one, err := v.writes.newInnerWrite(ctx, v.q, budgetsGVR, "status", budget.Namespace, budget.Name)
	if err != nil {
		return "", err
	}
	w.dryRun = v.isDryRun()
	_, err = w.modify(ctx, func(live runtime.Object) (runtime.Object, error) {
		stored, ok := live.(*policyv1.PodDisruptionBudget)
		if !ok {
			return nil, apierrors.NewNotFound(one.GroupResource(), one.Name)
		}
		return recordDisruption(stored, pod, v.writes.config.Now())
	})
	return "", err
}

// recordDisruption returns a budget after an eviction, or an error if the budget does not allow it.
func recordDisruption(
	stored *policyv1.PodDisruptionBudget,
	pod *corev1.Pod,
	now time.Time,
) (*policyv1.PodDisruptionBudget, error) {
	if stored.Status.ObservedGeneration < stored.Generation {
		return nil, budgetBusyError(stored.Name)
	}
	if len(stored.Status.DisruptedPods) > maxDisrupted {
		return nil, apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), stored.Name, errors.New(
			"DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	}
	if stored.Status.DisruptionsAllowed <= 0 {
		return nil, evictionRefusal(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			stored.Name, stored.Status.DesiredHealthy, stored.Status.CurrentHealthy), 0)
	}
	next := stored.DeepCopy()
	if next.Status.DisruptionsAllowed--; next.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(
			&next.Status.Conditions,
			metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
				Reason: policyv1.InsufficientPodsReason, ObservedGeneration: next.Status.ObservedGeneration,
				LastTransitionTime: metav1.NewTime(now)},
		)
	}
	if next.Status.DisruptedPods == nil {
		next.Status.DisruptedPods = map[string]metav1.Time{}
	}
	next.Status.DisruptedPods[pod.Name] = metav1.Time{Time: now}
	return next, nil
}

// budgetBusyError returns the refusal that makes a client retry soon.
func budgetBusyError(budget string) error {
	return evictionRefusal(fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget), 10)
}

func evictionRefusal(cause string, retry int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retry)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// budgetsOf returns the disruption budgets that cover a pod.
func budgetsOf(c *cache.Cache, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	// list before asking for unreadable objects, so that none is missed
	list := c.Objects().List(budgetsGVR.GroupResource(), pod.Namespace)
	if all := c.Resource(budgetsGVR.GroupResource()); all != nil {
		if err := all.ReadError(pod.Namespace + "/"); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf(
				"whether a disruption budget forbids the eviction is not known: %w", err))
		}
	}
	var found []*policyv1.PodDisruptionBudget
	for _, obj := range list {
		budget, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("read the selector of the disruption budget %s: %w",
				budget.Name, err))
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	return found, nil
}

func isPodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func allowsUnhealthy(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
}
