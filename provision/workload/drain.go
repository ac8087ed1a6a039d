package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/inventory"
	"clusterctl/provision/plan"
)

var (
	nodes          = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMaps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// unmountTimeout is how long a kubelet may take to clean up pods whose containers have all ended.
const unmountTimeout = time.Minute

// IsCordoned reports whether a node is unschedulable. It returns false if the node does not exist.
func (l nodeClient) IsCordoned(ctx context.Context, node string) (bool, error) {
	live, err := l.dynamic.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read node %s: %w", node, err)
	}
	cordoned, _, _ := unstructured.NestedBool(live.Object, "spec", "unschedulable")
	return cordoned, nil
}

// Cordon makes a node unschedulable.
func (l nodeClient) Cordon(ctx context.Context, node string) error {
	err := l.setUnschedulable(ctx, node, "true")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cordon %s: %w", node, err)
	}
	return nil
}

// Uncordon makes a node schedulable again.
func (l nodeClient) Uncordon(ctx context.Context, node string) error {
	err := l.setUnschedulable(ctx, node, "null")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (l nodeClient) setUnschedulable(ctx context.Context, node, unschedulable string) error {
	_, err := l.dynamic.Resource(nodes).
		Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"unschedulable":`+unschedulable+`}}`), metav1.PatchOptions{FieldManager: Manager})
	return err
}

// Drain cordons a node and evicts its pods as fast as their disruption budgets allow. Pods of daemon sets and static
// pods stay, as with kubectl drain. A pod counts as gone when its object is gone, because the kubelet reports its end
// before it unmounts its volumes.
func (l nodeClient) Drain(ctx context.Context, node string, report func(string)) error {
	err := l.setUnschedulable(ctx, node, "true")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cordon %s: %w", node, err)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var since time.Time // since when no pod has been running
	reported := ""
	for {
		left, err := l.evict(ctx, node)
		if err != nil {
			return err
		}
		switch {
		case left.running+left.uncleaned == 0:
			return nil
		case left.running > left.ending:
			since = time.Time{}
		case left.running > 0:
			since = time.Time{}
			if isGone, err := l.isSilentNode(ctx, node); err == nil && isGone {
				report("its kubelet is gone, and nothing can end " + plan.Number(left.running, "pod"))
				return nil
			}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > unmountTimeout:
			return nil // the rest is unmounted when the machine is cleaned
		}
		if text := plan.Number(left.running+left.uncleaned, "pod") + " to go: " + left.reason; text != reported {
			reported = text
			report(text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s still on %s: %s", plan.Number(left.running+left.uncleaned, "pod"), node, left.reason)
		}
	}
}

// isSilentNode reports whether a node no longer exists, or is no longer ready for lack of a heartbeat.
func (l nodeClient) isSilentNode(ctx context.Context, node string) (bool, error) {
	ready, err := l.Nodes(ctx)
	current, ok := ready[node]
	return !ok || current == string(corev1.ConditionUnknown), err
}

// podCounts counts a node's pods that must go.
type podCounts struct {
	running   int
	ending    int // those of running that are being deleted
	uncleaned int // ended, but not cleaned up yet
	reason    string
}

// evict evicts every pod that may go, and returns what is left.
func (l nodeClient) evict(ctx context.Context, node string) (podCounts, error) {
	list, err := l.podsOn(ctx, node)
	if err != nil {
		return podCounts{}, err
	}
	now := podCounts{reason: "they are ending"}
	for _, item := range list {
		if staysOnNode(&item) {
			continue
		}
		if hasFinished(&item) {
			now.uncleaned++
			continue
		}
		now.running++
		if item.GetDeletionTimestamp() != nil {
			now.ending++
			continue
		}
		eviction, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&policyv1.Eviction{
			TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
			ObjectMeta:    metav1.ObjectMeta{Name: item.GetName(), Namespace: item.GetNamespace()},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: drainGrace(&item)},
		})
		if err != nil {
			return now, err
		}
		_, err = l.dynamic.Resource(pods).
			Namespace(item.GetNamespace()).
			Create(ctx, &unstructured.Unstructured{Object: eviction}, metav1.CreateOptions{}, "eviction")
		switch {
		case apierrors.IsTooManyRequests(err):
			now.reason = err.Error() // a disruption budget does not allow it yet
		case err != nil && !apierrors.IsNotFound(err):
			return now, fmt.Errorf("evict %s: %w", fullName(item.GetNamespace(), item.GetName()), err)
		}
	}
	return now, nil
}

// maxGrace is the longest grace period in seconds of a pod while its node is drained.
const maxGrace = 120

// drainGrace returns nil to keep the pod's own grace period, or maxGrace if that is shorter.
func drainGrace(pod *unstructured.Unstructured) *int64 {
	own, _, _ := unstructured.NestedInt64(pod.Object, "spec", "terminationGracePeriodSeconds")
	if own <= maxGrace {
		return nil
	}
	maximum := int64(maxGrace)
	return &maximum
}

func staysOnNode(pod *unstructured.Unstructured) bool {
	if _, static := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; static {
		return true
	}
	for _, o := range pod.GetOwnerReferences() {
		if o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller {
			return true
		}
	}
	return hasFinished(pod) && pod.GetDeletionTimestamp() == nil
}

func hasFinished(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
}

// DeleteNode deletes a machine's Node, its pods, and the endpoint of its name server. Nothing reports the end of the
// pods any more, so they are deleted without a grace period. The pod garbage collector would do it a minute later.
func (l nodeClient) DeleteNode(ctx context.Context, node string) error {
	err := l.dynamic.Resource(endpointSlices).
		Namespace("kube-system").
		Delete(ctx, dnsName+"-"+node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err = l.dynamic.Resource(nodes).Delete(ctx, node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	list, err := l.podsOn(ctx, node)
	if err != nil {
		return err
	}
	for _, pod := range list {
		uid, atOnce := pod.GetUID(), int64(0)
		err := l.dynamic.Resource(pods).Namespace(pod.GetNamespace()).Delete(ctx, pod.GetName(), metav1.DeleteOptions{
			GracePeriodSeconds: &atOnce, Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s: %w", fullName(pod.GetNamespace(), pod.GetName()), err)
		}
	}
	return nil
}

// podsOn returns the pods of a node.
func (l nodeClient) podsOn(ctx context.Context, node string) ([]unstructured.Unstructured, error) {
	list, err := l.dynamic.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", node, err)
	}
	return slices.DeleteFunc(list.Items, func(pod unstructured.Unstructured) bool {
		on, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		return on != node
	}), nil
}

// DeleteFormerNode deletes a Node whose provider ID comes from the inventory and is not that of the present machine.
// That former machine no longer exists, and neither do its pods. It then updates the machine in the cluster's
// inventory, so that its new Node gets the new provider ID. It reports whether there was such a Node.
func (l nodeClient) DeleteFormerNode(ctx context.Context, node string, now inventory.Machine) (forgot bool, err error) {
	live, err := l.dynamic.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read node %s: %w", node, err)
	}
	if err == nil {
		actual, _, _ := unstructured.NestedString(live.Object, "spec", "providerID")
		if forgot = strings.HasPrefix(actual, inventory.Scheme) && actual != now.ProviderID; forgot {
			uid := live.GetUID()
			err = l.dynamic.Resource(nodes).
				Delete(ctx, node, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, fmt.Errorf("delete node %s of the machine %s: %w", node, actual, err)
			}
		}
	}
	data, err := inventory.Inventory{node: now}.Encode()
	if err != nil {
		return forgot, err
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return forgot, err
	}
	_, err = l.dynamic.Resource(configMaps).
		Namespace(metav1.NamespaceSystem).
		Patch(ctx, inventory.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return forgot, fmt.Errorf("write machine %s to the cluster's inventory: %w", node, err)
	}
	return forgot, nil
}
