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

	"clusterctl/daemons/apiserver/request"
)

// serveComponentStatuses answers requests for componentstatuses, which old runbooks use. It does not call the daemons:
// a daemon counts as healthy while it holds its lease.
func (s *Server) serveComponentStatuses(q *request.Request) error {
	if _, err := s.reads.WaitForVersion(q.HTTP.Context(), q.Query.Get("resourceVersion")); err != nil {
		return err
	}
	var all []corev1.ComponentStatus
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		all = append(all, componentStatus(name, s.checkLeaseHeld(name)))
	}
	all = append(all, componentStatus("etcd-0", s.upkeep.CheckStore()))
	gvk := q.Served.GVK
	if q.Verb == "get" {
		for i := range all {
			if all[i].Name == q.Name {
				return q.Media.WriteRow(q.Answer, http.StatusOK, gvk, &all[i], s.componentColumns(q),
					s.componentRow(q, &all[i]))
			}
		}
		return apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	var rows [][]any
	for i := range all {
		rows = append(rows, s.componentRow(q, &all[i]))
	}
	gvk.Kind += "List"
	return q.Media.WriteRow(q.Answer, http.StatusOK, gvk, &corev1.ComponentStatusList{Items: all},
		s.componentColumns(q), rows...)
}

func (s *Server) componentColumns(q *request.Request) []metav1.TableColumnDefinition {
	return append([]metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}, q.Served.Columns...)
}

func (s *Server) componentRow(q *request.Request, c *corev1.ComponentStatus) []any {
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
func (s *Server) checkLeaseHeld(name string) error {
	obj, ok := s.Objects().Get(leasesResource, metav1.NamespaceSystem, name)
	lease, is := obj.(*coordinationv1.Lease)
	if !ok || !is || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return fmt.Errorf("no process holds the lease %s", name)
	}
	until := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	if s.options.Now().After(until) {
		return fmt.Errorf("the lease %s was last renewed at %s", name, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return nil
}
