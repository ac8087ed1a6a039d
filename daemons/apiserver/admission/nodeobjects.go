package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

var (
	slicesGR      = resourceName{Group: resourcev1.GroupName, Resource: "resourceslices"}
	podRequestsGR = resourceName{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}
)

// checkClaim lets a kubelet report the size of a volume in its claim's status, and change nothing else.
func (p *nodeRestriction) checkClaim(node string, a *api.Admission) error {
	if a.Subresource != "status" {
		return errors.New("may only update PVC status")
	}
	if a.Operation != "UPDATE" {
		return fmt.Errorf("unexpected operation %q", a.Operation)
	}
	before, ok := a.Old.(*corev1.PersistentVolumeClaim)
	after, also := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !also {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	rest := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.ResourceVersion, c.ManagedFields = "", nil
		c.Status.Capacity, c.Status.Conditions = nil, nil
		c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		return c
	}
	if !equality.Semantic.DeepEqual(rest(before), rest(after)) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.capacity and status.conditions",
			node)
	}
	return nil
}

// checkSlice lets a kubelet create and delete only ResourceSlices of its node. The authorizer sees neither the content
// of a new slice nor each slice of a collection deletion.
func (p *nodeRestriction) checkSlice(node string, a *api.Admission) error {
	obj, verb := a.Object, "create"
	switch a.Operation {
	case "CREATE":
	case "DELETE":
		obj, verb = a.Old, "delete"
	default:
		return nil
	}
	s, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return fmt.Errorf("unexpected type %T", obj)
	}
	if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
		return fmt.Errorf("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// signerVerb is the verb of the right with which nodes may request certificates of further signers, on the service
// account of the pod. The resource is the signer, with a colon in place of its slash.
const signerVerb = "request-serviceaccounts-podcertificate-signer"

// checkPodRequest lets a kubelet request certificates for the pods that run on it, from signers that the pods name.
// What the request says about pod, account and node must equal the stored objects. A difference may mean that this
// server is behind, so the error lets the kubelet retry.
func (p *nodeRestriction) checkPodRequest(ctx context.Context, node string, a *api.Admission) error {
	refuse := func(format string, args ...any) error { return forbidden(a, fmt.Errorf(format, args...)) }
	again := func(format string, args ...any) error { return apierrors.NewInternalError(fmt.Errorf(format, args...)) }
	if a.Operation != "CREATE" || a.Subresource != "" {
		return refuse("unexpected operation %q", a.Operation)
	}
	r, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return refuse("unexpected type %T", a.Object)
	}
	key := a.Namespace + "/" + r.Spec.PodName
	if string(r.Spec.NodeName) != node {
		return refuse("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", r.Spec.NodeName,
			node)
	}
	obj, ok := p.objects.Get(nodesGR, "", node)
	if !ok {
		return again("while retrieving node %q named in the PodCertificateRequest: node %q not found", node, node)
	}
	if uID := obj.(*corev1.Node).UID; uID != r.Spec.NodeUID {
		return again("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", key,
			r.Spec.NodeUID, uID)
	}
	if obj, ok = p.objects.Get(podsGR, a.Namespace, r.Spec.PodName); !ok {
		return again("while retrieving pod %q named in the PodCertificateRequest: pod %q not found", key,
			r.Spec.PodName)
	}
	pod := obj.(*corev1.Pod)
	switch {
	case pod.UID != r.Spec.PodUID:
		return again("PodCertificateRequest for pod %q contains pod UID %q which differs from running pod %q", key,
			r.Spec.PodUID, pod.UID)
	case isMirrorPod(pod):
		return refuse("pod %q is a mirror pod", key)
	case pod.Spec.NodeName != node:
		return refuse("pod %q is not running on node %q named in the PodCertificateRequest", key, node)
	case pod.Spec.ServiceAccountName != r.Spec.ServiceAccountName:
		return refuse("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from "+
			"running pod (%q)", key, r.Spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	if obj, ok = p.objects.Get(serviceAccountsGR, a.Namespace, r.Spec.ServiceAccountName); !ok {
		return again("while retrieving service account %q named in the PodCertificateRequest: service account "+
			"%q not found", a.Namespace+"/"+r.Spec.ServiceAccountName, r.Spec.ServiceAccountName)
	}
	if uID := obj.(*corev1.ServiceAccount).UID; uID != r.Spec.ServiceAccountUID {
		return again("PodCertificateRequest for pod %q names service account UID %q, which differs from the running "+
			"service account (%q)", key, r.Spec.ServiceAccountUID, uID)
	}
	if !namesSigner(pod, r.Spec.SignerName) && !p.canSign(ctx, a, r) {
		return refuse("no podCertificate volume of pod %q is for signer %q", key, r.Spec.SignerName)
	}
	return nil
}

func namesSigner(pod *corev1.Pod, signer string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
		})
	})
}

func (p *nodeRestriction) canSign(ctx context.Context, a *api.Admission, r *certificatesv1.PodCertificateRequest) bool {
	d, _, err := p.authorizer.Authorize(ctx, a.User, api.Request{
		Verb: signerVerb, Resource: true, Namespace: a.Namespace, Name: r.Spec.ServiceAccountName,
		GroupVersionResource: schema.GroupVersionResource{
			Group:    certificatesv1.GroupName,
			Version:  "v1",
			Resource: strings.ReplaceAll(r.Spec.SignerName, "/", ":"),
		},
	})
	return err == nil && d == api.Allow
}
