package alloc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/store"
)

// managedBy is the label that marks this allocator's own claims.
const managedBy = "ipallocator.k8s.io"

// unclaimedAge is how old the claim of a missing Service must be before it is released.
const unclaimedAge = time.Minute

// A Problem is something about a Service's addresses that Repair found.
type Problem struct {
	Service *corev1.Service
	Reason  string
	Message string
}

// Repair restores claims whose IPAddress a user has deleted, before another Service gets the address. It releases
// claims of deleted Services. It starts from the store's state at the time of the call. It changes nothing for Services
// that cannot be read, and nothing that has changed since it was read.
func (a *Services) Repair(ctx context.Context, s store.Store, now time.Time) ([]Problem, error) {
	if a.addresses == nil || a.services == nil {
		return nil, nil
	}
	if _, err := a.cache.WaitForCurrent(ctx); err != nil {
		return nil, fmt.Errorf("see the present addresses of services: %w", err)
	}
	unreadable := len(a.services.ReadErrors("", 1)) > 0
	var troubles []Problem
	var failed []error
	used := map[string]bool{}
	a.services.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		obj, err := e.Object()
		svc, ok := obj.(*corev1.Service)
		if err != nil || !ok {
			unreadable = true
			return true
		}
		for _, ip := range addressesOf(svc) {
			used[ip] = true
			t, err := a.restoreClaim(ctx, s, svc, e.Revision, ip)
			if err != nil {
				failed = append(failed, err)
			}
			if t.Reason != "" {
				troubles = append(troubles, t)
			}
		}
		return ctx.Err() == nil
	})
	if unreadable || ctx.Err() != nil {
		return troubles, errors.Join(failed...) // which claims are unused is unknown
	}
	a.addresses.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		if !used[e.Key] {
			if err := a.releaseOrphan(ctx, s, e, now); err != nil {
				failed = append(failed, err)
			}
		}
		return ctx.Err() == nil
	})
	return troubles, errors.Join(failed...)
}

// restoreClaim claims a Service's address that has no claim, unless the Service has changed since it was read.
func (a *Services) restoreClaim(
	ctx context.Context,
	s store.Store,
	svc *corev1.Service,
	revision int64,
	ip string,
) (Problem, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return Problem{
			svc,
			"ClusterIPNotValid",
			fmt.Sprintf("Cluster IP %s is not a valid IP; please recreate service", ip),
		}, nil
	}
	if err := a.addresses.ReadError(ip); err != nil {
		return Problem{}, err
	}
	if a.addresses.Get(ip) != nil {
		taken, err := a.isClaimedByOther(ip, svc)
		if taken {
			return Problem{
				svc,
				"ClusterIPAlreadyAllocated",
				fmt.Sprintf("Cluster IP [%s]: %s was assigned to multiple services; please recreate service",
					familyOf(addr), ip),
			}, err
		}
		return Problem{}, err
	}
	txn := store.Txn{
		Guards: []store.Guard{{Key: a.cache.Key(a.services.Kind, svc.Namespace+"/"+svc.Name), Revision: revision}},
	}
	if err := a.claimAddress(svc, ip, addressRange{}, &txn); err != nil {
		return Problem{}, err
	}
	r, err := s.Commit(ctx, txn)
	if err != nil || !r.Done {
		return Problem{}, err // after a change, the next run checks it again
	}
	return Problem{
		svc,
		"ClusterIPNotAllocated",
		fmt.Sprintf("Cluster IP [%s]: %s is not allocated; repairing", familyOf(addr), ip),
	}, nil
}

// releaseOrphan deletes a claim of this allocator whose Service does not exist, unless that has changed since.
func (a *Services) releaseOrphan(ctx context.Context, s store.Store, e *cache.Entry, now time.Time) error {
	obj, err := e.Object()
	if err != nil {
		return nil // it stays; its read error is reported elsewhere
	}
	claim, ok := obj.(*networkingv1.IPAddress)
	if !ok || claim.Labels[networkingv1.LabelManagedBy] != managedBy || claim.Spec.ParentRef == nil ||
		now.Sub(claim.CreationTimestamp.Time) < unclaimedAge {
		return nil
	}
	ref := claim.Spec.ParentRef
	if ref.Group != "" || ref.Resource != "services" {
		return nil
	}
	key := ref.Namespace + "/" + ref.Name
	service := store.Guard{Key: a.cache.Key(a.services.Kind, key)}
	if current := a.services.Get(key); current != nil { // it has other addresses now
		service.Revision = current.Revision
	}
	own := a.addressKey(e.Key)
	_, err = s.Commit(ctx,
		store.Txn{Guards: []store.Guard{service, {Key: own, Revision: e.Revision}}, Deletes: []string{own}})
	if err != nil {
		return fmt.Errorf("give back the address %s of %s, which is gone: %w", e.Key, key, err)
	}
	return nil
}
