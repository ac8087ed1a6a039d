package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicasOf returns a number of replicas, whose default is 1.
func replicasOf(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// staleFinding returns the finding of an object whose present spec no controller has seen, or nil.
func (x workloadExplainer) staleFinding(ctx context.Context, ref Ref, object metav1.Object, observed int64,
	state string) *finding {
	if observed >= object.GetGeneration() {
		return nil
	}
	const text = "the controller manager has not seen its present spec"
	if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
		return f.below(ref, state, text, "status.observedGeneration")
	}
	return broken(ref, state, text+" yet", "status.observedGeneration", Remedy{
		Text: "Ask again in a few seconds.", Command: "clusterctl why " + kubectlName(ref)})
}

func explainDeployment(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	d, err := read(ctx, ref, x.clients.Kubernetes.AppsV1().Deployments(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.workload().deploymentFinding(ctx, d), nil
}

func (x workloadExplainer) deploymentFinding(ctx context.Context, d *appsv1.Deployment) *finding {
	ref, want, s := refTo("Deployment", d), replicasOf(d.Spec.Replicas), d.Status
	state := fmt.Sprintf("has %d of %s available", s.AvailableReplicas, count(want, "pod"))
	if s.UpdatedReplicas < want && s.AvailableReplicas >= want {
		state = fmt.Sprintf("has %d of %s updated", s.UpdatedReplicas, count(want, "pod"))
	}
	if d.DeletionTimestamp != nil {
		return deletedOwner(ref, d)
	}
	if f := x.staleFinding(ctx, ref, d, s.ObservedGeneration, state); f != nil {
		return f
	}
	if want == 0 && s.Replicas == 0 {
		return healthy("has no pods, because spec.replicas is 0")
	}
	if s.AvailableReplicas >= want && s.UpdatedReplicas >= want && s.Replicas == s.UpdatedReplicas {
		return healthy("has %d of %s available", s.AvailableReplicas, count(want, "pod"))
	}
	sets, _ := x.replicaSets(ctx, d.Namespace)
	var newest *appsv1.ReplicaSet
	for _, set := range sets {
		if isOwnedBy(set, d) && (newest == nil || revisionOf(set) > revisionOf(newest)) {
			newest = set
		}
	}
	evidence := "status.availableReplicas"
	if c := deploymentCondition(d, appsv1.DeploymentProgressing); c != nil && c.Reason == "ProgressDeadlineExceeded" {
		evidence = "status.conditions[Progressing]: ProgressDeadlineExceeded"
	}
	if newest != nil {
		if f := x.replicaSetFinding(ctx, newest, ref); !f.isHealthy() {
			return f.below(ref, state, "it "+state, evidence)
		}
	}
	if f := x.admission().refusedCreation(ctx, ref, d, ref); f != nil {
		f.state = state
		return f
	}
	if c := deploymentCondition(d, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		f := x.admission().admissionFinding(ctx, ref, ref, c.Message, "status.conditions[ReplicaFailure]")
		f.state = state
		return f
	}
	if d.Spec.Paused {
		return broken(ref, state, "it is paused", "spec.paused", Remedy{Text: "Resume it.", Field: "spec.paused of " +
			ref.String(), Command: "kubectl rollout resume " + kubectlName(ref)})
	}
	if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
		return f.below(ref, state, "it "+state, evidence)
	}
	return x.rollingOut(ref, state, evidence)
}

// rollingOut returns the finding of a workload whose pods have no fault: the change is going on.
func (x workloadExplainer) rollingOut(ref Ref, state, evidence string) *finding {
	if x.missesPods(ref.Namespace) {
		return broken(ref, state, "of a cause that is unknown, since its pods could not all be read", evidence,
			mayListPods(ref.Namespace))
	}
	return broken(ref, state, "its pods are still being created or replaced, and none of them reports a fault",
		evidence,
		Remedy{Text: "Wait for the end.", Command: "kubectl rollout status " + kubectlName(ref)})
}

// mayListPods is what to do if the pods of a namespace could not be read.
func mayListPods(namespace string) Remedy {
	return Remedy{Text: "Ask for the right to list pods.", Command: "kubectl auth can-i list pods -n " + namespace}
}

func deletedOwner(ref Ref, object metav1.Object) *finding {
	const state = "is still terminating"
	if f := finalizerFinding(ref, state, object); f != nil {
		return f
	}
	return healthy("is being deleted")
}

func deploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == kind {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func revisionOf(s *appsv1.ReplicaSet) (n int64) {
	_, _ = fmt.Sscan(s.Annotations["deployment.kubernetes.io/revision"], &n) // 0 if there is none
	return n
}

func explainReplicaSet(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	s, err := read(ctx, ref, x.clients.Kubernetes.AppsV1().ReplicaSets(ref.Namespace))
	if err != nil {
		return nil, err
	}
	template := ref
	if of := metav1.GetControllerOf(s); of != nil {
		template = kindRef(of.Kind, ref.Namespace, of.Name)
	}
	return x.workload().replicaSetFinding(ctx, s, template), nil
}

// replicaSetFinding returns why a set is in its state. template is the object whose template its pods follow.
func (x workloadExplainer) replicaSetFinding(ctx context.Context, s *appsv1.ReplicaSet, template Ref) *finding {
	ref, want := refTo("ReplicaSet", s), replicasOf(s.Spec.Replicas)
	state := fmt.Sprintf("has %d of %s available", s.Status.AvailableReplicas, count(want, "pod"))
	if s.DeletionTimestamp != nil {
		return deletedOwner(ref, s)
	}
	if want == 0 {
		return healthy("has no pods, because spec.replicas is 0")
	}
	if f := x.staleFinding(ctx, ref, s, s.Status.ObservedGeneration, state); f != nil {
		return f
	}
	if s.Status.AvailableReplicas >= want {
		return healthy("%s", state)
	}
	if s.Status.Replicas < want {
		if f := x.admission().refusedCreation(ctx, ref, s, template); f != nil {
			f.state = state
			return f
		}
		for _, c := range s.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				f := x.admission().admissionFinding(ctx, ref, template, c.Message, "status.conditions[ReplicaFailure]")
				f.state = state
				return f
			}
		}
	}
	if f := x.worstPod(ctx, s); f != nil {
		return f.below(ref, state, "it "+state, "status.availableReplicas")
	}
	return x.rollingOut(ref, state, "status.availableReplicas")
}

// maxExplained is how many pods of a workload are explained.
const maxExplained = 5

// worstPod returns the finding of one pod of an owner that is not healthy, or nil. It adds how many there are.
func (x workloadExplainer) worstPod(ctx context.Context, owner metav1.Object) *finding {
	pods, _ := x.pods(ctx, owner.GetNamespace())
	var bad []*corev1.Pod
	for _, p := range pods {
		if isOwnedBy(p, owner) && !isReady(p) && p.Status.Phase != corev1.PodSucceeded {
			bad = append(bad, p)
		}
	}
	return x.worstOf(ctx, bad)
}

// podRank orders pods by what they say about their owner: pods that have ended or are being deleted are replaced.
func podRank(p *corev1.Pod) int {
	switch {
	case p.DeletionTimestamp != nil:
		return 2
	case p.Status.Phase == corev1.PodFailed:
		return 1
	}
	return 0
}

// worstOf returns the finding of one of some pods that are not ready, or nil.
func (x workloadExplainer) worstOf(ctx context.Context, bad []*corev1.Pod) *finding {
	slices.SortStableFunc(bad, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(podRank(a), podRank(b)), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range bad[:min(len(bad), maxExplained)] {
		f := x.pod().podFinding(ctx, p)
		if f.isHealthy() {
			continue
		}
		text := "it " + f.state
		if n := len(bad); n > 1 {
			text += fmt.Sprintf("; it is one of %s that are not ready", count(n, "pod"))
		}
		return f.below(refTo("Pod", p), f.state, text, "status of the pod")
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	c := podCondition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
}

func explainStatefulSet(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	s, err := read(ctx, ref, x.clients.Kubernetes.AppsV1().StatefulSets(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.workload().statefulSetFinding(ctx, s), nil
}

func (x workloadExplainer) statefulSetFinding(ctx context.Context, s *appsv1.StatefulSet) *finding {
	ref, want := refTo("StatefulSet", s), replicasOf(s.Spec.Replicas)
	state := fmt.Sprintf("has %d of %s ready", s.Status.ReadyReplicas, count(want, "pod"))
	if s.DeletionTimestamp != nil {
		return deletedOwner(ref, s)
	}
	if f := x.staleFinding(ctx, ref, s, s.Status.ObservedGeneration, state); f != nil {
		return f
	}
	if s.Status.ReadyReplicas < want {
		if f := x.admission().refusedCreation(ctx, ref, s, ref); f != nil && s.Status.Replicas < want {
			f.state = state
			return f
		}
		if f := x.worstPod(ctx, s); f != nil {
			text := "it " + state
			if s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && s.Status.Replicas < want {
				text += "; it creates the next pod when all earlier ones are ready"
			}
			return f.below(ref, state, text, "status.readyReplicas")
		}
		return x.rollingOut(ref, state, "status.readyReplicas")
	}
	if s.Status.UpdateRevision != s.Status.CurrentRevision && s.Status.UpdatedReplicas < want {
		state = fmt.Sprintf("has %d of %s updated", s.Status.UpdatedReplicas, count(want, "pod"))
		update := s.Spec.UpdateStrategy
		switch {
		case update.Type == appsv1.OnDeleteStatefulSetStrategyType:
			return broken(ref, state, "its update strategy OnDelete replaces pods only when they are deleted",
				"spec.updateStrategy", Remedy{Text: "Delete the old pods, or use RollingUpdate.",
					Field: "spec.updateStrategy.type of " + ref.String()})
		case update.RollingUpdate != nil && update.RollingUpdate.Partition != nil &&
			*update.RollingUpdate.Partition > 0:
			return broken(ref, state, fmt.Sprintf(
				"its update strategy leaves the pods below the partition %d as they are",
				*update.RollingUpdate.Partition), "spec.updateStrategy.rollingUpdate.partition", Remedy{
				Text: "Lower the partition.", Field: "spec.updateStrategy.rollingUpdate.partition of " + ref.String()})
		}
		return x.rollingOut(ref, state, "status.updatedReplicas")
	}
	return healthy("%s", state)
}

func explainDaemonSet(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	s, err := read(ctx, ref, x.clients.Kubernetes.AppsV1().DaemonSets(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.workload().daemonSetFinding(ctx, s), nil
}

func (x workloadExplainer) daemonSetFinding(ctx context.Context, s *appsv1.DaemonSet) *finding {
	ref, want := refTo("DaemonSet", s), s.Status.DesiredNumberScheduled
	state := fmt.Sprintf("has %d of %s available", s.Status.NumberAvailable, count(want, "pod"))
	if s.DeletionTimestamp != nil {
		return deletedOwner(ref, s)
	}
	if f := x.staleFinding(ctx, ref, s, s.Status.ObservedGeneration, state); f != nil {
		return f
	}
	if want == 0 {
		return x.noDaemonNodes(ctx, s)
	}
	if s.Status.NumberAvailable < want {
		if f := x.admission().refusedCreation(ctx, ref, s, ref); f != nil && s.Status.CurrentNumberScheduled < want {
			f.state = state
			return f
		}
		if f := x.worstPod(ctx, s); f != nil {
			return f.below(ref, state, "it "+state, "status.numberAvailable")
		}
		return x.rollingOut(ref, state, "status.numberAvailable")
	}
	if s.Status.UpdatedNumberScheduled < want {
		state = fmt.Sprintf("has %d of %s updated", s.Status.UpdatedNumberScheduled, count(want, "pod"))
		if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			return broken(ref, state, "its update strategy OnDelete replaces pods only when they are deleted",
				"spec.updateStrategy", Remedy{Text: "Delete the old pods, or use RollingUpdate.",
					Field: "spec.updateStrategy.type of " + ref.String()})
		}
		return x.rollingOut(ref, state, "status.updatedNumberScheduled")
	}
	return healthy("%s", state)
}

// noDaemonNodes explains a DaemonSet that runs on no node.
func (x workloadExplainer) noDaemonNodes(ctx context.Context, s *appsv1.DaemonSet) *finding {
	ref := refTo("DaemonSet", s)
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec: s.Spec.Template.Spec}
	reason := "no node matches its node selector, affinity and tolerations"
	if missing := x.absentLabel(ctx, probe); missing != "" {
		reason = fmt.Sprintf("no node has the label %s of its node selector", missing)
	}
	return broken(ref, "has no pods", reason, "status.desiredNumberScheduled", Remedy{
		Text: "Label a node, or change the selector.", Field: "spec.template.spec.nodeSelector of " + ref.String(),
		Command: "kubectl label node NODE KEY=VALUE"})
}

// absentLabel returns a pair of a pod's node selector that no node has, or "".
func (x workloadExplainer) absentLabel(ctx context.Context, p *corev1.Pod) string {
	nodes, isComplete := x.nodes(ctx)
	if !isComplete {
		return ""
	}
	for _, key := range sortedNames(p.Spec.NodeSelector) {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Labels[key] == p.Spec.NodeSelector[key] }) {
			return key + "=" + p.Spec.NodeSelector[key]
		}
	}
	return ""
}
