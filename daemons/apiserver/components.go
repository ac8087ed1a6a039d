package apiserver

import (
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/request"
)

// componentStatuses answers requests for componentstatuses, which old runbooks use. It does not call the daemons: a
// daemon counts as healthy while it holds its lease.
type componentStatuses struct {
	objects    api.Objects
	reads      *read.Reads
	checkStore func() error
	now        func() time.Time
}

// serve answers a request.
func (c *componentStatuses) serve(q *request.Request) error {
	if _, err := c.reads.WaitForVersion(q.HTTP.Context(), q.Query.Get("resourceVersion")); err != nil {
		return err
	}
	var all []corev1.ComponentStatus
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		all = append(all, componentStatus(name, c.checkLeaseHeld(name)))
	}
	all = append(all, componentStatus("etcd-0", c.checkStore()))
	gvk := q.Served.GVK
	if q.Verb == "get" {
		for i := range all {
			if all[i].Name == q.Name {
				return q.Media.WriteRow(q.Answer, http.StatusOK, gvk, &all[i], componentColumns(q),
					componentRow(q, &all[i]))
			}
		}
		return apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	var rows [][]any
	for i := range all {
		rows = append(rows, componentRow(q, &all[i]))
	}
	gvk.Kind += "List"
	return q.Media.WriteRow(q.Answer, http.StatusOK, gvk, &corev1.ComponentStatusList{Items: all},
		componentColumns(q), rows...)
}

func componentColumns(q *request.Request) []metav1.TableColumnDefinition {
	return append([]metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}, q.Served.Columns...)
}

func componentRow(q *request.Request, c *corev1.ComponentStatus) []any {
	return append([]any{c.Name}, q.Served.Row(c)...)
}

func componentStatus(name string, err error) corev1.ComponentStatus {
	c := corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name},
		Conditions: []corev1.ComponentCondition{
			{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"},
		}}
	if err != nil {
		c.Conditions[0].Status, c.Conditions[0].Message, c.Conditions[0].Error = corev1.ConditionFalse, "", err.Error()
	}
	return c
}

var leasesResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// checkLeaseHeld returns an error unless a daemon holds its lease now.
func (c *componentStatuses) checkLeaseHeld(name string) error {
	obj, ok := c.objects.Get(leasesResource, metav1.NamespaceSystem, name)
	lease, isType := obj.(*coordinationv1.Lease)
	if !ok || !isType || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return fmt.Errorf("no process holds the lease %s", name)
	}
	until := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	if c.now().After(until) {
		return fmt.Errorf("the lease %s was last renewed at %s", name, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return nil
}
