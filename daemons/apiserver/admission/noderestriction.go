package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/authz"
)

// nodeRestriction restricts a kubelet to its own node, its own pods and its own lease.
type nodeRestriction struct {
	objects    api.CurrentObjects
	authorizer api.Authorizer
}

// Validate checks writes by nodes.
func (p *nodeRestriction) Validate(ctx context.Context, a *api.Admission) error {
	node, ok := authz.NodeName(a.User)
	if !ok {
		return nil
	}
	var err error
	switch a.Resource.GroupResource() {
	case podsGR:
		err = p.checkPod(ctx, node, a)
	case nodesGR:
		err = p.checkNode(node, a)
	case claimsGR:
		err = p.checkClaim(node, a)
	case slicesGR:
		err = p.checkSlice(node, a)
	case podRequestsGR:
		return p.checkPodRequest(ctx, node, a)
	case serviceAccountsGR:
		if a.Subresource == "token" {
			err = p.checkToken(ctx, node, a)
		}
	case requestsGR:
		if isOperation(a, "CREATE", requestsGR) {
			err = p.checkCertificateRequest(node, a)
		}
	case resourceName{Group: coordinationv1.GroupName, Resource: "leases"}:
		switch {
		case a.Namespace != corev1.NamespaceNodeLease:
			err = fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		case a.Name != node:
			err = fmt.Errorf("can only access node lease with the same name as the requesting node")
		}
	case resourceName{Group: "storage.k8s.io", Resource: "csinodes"}:
		if a.Name != node {
			err = fmt.Errorf("can only access CSINode with the same name as the requesting node")
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return forbidden(a, err)
	}
	return err
}

func (p *nodeRestriction) checkPod(ctx context.Context, node string, a *api.Admission) error {
	switch {
	case a.Subresource == "status" && a.Operation == "UPDATE":
		old, ok := a.Old.(*corev1.Pod)
		if !ok || old.Spec.NodeName != node {
			return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
		}
		pod, ok := a.Object.(*corev1.Pod)
		switch {
		case !ok:
			return fmt.Errorf("unexpected type %T", a.Object)
		case !equality.Semantic.DeepEqual(pod.Labels, old.Labels):
			return fmt.Errorf("node %q cannot update labels through pod status", node)
		case !equality.Semantic.DeepEqual(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses):
			return fmt.Errorf("node %q cannot update resource claim statuses", node)
		case !equality.Semantic.DeepEqual(pod.Status.ExtendedResourceClaimStatus,
			old.Status.ExtendedResourceClaimStatus):
			return fmt.Errorf("node %q cannot update extended resource claim status", node)
		}
		return nil
	case a.Subresource == "eviction":
		return p.checkOwnPod(node, a, "evict")
	case a.Subresource != "":
		return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource)
	case a.Operation == "CREATE":
		return p.checkMirrorPod(ctx, node, a)
	case a.Operation == "DELETE":
		return p.checkOwnPod(node, a, "delete")
	default:
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node)
	}
}

func (p *nodeRestriction) checkOwnPod(node string, a *api.Admission, verb string) error {
	pod, ok := a.Old.(*corev1.Pod) // the pod that is being deleted
	if !ok {
		obj, exists := p.objects.Get(podsGR, a.Namespace, a.Name)
		if !exists {
			return apierrors.NewNotFound(podsGR, a.Name) // this server may not have received it yet
		}
		pod = obj.(*corev1.Pod)
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %q can only %s pods with spec.nodeName set to itself", node, verb)
	}
	return nil
}

func (p *nodeRestriction) checkNode(node string, a *api.Admission) error {
	if a.Name != node {
		return fmt.Errorf("node %q is not allowed to modify node %q", node, a.Name)
	}
	after, ok := a.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	switch a.Operation {
	case "CREATE":
		if bad := restrictedLabels(after.Labels, nil); len(bad) > 0 {
			return fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
	case "UPDATE":
		before, ok := a.Old.(*corev1.Node)
		if !ok {
			return nil
		}
		if bad := restrictedLabels(after.Labels, before.Labels); len(bad) > 0 {
			return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(bad, ", "))
		}
		if !equality.Semantic.DeepEqual(after.Spec.Taints, before.Spec.Taints) {
			return fmt.Errorf("node %q is not allowed to modify taints", node)
		}
		if !sameOwners(after.OwnerReferences, before.OwnerReferences) {
			return fmt.Errorf("node %q is not allowed to modify ownerReferences", node)
		}
	}
	return nil
}

func sameOwners(a, b []metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(a, b) }

// ownLabels are the labels in Kubernetes' own domains that a kubelet may set.
var ownLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
	corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// restrictedLabels returns the changed labels that a kubelet may not change.
func restrictedLabels(after, before map[string]string) []string {
	var bad []string
	look := func(key string) {
		domain, _, ok := strings.Cut(key, "/")
		if !ok {
			return
		}
		in := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
		switch {
		case in(corev1.LabelNamespaceNodeRestriction):
		case !in("kubernetes.io") && !in("k8s.io"), slices.Contains(ownLabels, key),
			in(corev1.LabelNamespaceSuffixKubelet), in(corev1.LabelNamespaceSuffixNode):
			return
		}
		bad = append(bad, key)
	}
	for key, v := range after {
		if old, ok := before[key]; !ok || old != v {
			look(key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			look(key)
		}
	}
	slices.Sort(bad)
	return bad
}

// checkToken lets a kubelet request tokens only for the pods that run on it, bound to them, and for audiences that they
// use.
func (p *nodeRestriction) checkToken(ctx context.Context, node string, a *api.Admission) error {
	req, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	to := req.Spec.BoundObjectRef
	switch {
	case to == nil || to.APIVersion != "v1" || to.Kind != "Pod" || to.Name == "":
		return fmt.Errorf("node requested token not bound to a pod")
	case to.UID == "":
		return fmt.Errorf("node requested token with a pod binding without a uid")
	}
	obj, ok := p.objects.Get(podsGR, a.Namespace, to.Name)
	if !ok {
		return apierrors.NewNotFound(podsGR, to.Name)
	}
	switch pod := obj.(*corev1.Pod); {
	case pod.UID != to.UID:
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object "+
			"might have been deleted and then recreated", to.UID)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("node requested token bound to a pod scheduled on a different node")
	default:
		return p.checkAudience(ctx, a, req, pod)
	}
}
