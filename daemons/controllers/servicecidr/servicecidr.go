// Package servicecidr sets the Ready condition of ServiceCIDRs. It holds a ServiceCIDR that is being deleted until no
// address is left that only this range contains. The API server allocates the addresses.
package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

// Finalizer holds a ServiceCIDR while there are addresses that no other range contains.
const Finalizer = "networking.k8s.io/service-cidr-finalizer"

type controller struct {
	loop.Context
	loop.Loop
	ranges networkinglisters.ServiceCIDRLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	ranges, addresses := informers.ServiceCIDRs(c.Informers), informers.IPAddresses(c.Informers)
	s := &controller{Context: c, ranges: ranges.Lister()}
	s.Loop = loop.Loop{
		Name:            "service-cidr",
		QueueMetricName: "ipaddresses",
		Context:         c,
		Workers:         1,
		Sync:            s.sync,
		Synced:          []cache.InformerSynced{ranges.Informer().HasSynced, addresses.Informer().HasSynced},
	}
	// A new or deleted range affects those that overlap it.
	c.OnChange(ranges.Informer(), func(_, obj any) {
		if obj != nil {
			s.Add(obj)
		}
		s.enqueueDeleted()
	})
	c.OnChange(addresses.Informer(), func(_, obj any) {
		if obj == nil {
			s.enqueueDeleted()
		}
	})
	return s
}

// enqueueDeleted queues the ranges that are being deleted.
func (s *controller) enqueueDeleted() {
	list, err := s.ranges.List(labels.Everything())
	if err != nil {
		return
	}
	for _, r := range list {
		if r.DeletionTimestamp != nil {
			s.Add(r)
		}
	}
}

func (s *controller) sync(ctx context.Context, name string) error {
	r, err := s.ranges.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	r = r.DeepCopy()
	if r.DeletionTimestamp == nil {
		return s.addFinalizer(ctx, r)
	}
	if !slices.Contains(r.Finalizers, Finalizer) {
		return nil
	}
	// The API server allocates no address from a range that has changed since it was read. Once a range is being
	// deleted, it gets no more addresses. Ask the API server, because the caches may be behind.
	held, err := s.hasExclusiveAddresses(ctx, r)
	if err != nil {
		return err
	}
	if held {
		return s.setReady(
			ctx,
			r,
			metav1.Condition{Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
				Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a " +
					"new ServiceCIDR"},
		)
	}
	r.Finalizers = slices.DeleteFunc(r.Finalizers, func(f string) bool { return f == Finalizer })
	if _, err := s.Client.NetworkingV1().ServiceCIDRs().Update(ctx, r, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer of the ServiceCIDR %s: %w", name, err)
	}
	return nil
}

// addFinalizer adds the finalizer to a range before addresses are allocated from it, and then sets it to ready.
func (s *controller) addFinalizer(ctx context.Context, r *networkingv1.ServiceCIDR) (err error) {
	if !slices.Contains(r.Finalizers, Finalizer) {
		r.Finalizers = append(r.Finalizers, Finalizer)
		if r, err = s.Client.NetworkingV1().ServiceCIDRs().Update(ctx, r, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("hold the ServiceCIDR %s: %w", r.GetName(), err)
		}
	}
	return s.setReady(ctx, r, metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is " +
		"ready"})
}

func (s *controller) setReady(ctx context.Context, r *networkingv1.ServiceCIDR, condition metav1.Condition) error {
	condition.Type, condition.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(s.Now())
	if current := meta.FindStatusCondition(r.Status.Conditions, condition.Type); current != nil &&
		current.Status == condition.Status &&
		current.Reason == condition.Reason {
		return nil
	}
	meta.SetStatusCondition(&r.Status.Conditions, condition)
	if _, err := s.Client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, r, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say whether the ServiceCIDR %s is ready: %w", r.Name, err)
	}
	return nil
}

// hasExclusiveAddresses reports whether there are addresses that only this range contains.
func (s *controller) hasExclusiveAddresses(ctx context.Context, r *networkingv1.ServiceCIDR) (bool, error) {
	ranges, err := s.Client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list the ServiceCIDRs: %w", err)
	}
	others := []netip.Prefix{}
	for i := range ranges.Items {
		// A range without the finalizer may be deleted at any moment, and would leave its addresses without a range.
		if other := &ranges.Items[i]; other.Name != r.Name && other.DeletionTimestamp == nil &&
			slices.Contains(other.Finalizers, Finalizer) {
			others = append(others, prefixes(other)...)
		}
	}
	mine := prefixes(r)
	// Read page by page: there may be as many addresses as services.
	for next := ""; ; {
		list, err := s.Client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{Limit: 1000, Continue: next})
		if err != nil {
			return false, fmt.Errorf("list the addresses of services: %w", err)
		}
		for i := range list.Items {
			if isOnlyIn(list.Items[i].Name, mine, others) {
				return true, nil
			}
		}
		if next = list.Continue; next == "" {
			return false, nil
		}
	}
}

func isOnlyIn(ip string, mine, others []netip.Prefix) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.ContainsFunc(mine, in) && !slices.ContainsFunc(others, in)
}

func prefixes(r *networkingv1.ServiceCIDR) (list []netip.Prefix) {
	for _, cidr := range r.Spec.CIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			list = append(list, p)
		}
	}
	return list
}
