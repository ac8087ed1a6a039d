package why

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeletLog returns the command that prints the kubelet's log of a node.
func kubeletLog(node string) string { return "clusterctl ssh " + node + " journalctl -u kubelet -n 50" }

func explainNode(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	n, err := x.core().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return x.node().nodeFinding(ctx, n), nil
	case apierrors.IsForbidden(err):
		return nil, &hiddenError{err}
	case apierrors.IsNotFound(err):
		if f := x.node().requestOfNode(ctx, ref.Name); f != nil {
			return f.below(ref, "is not in the cluster",
				"its kubelet waits for a certificate, and has not registered it",
				"certificatesigningrequests"), nil
		}
		return nil, fmt.Errorf("%s does not exist", ref)
	}
	return nil, fmt.Errorf("read %s: %w", ref, err)
}

func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// nodeFinding returns why a node is in its state.
func (x nodeExplainer) nodeFinding(ctx context.Context, n *corev1.Node) *finding {
	ref := refTo("Node", n)
	if f := x.lost(ctx, n); f != nil {
		return f
	}
	for _, one := range []struct {
		kind         corev1.NodeConditionType
		what, remedy string
		command      string
	}{
		{corev1.NodeDiskPressure, "its disk is nearly full, so the kubelet deletes images and evicts pods",
			"Free or add space on the disk.", "clusterctl ssh " + n.Name + " df -h"},
		{corev1.NodeMemoryPressure, "its memory is nearly used up, so the kubelet evicts pods",
			"Set memory requests and limits of the pods that use it.", "kubectl top pods -A --sort-by=memory"},
		{corev1.NodePIDPressure, "it has nearly as many processes as it may have, so the kubelet evicts pods",
			"Find the pod that starts the processes.", "clusterctl ssh " + n.Name + " systemd-cgtop -n 1"},
		{corev1.NodeNetworkUnavailable, "its network is not set up", "Check its network daemon.", "clusterctl ssh " +
			n.Name + " journalctl -u kube-network -n 50"},
	} {
		if c := nodeCondition(n, one.kind); c != nil && c.Status == corev1.ConditionTrue {
			reason := one.what
			if message := clause(c.Message); message != "" {
				reason += ": " + message
			}
			return broken(ref, "is under pressure", reason, "status.conditions["+string(one.kind)+"]", Remedy{
				Text: one.remedy, Command: one.command})
		}
	}
	if n.DeletionTimestamp != nil {
		return deletedOwner(ref, n)
	}
	if f := x.requestOfNode(ctx, n.Name); f != nil {
		return f.below(ref, "misses a certificate", "its kubelet waits for a certificate", "certificatesigningrequests")
	}
	if n.Spec.Unschedulable {
		return broken(ref, "takes no new pods", "it is cordoned", "spec.unschedulable", Remedy{
			Text: "Allow pods on it again.", Field: "spec.unschedulable of " + ref.String(),
			Command: "kubectl uncordon " +
				n.Name})
	}
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	if len(taints) > 0 {
		return healthy("is ready; only pods that tolerate %s run on it", joinNames(taints))
	}
	return healthy("is ready")
}

// lost returns why a node is not ready, or nil.
func (x nodeExplainer) lost(ctx context.Context, n *corev1.Node) *finding {
	const state = "is not ready"
	ref := refTo("Node", n)
	c := nodeCondition(n, corev1.NodeReady)
	logs := Remedy{Text: "Read the log of its kubelet.", Command: kubeletLog(n.Name)}
	switch {
	case c == nil:
		return broken(ref, state, "its kubelet has not reported a state yet", "status.conditions", logs)
	case c.Status == corev1.ConditionTrue:
		return nil
	case c.Status == corev1.ConditionUnknown:
		since := cmp.Or(c.LastHeartbeatTime.Time, c.LastTransitionTime.Time)
		text := "its kubelet has stopped reporting"
		if !since.IsZero() {
			text += " since " + since.UTC().Format(time.RFC3339)
		}
		return broken(ref, state, text+": the machine is off, unreachable, or its kubelet has ended",
			"status.conditions[Ready]: "+c.Reason, Remedy{Text: "Check that the machine runs and is reachable.",
				Command: "clusterctl status"}, Remedy{Text: "Check its kubelet.", Command: "clusterctl ssh " + n.Name +
				" systemctl status kubelet"}, logs)
	}
	message := clause(c.Message)
	evidence := "status.conditions[Ready]: " + c.Reason
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "network"):
		return broken(ref, state, "its pod network is not ready: "+message, evidence, Remedy{
			Text: "Read the log of its network daemon.", Command: "clusterctl ssh " + n.Name +
				" journalctl -u kube-network -n 50"})
	case strings.Contains(lower, "runtime"), strings.Contains(lower, "pleg"):
		return broken(ref, state, "its container runtime is not ready: "+message, evidence, Remedy{
			Text: "Read the log of its container runtime.", Command: "clusterctl ssh " + n.Name +
				" journalctl -u containerd -n 50"})
	}
	if message == "" {
		message = "its kubelet reports that it is not ready"
	}
	return broken(ref, state, message, evidence, logs)
}

// lostNode returns why the node of a pod is not ready or is missing, or nil.
func (x nodeExplainer) lostNode(ctx context.Context, p *corev1.Pod) *finding {
	if p.Spec.NodeName == "" {
		return nil
	}
	n, existence := x.findNode(ctx, p.Spec.NodeName)
	switch existence {
	case present:
		return x.lost(ctx, n)
	case absent:
		return broken(kindRef("Node", "", p.Spec.NodeName), "does not exist", fmt.Sprintf("node %s does not exist",
			p.Spec.NodeName), "spec.nodeName", Remedy{Text: "If its machine is off for good, delete the pod, so " +
			"that its controller creates another one.",
			Command: "kubectl delete " + kubectlName(refTo("Pod", p)) + " --force --grace-period=0"})
	}
	return nil
}

// podOnLostNode returns the finding of a pod whose node is not ready, or nil.
func (x nodeExplainer) podOnLostNode(ctx context.Context, p *corev1.Pod) *finding {
	f := x.lostNode(ctx, p)
	if f == nil {
		return nil
	}
	state := "is not ready"
	if p.Status.Phase == corev1.PodPending {
		state = "does not run"
	}
	return f.below(refTo("Pod", p), state, fmt.Sprintf("its node %s does not report it as running", p.Spec.NodeName),
		"spec.nodeName")
}

// requestOfNode returns the finding of a pending or refused certificate request of a node's kubelet, or nil.
func (x nodeExplainer) requestOfNode(ctx context.Context, node string) *finding {
	all, _ := list[*certificatesv1.CertificateSigningRequest](ctx, x.reader, "certificatesigningrequests", "",
		x.clients.Kubernetes.CertificatesV1().CertificateSigningRequests())
	for _, q := range all {
		if q.Spec.Username != "system:node:"+node && requestedName(q) != "system:node:"+node {
			continue
		}
		if f := requestFinding(q); !f.isHealthy() && !hasNewerRequest(all, q) {
			return f
		}
	}
	return nil
}

// hasNewerRequest reports whether a later request of the same subject and signer was issued.
func hasNewerRequest(all []*certificatesv1.CertificateSigningRequest,
	q *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(all, func(o *certificatesv1.CertificateSigningRequest) bool {
		return o.Spec.SignerName == q.Spec.SignerName && requestedName(o) == requestedName(q) &&
			len(o.Status.Certificate) > 0 && o.CreationTimestamp.After(q.CreationTimestamp.Time)
	})
}

// requestedName returns the common name that a request is for, or "" if it cannot be decoded.
func requestedName(q *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(q.Spec.Request)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return request.Subject.CommonName
}

func explainRequest(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	q, err := read(ctx, ref, x.clients.Kubernetes.CertificatesV1().CertificateSigningRequests())
	if err != nil {
		return nil, err
	}
	return requestFinding(q), nil
}

// requestFinding returns why no certificate was issued for a request.
func requestFinding(q *certificatesv1.CertificateSigningRequest) *finding {
	const state = "has no certificate"
	ref := refTo("CertificateSigningRequest", q)
	isApproved := false
	for _, c := range q.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return broken(ref, state, "it was denied: "+cmp.Or(clause(c.Message), c.Reason),
				"status.conditions[Denied]",
				Remedy{Text: "Correct the cause, and let the client request again.",
					Command: "kubectl delete csr " + arg(q.Name)})
		case certificatesv1.CertificateFailed:
			return broken(ref, state, "its signer failed: "+cmp.Or(clause(c.Message), c.Reason),
				"status.conditions[Failed]", Remedy{Text: "Correct the request, and let the client request again.",
					Command: "kubectl delete csr " + arg(q.Name)})
		case certificatesv1.CertificateApproved:
			isApproved = true
		}
	}
	switch {
	case len(q.Status.Certificate) > 0:
		return healthy("has its certificate")
	case isApproved:
		return broken(ref, state, fmt.Sprintf("it is approved, and the signer %s has not issued it", q.Spec.SignerName),
			"status.certificate", Remedy{Text: "Check that a program serves this signer.", Command: "clusterctl " +
				"status"})
	}
	return broken(ref, state, fmt.Sprintf("the certificate request %s of %s waits for approval", q.Name,
		q.Spec.Username), "status.conditions", Remedy{Text: "Look at it, and approve it if its requester is known.",
		Command: "kubectl certificate approve " + arg(q.Name)})
}
