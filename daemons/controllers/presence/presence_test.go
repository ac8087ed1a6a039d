package presence

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api/replica"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

type testCluster struct {
	t *testing.T
	*controller
	client *fake.Clientset
	clock  *clocktesting.FakeClock
}

func newTestCluster(t *testing.T) *testCluster {
	client, clock := fake.NewClientset(), clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	p, ok := New(loop.Context{Client: client, Log: slog.New(slog.DiscardHandler), Clock: clock}).(*controller)
	if !ok {
		t.Fatal("New returned another controller")
	}
	return &testCluster{t, p, client, clock}
}

// startReplica creates the lease and the slices of the replica on a machine.
func (w *testCluster) startReplica(daemon, machine string, seconds int32) {
	w.t.Helper()
	for _, name := range []string{replica.Lease(daemon, machine), replica.Slices(daemon, machine)[2]} {
		if _, err := w.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(w.t.Context(),
			&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: name,
					Labels: map[string]string{discoveryv1.LabelServiceName: daemon}}},
			metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(w.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: replica.Lease(daemon, machine),
			Labels: map[string]string{replica.LeaseLabel(replica.Manager(daemon)): daemon}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &machine, LeaseDurationSeconds: &seconds,
			RenewTime: ptr.To(metav1.NewMicroTime(w.clock.Now()))},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCluster) renewLeases(daemon string, machines ...string) {
	w.t.Helper()
	leases := w.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	for _, machine := range machines {
		lease, err := leases.Get(w.t.Context(), replica.Lease(daemon, machine), metav1.GetOptions{})
		if err == nil {
			lease = lease.DeepCopy()
			lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(w.clock.Now()))
			_, err = leases.Update(w.t.Context(), lease, metav1.UpdateOptions{})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// advance advances the clock by d, while the given replicas renew every five seconds.
func (w *testCluster) advance(d time.Duration, daemon string, alive ...string) {
	w.t.Helper()
	for range int(d / minReadInterval) {
		w.clock.Step(minReadInterval)
		w.renewLeases(daemon, alive...)
		_ = w.checkService(w.t.Context(), w.services[daemon]) // failures are part of the tests
	}
}

func (w *testCluster) slices() string {
	w.t.Helper()
	list, err := w.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestEndpointsOfSilentReplicasAreRemoved checks that the endpoints of a dead machine are removed.
// Proves S31.
func TestEndpointsOfSilentReplicasAreRemoved(t *testing.T) {
	w := newTestCluster(t)
	for _, machine := range []string{"a", "b", "a.b"} {
		w.startReplica(replica.DNS, machine, 20)
	}
	all := w.slices()
	w.advance(2*time.Minute, replica.DNS, "a", "b", "a.b")
	if got := w.slices(); got != all {
		t.Errorf("while all replicas are alive, the slices are %s", got)
	}
	w.advance(20*time.Second, replica.DNS, "a", "a.b")
	if got := w.slices(); got != all {
		t.Errorf("after the lease duration of b, the slices are %s", got)
	}
	w.advance(15*time.Second, replica.DNS, "a", "a.b")
	if got, want := w.slices(), "kube-dns-a kube-dns-a.b kube-dns.ipv6-a kube-dns.ipv6-a.b"; got != want {
		t.Errorf("after b is silent, the slices are %s", got)
	}
	w.advance(2*time.Minute, replica.DNS)
	if got, want := w.slices(), "kube-dns-a kube-dns-a.b kube-dns.ipv6-a kube-dns.ipv6-a.b"; got != want {
		t.Errorf("after all replicas are silent, the slices are %s", got)
	}
}

// TestLongLeasesDelayRemoval checks that a replica that renews rarely is not removed too early, and that the wait is
// limited.
func TestLongLeasesDelayRemoval(t *testing.T) {
	w := newTestCluster(t)
	w.startReplica(replica.Ingress, "a", 120)
	w.startReplica(replica.Ingress, "b", 1<<30)
	w.startReplica(replica.Ingress, "c", 20)
	w.advance(2*time.Minute, replica.Ingress, "c")
	if got := w.slices(); !strings.Contains(got, "kube-ingress-a ") {
		t.Errorf("after two minutes, the slices are %s", got)
	}
	w.advance(time.Minute, replica.Ingress, "c")
	if got := w.slices(); strings.Contains(got, "kube-ingress-a ") || !strings.Contains(got, "kube-ingress-b ") {
		t.Errorf("after three minutes, the slices are %s", got)
	}
	w.advance(10*time.Minute, replica.Ingress, "c")
	if got := w.slices(); strings.Contains(got, "kube-ingress-b ") {
		t.Errorf("after thirteen minutes, the slices are %s", got)
	}
}

// TestOutagesDoNotCountAsSilence checks that neither an outage of the API server nor a pause of the controller counts
// as silence.
func TestOutagesDoNotCountAsSilence(t *testing.T) {
	w := newTestCluster(t)
	w.startReplica(replica.DNS, "a", 20)
	w.startReplica(replica.DNS, "b", 20)
	w.advance(20*time.Second, replica.DNS, "a", "b")
	all, down := w.slices(), true
	w.client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down, nil, errDown{}
	})
	w.advance(5*time.Minute, replica.DNS)
	down = false
	w.advance(10*time.Second, replica.DNS)
	w.clock.Step(time.Hour)
	w.advance(5*time.Second, replica.DNS, "a", "b")
	if got := w.slices(); got != all {
		t.Errorf("after an outage, the slices are %s", got)
	}
}

type errDown struct{}

func (errDown) Error() string { return "the API server does not answer" }
