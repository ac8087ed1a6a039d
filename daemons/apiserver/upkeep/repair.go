package upkeep

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/apiserver/alloc"
)

// repairInterval is how often claims of service addresses are compared with Services. It is upstream's interval.
const repairInterval = 3 * time.Minute

// repairAddresses restores the claims of service addresses if users have changed IPAddress objects.
func (s *Upkeep) repairAddresses(ctx context.Context) error {
	tick := time.NewTicker(repairInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.RepairAddressesAt(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("compare addresses with services", "err", err)
		}
	}
}

func (s *Upkeep) RepairAddressesAt(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, repairInterval)
	defer cancel()
	troubles, err := s.config.Services.Repair(ctx, s.config.Store, now)
	for _, t := range troubles {
		s.config.Log.Warn("address of a service", "service", t.Service.Namespace+"/"+t.Service.Name, "reason", t.Reason,
			"message", t.Message)
		if _, err := s.config.Writes.Ensure(ctx, problemEvent(t, now)); err != nil {
			return fmt.Errorf("say what is wrong with the service %s/%s: %w", t.Service.Namespace, t.Service.Name, err)
		}
	}
	return err
}

func problemEvent(t alloc.Problem, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Service.Namespace,
			Name:      fmt.Sprintf("%s.%x", t.Service.Name, now.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion:      "v1",
			Kind:            "Service",
			Namespace:       t.Service.Namespace,
			Name:            t.Service.Name,
			UID:             t.Service.UID,
			ResourceVersion: t.Service.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: t.Reason, Message: t.Message, Count: 1, FirstTimestamp: at,
		LastTimestamp: at,
		Source: corev1.EventSource{
			Component: "ipallocator-repair-controller",
		}, ReportingController: "ipallocator-repair-controller",
	}
}
