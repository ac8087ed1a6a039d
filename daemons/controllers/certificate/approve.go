package certificate

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/controllers/loop"
)

// approver approves client certificates of nodes: a node's renewal, requested with its current certificate, and the
// first certificate of a new node, requested with a bootstrap token. RBAC on the subresources nodeclient and
// selfnodeclient decides who may request which. Serving certificates need a person's approval, because only the machine
// states its addresses.
//
// A first certificate is approved only for a name that is neither a Node nor a machine of the inventory. Otherwise
// every holder of a bootstrap token could become an existing node. Such a request stays pending, for a person to
// decide.
type approver struct {
	loop.Context
	loop.Loop
	requests certificateslisters.CertificateSigningRequestLister
}

// NewApprover returns the controller that approves client certificates of nodes.
func NewApprover(c loop.Context) loop.Controller {
	requests, nodes := informers.CertificateSigningRequests(c.Informers), informers.Nodes(c.Informers)
	a := &approver{Context: c, requests: requests.Lister()}
	a.Loop = loop.Loop{Name: "certificate-approval", Context: c, Sync: a.sync,
		Synced: []cache.InformerSynced{requests.Informer().HasSynced, nodes.Informer().HasSynced}}
	c.OnChange(requests.Informer(), func(_, obj any) {
		if obj != nil {
			a.Add(obj)
		}
	})
	// A deleted Node frees its name for requests that wait for it.
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if node, ok := old.(*corev1.Node); ok && obj == nil {
			a.enqueuePending(node.Name)
		}
	})
	return a
}

// enqueuePending queues the undecided requests for a node's client certificate.
func (a *approver) enqueuePending(node string) {
	list, err := a.requests.List(labels.Everything())
	if err != nil {
		a.Log.Warn("list the certificate requests of a deleted node", "node", node, "err", err)
		return
	}
	for _, request := range list {
		if !isPending(request) {
			continue
		}
		if requested, err := parseRequest(request); err == nil &&
			requested.Subject.CommonName == api.NodeUserPrefix+node {
			a.Add(request)
		}
	}
}

// isPending reports whether a request for a node's client certificate has not been decided.
func isPending(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && len(r.Status.Certificate) == 0 &&
		!hasCondition(r, certificatesv1.CertificateApproved) && !hasCondition(r, certificatesv1.CertificateDenied)
}

func (a *approver) sync(ctx context.Context, name string) error {
	request, err := a.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !isPending(request) {
		return nil
	}
	requested, err := parseRequest(request)
	if err != nil {
		return err
	}
	if checkRequest(request, requested) != nil {
		return nil
	}
	for _, rule := range approvalRules(request.Spec.Username, requested.Subject.CommonName) {
		allowed, err := a.isAllowed(ctx, request, rule.subresource)
		if err != nil {
			return err
		}
		if !allowed {
			continue
		}
		if rule.newNode {
			taken, err := a.nameTaken(ctx, strings.TrimPrefix(requested.Subject.CommonName, api.NodeUserPrefix))
			if err != nil {
				return err
			}
			if taken != "" {
				a.Log.Warn("not approving a node's first certificate", "request", name, "user", request.Spec.Username,
					"reason", taken)
				a.Events.Eventf(request, corev1.EventTypeWarning, "NodeNameTaken",
					"Not approved automatically: %s. Approve it with kubectl certificate approve if %s is that "+
						"machine.", taken, request.Spec.Username)
				return nil
			}
		}
		approved := request.DeepCopy()
		approved.Status.Conditions = append(
			approved.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
				Message: rule.message},
		)
		_, err = a.Client.CertificatesV1().
			CertificateSigningRequests().
			UpdateApproval(ctx, name, approved, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return fmt.Errorf("%s asks for a node's certificate and may not: neither nodeclient nor selfnodeclient of "+
		"certificatesigningrequests is granted", request.Spec.Username)
}

// approvalRule is a subresource of certificatesigningrequests that the requester needs the verb create on.
type approvalRule struct {
	subresource, message string
	newNode              bool // the certificate's name must not be that of an existing node
}

// approvalRules returns the rules that allow a node's certificate, in order: a node's own renewal, and any new node's.
func approvalRules(username, name string) (list []approvalRule) {
	if name == username {
		list = append(
			list,
			approvalRule{"selfnodeclient", "Auto approving self kubelet client certificate after " +
				"SubjectAccessReview.", false},
		)
	}
	return append(list,
		approvalRule{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", true})
}

// nameTaken returns why a new node cannot have a name, or "" if it can. It reads the API server, not a cache.
func (a *approver) nameTaken(ctx context.Context, name string) (string, error) {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("%q is not a node name", name), nil
	}
	_, err := a.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return fmt.Sprintf("node %s exists", name), nil
	case !loop.IsAbsent(err, "nodes", name):
		return "", fmt.Errorf("look for node %s: %w", name, err)
	}
	machines, err := a.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, inventory.Name, metav1.GetOptions{})
	if loop.IsAbsent(err, "configmaps", inventory.Name) {
		return "", nil // the cluster has no declared machines
	} else if err != nil {
		return "", fmt.Errorf("look for machine %s in the inventory: %w", name, err)
	}
	if _, declared := machines.Data[name]; declared {
		return fmt.Sprintf("machine %s is declared, and gets its certificate from clusterctl apply", name), nil
	}
	return "", nil
}

func (a *approver) isAllowed(
	ctx context.Context,
	request *certificatesv1.CertificateSigningRequest,
	subresource string,
) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range request.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := a.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: request.Spec.Username, UID: request.Spec.UID, Groups: request.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Verb: "create",
				Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review whether %s may have a node's certificate: %w", request.Spec.Username, err)
	}
	return review.Status.Allowed, nil
}
