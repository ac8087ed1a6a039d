package dev

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// silentNode creates a node that reports once and then never again.
func silentNode(t *testing.T, name string) {
	t.Helper()
	n := must[*corev1.Node](t)(
		sharedClient.CoreV1().
			Nodes().
			Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() {
		_ = sharedClient.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	now := metav1.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &n.Name, LeaseDurationSeconds: ptr.To[int32](3), RenewTime: ptr.To(metav1.NowMicro())}}
	must[*coordinationv1.Lease](t)(sharedClient.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(),
		lease, metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = sharedClient.CoordinationV1().
			Leases(corev1.NamespaceNodeLease).
			Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	status := corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
		LastTransitionTime: now}}}}
	waitFor(t, "the node's report", func(ctx context.Context) (bool, any) {
		latest, err := sharedClient.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		latest.Status.Conditions = status.Status.Conditions
		_, err = sharedClient.CoreV1().Nodes().UpdateStatus(ctx, latest, metav1.UpdateOptions{})
		return err == nil, err
	})
}

// createPodOn creates a ready pod on a node, as with the status of that node's kubelet.
func createPodOn(t *testing.T, ns, name, node string, tolerations ...corev1.Toleration) {
	t.Helper()
	spec := podSpec()
	spec.NodeName, spec.Tolerations = node, tolerations
	pod := must[*corev1.Pod](t)(
		sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
				metav1.CreateOptions{}),
	)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		},
	}
	must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))
}

func hasTaint(n *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}

// Proves S04.
func TestSilentNodesAreTaintedAndEvictedUntilTheyReturn(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	silentNode(t, "silent")
	unreachable := corev1.Toleration{
		Key:      corev1.TaintNodeUnreachable,
		Operator: corev1.TolerationOpExists,
		Effect:   corev1.TaintEffectNoExecute,
	}
	soon, ever := unreachable, unreachable
	soon.TolerationSeconds = ptr.To[int64](1)
	createPodOn(t, ns, "soon", "silent", soon)
	createPodOn(t, ns, "ever", "silent", ever)
	createPodOn(t, ns, "usual", "silent")
	waitFor(t, "the node to be taken for lost", func(ctx context.Context) (bool, any) {
		n := must[*corev1.Node](t)(sharedClient.CoreV1().Nodes().Get(ctx, "silent", metav1.GetOptions{}))
		unknown := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown && c.Reason == "NodeStatusUnknown"
		})
		return unknown && hasTaint(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute) &&
			hasTaint(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), n.Spec.Taints
	})
	waitFor(t, "its pods to be not ready", func(ctx context.Context) (bool, any) {
		pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(ctx, "ever", metav1.GetOptions{}))
		return !isReady(pod), pod.Status.Conditions
	})
	waitFor(t, "the pod whose toleration ran out to be evicted", func(ctx context.Context) (bool, any) {
		pod, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "soon", metav1.GetOptions{})
		if err != nil {
			return isGone(pod, err)
		}
		return pod.DeletionTimestamp != nil, pod.Status.Conditions
	})
	for _, name := range []string{"ever", "usual"} { // tolerations without an end, and with the default of five minutes
		if pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), name,
			metav1.GetOptions{})); pod.DeletionTimestamp != nil {
			t.Errorf("pod %s is evicted", name)
		}
	}
	if ns := must[*corev1.NodeList](t)(sharedClient.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})); true {
		for _, n := range ns.Items {
			if strings.HasPrefix(n.Name, "node-") &&
				hasTaint(&n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute) {
				t.Errorf("node %s is taken for lost too", n.Name)
			}
		}
	}
	// The node reports again: the lease is renewed and Ready is true.
	lease := must[*coordinationv1.Lease](t)(
		sharedClient.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "silent", metav1.GetOptions{}),
	)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	must[*coordinationv1.Lease](t)(sharedClient.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(t.Context(),
		lease, metav1.UpdateOptions{}))
	patch := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"` + time.Now().
		UTC().
		Format(time.RFC3339) +
		`"}]}}`
	if _, err := sharedClient.CoreV1().Nodes().Patch(t.Context(), "silent", types.StrategicMergePatchType,
		[]byte(patch),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the taints to go", func(ctx context.Context) (bool, any) {
		n := must[*corev1.Node](t)(sharedClient.CoreV1().Nodes().Get(ctx, "silent", metav1.GetOptions{}))
		return !slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }), n.Spec.Taints
	})
}

// Proves S21.
func TestPodsOfDeletedNodesAreCollected(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	silentNode(t, "removed")
	createPodOn(t, ns, "lost", "removed")
	if err := sharedClient.CoreV1().Nodes().Delete(t.Context(), "removed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().Pods(ns).Get(ctx, "lost", metav1.GetOptions{}))
	})
}

// Proves S04.
func TestUntoleratedTaintsEvictAndDrainsMovePods(t *testing.T) {
	ns := createNamespace(t)
	createDeployment(t, ns, 3, nil)
	awaitRollout(t, ns)
	node := podsOf(t, ns, "app=web")[0].Spec.NodeName
	put := func(taints string) {
		if _, err := sharedClient.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(`[{"key":"example.com/away","effect":"NoExecute"}]`)
	defer put(`[]`)
	waitFor(t, "all pods to run elsewhere", func(context.Context) (bool, any) {
		pods := podsOf(t, ns, "app=web")
		ready := 0
		for _, pod := range pods {
			if pod.Spec.NodeName != node && isReady(&pod) {
				ready++
			}
		}
		return ready == 3 && len(pods) == 3, len(pods)
	})
}

// Proves S04.
func TestNodesGetTheirOwnPodNetworks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"extra-1", "extra-2", "extra-3", "extra-4"} {
		must[*corev1.Node](t)(
			sharedClient.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
				// The zone is separate, so that these nodes do not count as an outage of the others.
				Labels: map[string]string{corev1.LabelTopologyZone: "extra"}}}, metav1.CreateOptions{}),
		)
		t.Cleanup(func() {
			_ = sharedClient.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
	}
	waitFor(t, "a network for each", func(ctx context.Context) (bool, any) {
		var given []netip.Prefix
		for _, n := range must[*corev1.NodeList](t)(sharedClient.CoreV1().Nodes().List(ctx,
			metav1.ListOptions{})).Items {
			if n.Spec.PodCIDR == "" {
				return false, n.Name
			}
			p := netip.MustParsePrefix(n.Spec.PodCIDR)
			for _, other := range given {
				if p.Overlaps(other) {
					t.Fatalf("%s overlaps with %s", p, other)
				}
			}
			given = append(given, p)
		}
		return len(given) >= 7, given
	})
}

// The nodes of a development cluster have no logs, and the error states this.
func TestLogsOfHollowNodesAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 1, nil)
	awaitRollout(t, ns)
	stream, err := sharedClient.CoreV1().
		Pods(ns).
		GetLogs(podsOf(t, ns, "")[0].Name, &corev1.PodLogOptions{}).
		Stream(t.Context())
	if err == nil {
		_ = stream.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "pretended") {
		t.Errorf("logs: %v", err)
	}
}

// Deleted pods on a node that was declared out of service are removed without their kubelet, which will not report.
// Proves S04.
func TestPodsOfOutOfServiceNodesAreReleased(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	name := ns + "-out"
	silentNode(t, name)
	createPodOn(t, ns, "stays", name, corev1.Toleration{Operator: corev1.TolerationOpExists})
	createPodOn(t, ns, "goes", name,
		corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
		corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists})
	if _, err := sharedClient.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().Pods(ns).Get(ctx, "goes", metav1.GetOptions{}))
	})
	if pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "stays",
		metav1.GetOptions{})); pod.DeletionTimestamp != nil {
		t.Error("a pod that tolerates it was deleted")
	}
}
