package announce

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/floating"
)

// addressesAnnotation is the annotation of a lease that lists its holder's addresses.
const addressesAnnotation = "clusterctl.local/addresses"

func (k *leaseKeeper) readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := k.Leases.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, k.lease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the lease %s: %w", k.lease, k.reportError(err))
	}
	return lease, nil
}

// writeLease writes the lease with a holder. It returns errLeaseLost if another client has written the lease in the
// meantime.
func (k *leaseKeeper) writeLease(
	ctx context.Context,
	lease *coordinationv1.Lease,
	holder string,
	d Duty,
) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	next := floating.WithHolder(lease, k.lease, holder, leaseTime)
	next.Annotations = map[string]string{addressesAnnotation: formatAddresses(d.Addresses)}
	leases := k.Leases.CoordinationV1().Leases(metav1.NamespaceSystem)
	var err error
	if lease == nil {
		next, err = leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		next, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return nil, errLeaseLost
	case err != nil:
		return nil, fmt.Errorf("write the lease %s: %w", k.lease, k.reportError(err))
	}
	return next, nil
}

func (k *leaseKeeper) reportError(err error) error {
	if k.OnLeaseError != nil {
		return k.OnLeaseError(err)
	}
	return err
}

// formatAddresses returns the text of the annotation. It names only the first addresses if there are many.
func formatAddresses(addresses []netip.Addr) string {
	const maximum = 20
	var texts []string
	for _, a := range addresses[:min(maximum, len(addresses))] {
		texts = append(texts, a.String())
	}
	if more := len(addresses) - maximum; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
