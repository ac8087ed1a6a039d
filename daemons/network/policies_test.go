package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	runtimego "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/api/admitpod"
	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/kube/kubernetes/fake"
)

// fakeTable simulates a table in the kernel.
type fakeTable struct {
	mu      sync.Mutex
	text    string
	applied int
	flushed bool // it was flushed
	err     error
	changed chan struct{}
}

func (k *fakeTable) Apply(t *nft.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	t.MarkApplied()
	k.text, k.flushed = t.Text(), false
	k.applied++
	select {
	case k.changed <- struct{}{}:
	default:
	}
	return nil
}

func (k *fakeTable) IsIntact(*nft.Table, bool) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.flushed, nil
}

func (k *fakeTable) Invalidate() {}

func (k *fakeTable) state() (string, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text, k.applied
}

// testEnforcer is a daemon with a fake API client and a simulated kernel.
type testEnforcer struct {
	t      *testing.T
	client *fake.Clientset
	kernel *fakeTable
	p      *policyEnforcer
	socket string
	stop   func()
}

// newStoppedEnforcer returns a world whose daemon was not started.
func newStoppedEnforcer(t *testing.T, objects ...runtime.Object) *testEnforcer {
	return &testEnforcer{
		t:      t,
		client: fake.NewClientset(objects...),
		kernel: &fakeTable{changed: make(chan struct{}, 1)},
		socket: filepath.Join(t.TempDir(), "s"),
	}
}

func newTestEnforcer(t *testing.T, objects ...runtime.Object) *testEnforcer {
	w := newStoppedEnforcer(t, objects...)
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts a daemon that does not know its machine yet.
func (w *testEnforcer) start() {
	w.p = newPolicyEnforcer(w.client, w.client, "n1", slog.New(slog.DiscardHandler),
		func() tableWriter { return w.kernel })
	w.p.admitted.file = w.socket + ".pods"
	if err := w.p.admitted.load(); err != nil {
		w.t.Fatal(err)
	}
	ln, err := openSocket(w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.p.admitted.serve(ctx, ln, slog.New(slog.DiscardHandler)) })
	running.Go(func() {
		if err := w.p.run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
}

func (w *testEnforcer) setMachine() {
	w.p.pending.setMachine(
		policy.Machine{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Links: []string{"kpod"}},
	)
}

// waitUntil waits until the kernel's table meets a condition.
func (w *testEnforcer) waitUntil(what string, matches func(text string) bool) {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		text, _ := w.kernel.state()
		if matches(text) {
			return
		}
		select {
		case <-w.kernel.changed:
		case <-deadline:
			w.t.Fatalf("%s: not in\n%s", what, text)
		}
	}
}

// waitUntilReady waits until the daemon reports that its rules are in effect, which it does after it wrote them.
func (w *testEnforcer) waitUntilReady() {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for w.p.checkReady() != nil {
		if time.Now().After(deadline) {
			w.t.Fatal(w.p.checkReady())
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *testEnforcer) admit(p *corev1.Pod, ips ...string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Second)
	defer cancel()
	return admitpod.Admit(ctx, w.socket,
		admitpod.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, IPs: ips})
}

func newPod(name string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      name,
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// newFromPodsPolicy returns a policy that accepts packets from pods with the label from to pods with the label to.
func newFromPodsPolicy(name, to, from string) *networkingv1.NetworkPolicy {
	peer := networkingv1.NetworkPolicyPeer{
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": from}},
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": to}},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}},
		},
	}
}

func groupName(p *networkingv1.NetworkPolicy) string { return peers.GroupsOf(p)[0].Name() }

func sliceOf(p *networkingv1.NetworkPolicy, name string, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: peers.Namespace, Name: name,
			Labels: map[string]string{peers.Label: groupName(p), discoveryv1.LabelManagedBy: peers.Manager}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

// hasRules reports whether an address belongs to a pod with rules.
func hasRules(text, address string) bool {
	return slices.Contains(setLines(text, "set known-pods"), address)
}

// setLines returns the lines of a set in the text of a table.
func setLines(text, name string) (lines []string) {
	_, rest, _ := strings.Cut(text, "  "+name+" {\n")
	body, _, _ := strings.Cut(rest, "  }\n")
	for line := range strings.Lines(body) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func hasIngressChain(text, address string) bool {
	return slices.ContainsFunc(setLines(text, "map ingress-pods"),
		func(l string) bool { return strings.HasPrefix(l, address+" : goto ") })
}

func TestRulesStayUntilAllInputsAreKnown(t *testing.T) {
	policy := newFromPodsPolicy("a", "web", "client")
	held := make(chan struct{})
	w := newStoppedEnforcer(t, newPod("web", "10.1.0.2"), policy, sliceOf(policy, "s", "10.2.0.9"))
	requested := make(chan struct{}, 100)
	w.client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		requested <- struct{}{}
		<-held
		return false, nil, nil
	})
	w.start()
	defer func() { w.stop() }()
	w.setMachine()
	<-requested // the groups are known, but not their addresses
	if err := w.p.checkReady(); err == nil {
		t.Error("it is ready without knowing the peers")
	}
	if text, applied := w.kernel.state(); applied > 0 {
		t.Fatalf("the kernel was given\n%s", text)
	}
	close(held)
	w.waitUntil("the pod with its peers", func(text string) bool {
		return hasRules(text, "10.1.0.2") && hasIngressChain(text, "10.1.0.2") &&
			slices.Contains(setLines(text, "set "+groupName(policy)), "10.2.0.9")
	})
	w.waitUntilReady()
}

func TestForeignSlicesAreNoPeers(t *testing.T) {
	policy := newFromPodsPolicy("a", "web", "client")
	theirs := sliceOf(policy, "theirs", "10.2.0.66")
	theirs.Labels[discoveryv1.LabelManagedBy] = "somebody"
	w := newTestEnforcer(t, newPod("web", "10.1.0.2"), policy, theirs, sliceOf(policy, "ours", "10.2.0.9"))
	w.setMachine()
	w.waitUntil("the pod", func(text string) bool { return hasIngressChain(text, "10.1.0.2") })
	if text, _ := w.kernel.state(); !slices.Equal(setLines(text, "set "+groupName(policy)), []string{"10.2.0.9"}) {
		t.Errorf("the peers are\n%s", text)
	}
}

func TestAPodIsAdmittedOnceItsRulesAreInEffect(t *testing.T) {
	policy := newFromPodsPolicy("a", "web", "client")
	web := newPod("web")
	w := newTestEnforcer(t, web, policy)
	w.setMachine()
	if err := w.admit(web, "10.1.0.2"); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.kernel.state(); !hasRules(text, "10.1.0.2") || !hasIngressChain(text, "10.1.0.2") {
		t.Fatalf("admitted without its rules:\n%s", text)
	}
	if err := w.admit(web, "10.1.0.2"); err != nil { // the kubelet repeats the request
		t.Fatal(err)
	}
	// The pod's status lacks the address when the daemon restarts.
	w.stop()
	w.start()
	w.setMachine()
	w.waitUntil("the pod after a restart",
		func(text string) bool { _, n := w.kernel.state(); return n > 1 && hasIngressChain(text, "10.1.0.2") })
	// A new sandbox has another address.
	if err := w.admit(web, "10.1.0.3"); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.kernel.state(); hasRules(text, "10.1.0.2") || !hasIngressChain(text, "10.1.0.3") {
		t.Errorf("after its address has changed:\n%s", text)
	}
	// Another pod gets the address of a pod that still exists in the API.
	next := newPod("next")
	if _, err := w.client.CoreV1().Pods("shop").Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.admit(next, "10.1.0.3"); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.kernel.state(); !hasRules(text, "10.1.0.3") || hasIngressChain(text, "10.1.0.3") {
		t.Errorf("the address of a new pod leads to the rules of the former one:\n%s", text)
	}
	if err := w.client.CoreV1().Pods("shop").Delete(t.Context(), "next", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.client.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("no pods", func(text string) bool { return !hasRules(text, "10.1.0.3") })
}

func TestAnEndedPodIsRemoved(t *testing.T) {
	web := newPod("web")
	w := newTestEnforcer(t, web)
	w.setMachine()
	if err := w.admit(web, "10.1.0.2"); err != nil {
		t.Fatal(err)
	}
	web = web.DeepCopy()
	web.Status.Phase = corev1.PodSucceeded
	if _, err := w.client.CoreV1().Pods("shop").UpdateStatus(t.Context(), web, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("the pod has gone", func(text string) bool { return !hasRules(text, "10.1.0.2") })
}

func TestStaticAndHostNetworkPodsAreAdmitted(t *testing.T) {
	mirror := newPod("static")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "the-kubelets"}
	host := newPod("host")
	host.Spec.HostNetwork = true
	w := newTestEnforcer(t, mirror, host)
	w.setMachine()
	mirror = mirror.DeepCopy()
	mirror.UID = "the-kubelets"
	for p, ip := range map[*corev1.Pod]string{mirror: "10.1.0.4", host: "192.0.2.1"} {
		if err := w.admit(p, ip); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	if text, _ := w.kernel.state(); !hasRules(text, "10.1.0.4") || hasRules(text, "192.0.2.1") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestAnUnknownPodIsNotAdmitted(t *testing.T) {
	a := admissions{byUID: map[string]*admission{}, changed: func(string) {}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.request(ctx, admitpod.Pod{UID: "u", Namespace: "shop", Name: "web", IPs: []string{"10.1.0.2"}})
	if err == nil || !strings.Contains(err.Error(), "has not heard of the pod") {
		t.Error(err)
	}
	if len(a.byUID) > 0 {
		t.Error("it is remembered")
	}
	for _, p := range []admitpod.Pod{{}, {UID: "u", Namespace: "shop", Name: "web"},
		{UID: "u", Namespace: "shop", Name: "web", IPs: []string{"x"}}} {
		if err := a.request(t.Context(), p); err == nil {
			t.Errorf("%+v is a pod", p)
		}
	}
}

func TestRemovedRulesAreRestored(t *testing.T) {
	w := newTestEnforcer(t, newPod("web", "10.1.0.2"))
	w.setMachine()
	w.waitUntil("the pod", func(text string) bool { return hasRules(text, "10.1.0.2") })
	w.kernel.mu.Lock()
	w.kernel.text, w.kernel.flushed = "", true
	w.kernel.mu.Unlock()
	w.waitUntil("the pod again", func(text string) bool { return hasRules(text, "10.1.0.2") })
}

func TestAPodIsNotAdmittedWhileTheKernelRejectsTheRules(t *testing.T) {
	web := newPod("web")
	w := newTestEnforcer(t, web)
	w.kernel.err = fmt.Errorf("no memory")
	w.setMachine()
	ctx, cancel := context.WithCancel(t.Context())
	requested := make(chan error, 1)
	go func() {
		requested <- w.p.admitted.request(ctx,
			admitpod.Pod{UID: string(web.UID), Namespace: web.Namespace, Name: web.Name, IPs: []string{"10.1.0.2"}})
	}()
	for w.p.admitted.find(string(web.UID), []string{string(web.UID)}) == nil {
		runtimego.Gosched()
	}
	select {
	case err := <-requested:
		t.Fatalf("answered: %v", err)
	default:
	}
	w.kernel.mu.Lock()
	w.kernel.err = nil
	w.kernel.mu.Unlock()
	if err := <-requested; err != nil {
		t.Error(err)
	}
	cancel()
}

// New groups get additional watches. When there are too many, one watch replaces them.
func TestNeededGroupsAreWatched(t *testing.T) {
	w := newTestEnforcer(t)
	w.setMachine()
	w.waitUntil("the empty table", func(text string) bool { return text != "" })
	var all []*networkingv1.NetworkPolicy
	for i := range 3 * maxWatches {
		name := fmt.Sprint("p", i)
		p := newFromPodsPolicy(name, name, "client"+name)
		all = append(all, p)
		if _, err := w.client.DiscoveryV1().EndpointSlices(peers.Namespace).Create(t.Context(),
			sliceOf(p, name, fmt.Sprintf("10.2.0.%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod(name, fmt.Sprintf("10.1.0.%d", i)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.NetworkingV1().NetworkPolicies("shop").Create(t.Context(), p,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(name, func(text string) bool {
			return hasIngressChain(text, fmt.Sprintf("10.1.0.%d", i)) &&
				slices.Contains(setLines(text, "set "+groupName(p)), fmt.Sprintf("10.2.0.%d", i))
		})
	}
	for i, p := range all {
		if text, _ := w.kernel.state(); !slices.Contains(setLines(text, "set "+groupName(p)),
			fmt.Sprintf("10.2.0.%d", i)) {
			t.Errorf("the peers of %s are no more:\n%s", p.Name, text)
		}
	}
	// Changes of a slice arrive through the watch that has it.
	s := sliceOf(all[0], "p0", "10.2.1.1", "10.2.1.2")
	if _, err := w.client.DiscoveryV1().EndpointSlices(peers.Namespace).Update(t.Context(), s,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("other peers", func(text string) bool {
		return slices.Equal(setLines(text, "set "+groupName(all[0])), []string{"10.2.1.1", "10.2.1.2"})
	})
	for _, p := range all {
		if err := w.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), p.Name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.waitUntil("no policies", func(text string) bool {
		return len(setLines(text, "map ingress-pods")) == 0 && !strings.Contains(text, "set peers-")
	})
}
