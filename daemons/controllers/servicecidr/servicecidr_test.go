package servicecidr

import (
	"log/slog"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func TestOnlyRangesWithAFinalizerTakeOverAddresses(t *testing.T) {
	cidr := func(name, prefix string, finalizers ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}},
		}
	}
	half := cidr("half", "172.30.0.0/25", Finalizer)
	for name, c := range map[string]struct {
		other *networkingv1.ServiceCIDR
		held  bool
	}{
		"one that may go at once": {cidr("whole", "172.30.0.0/24"), true},
		"one that is held":        {cidr("whole", "172.30.0.0/24", Finalizer), false},
		"one beside it":           {cidr("rest", "172.30.0.128/25", Finalizer), true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(half, c.other,
				&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "172.30.0.9"}})
			s := New(loop.Context{Client: client, Informers: informers.New(client),
				Log: slog.New(slog.DiscardHandler)}).(*controller)
			if held, err := s.hasExclusiveAddresses(t.Context(), half); err != nil || held != c.held {
				t.Errorf("held %v, %v, want %v", held, err, c.held)
			}
		})
	}
}
