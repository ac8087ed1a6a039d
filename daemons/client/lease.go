package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/kube/kubernetes"
)

// leaseRecord is the content of a Lease.
type leaseRecord struct {
	holder      string // empty if no candidate holds the lease
	duration    time.Duration
	acquired    metav1.Time
	renewed     metav1.Time
	transitions int
}

// leaseLock reads and writes one Lease of kube-system. Only one goroutine uses it at a time.
type leaseLock struct {
	client   kubernetes.Interface
	name     string
	identity string

	lease *coordinationv1.Lease // as last read or written; nil at first
}

// get reads the lease. raw identifies the record: it differs from one record to the next.
func (l *leaseLock) get(ctx context.Context) (record leaseRecord, raw []byte, err error) {
	lease, err := l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return leaseRecord{}, nil, err
	}
	if raw, err = json.Marshal(lease.Spec); err != nil {
		return leaseRecord{}, nil, fmt.Errorf("encode lease %s: %w", l.name, err)
	}
	l.lease = lease
	return recordOf(lease.Spec), raw, nil
}

func (l *leaseLock) create(ctx context.Context, record leaseRecord) error {
	lease, err := l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: l.name}, Spec: record.spec(),
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.lease = lease
	return nil
}

// update writes the lease that was last read or written. It fails with a conflict if the lease has changed since.
func (l *leaseLock) update(ctx context.Context, record leaseRecord) error {
	next := l.lease.DeepCopy()
	next.Spec = record.spec()
	lease, err := l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	l.lease = lease
	return nil
}

func recordOf(spec coordinationv1.LeaseSpec) leaseRecord {
	r := leaseRecord{
		holder:      ptr.Deref(spec.HolderIdentity, ""),
		duration:    time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second,
		transitions: int(ptr.Deref(spec.LeaseTransitions, 0)),
	}
	if spec.AcquireTime != nil {
		r.acquired = metav1.NewTime(spec.AcquireTime.Time)
	}
	if spec.RenewTime != nil {
		r.renewed = metav1.NewTime(spec.RenewTime.Time)
	}
	return r
}

func (r leaseRecord) spec() coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &r.holder,
		LeaseDurationSeconds: ptr.To(int32(r.duration / time.Second)),
		AcquireTime:          &metav1.MicroTime{Time: r.acquired.Time},
		RenewTime:            &metav1.MicroTime{Time: r.renewed.Time},
		LeaseTransitions:     ptr.To(int32(r.transitions)),
	}
}
