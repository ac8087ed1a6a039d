package daemonset

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
)

// defaultTolerations returns the tolerations that every pod of a set gets: problems of a node do not evict a pod that
// belongs to that node.
func defaultTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	out := []corev1.Toleration{
		exists(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		exists(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		exists(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		exists(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
	if spec.HostNetwork {
		out = append(out, exists(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule))
	}
	return out
}

func newPod(set *appsv1.DaemonSet, node, hash string) *corev1.Pod {
	pod := loop.PodFromTemplate(&set.Spec.Template, set, kind)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	pod.Labels["pod-template-generation"] = strconv.FormatInt(templateGeneration(set), 10)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, defaultTolerations(&pod.Spec)...)
	term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node's name is sufficient: the node was selected by its labels before.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
	}
	return pod
}

// targetNode returns the node that a pod is on or meant for.
func targetNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

func isCurrent(pod *corev1.Pod, hash string) bool {
	return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash
}

// templateGeneration is the deprecated counter that upstream still labels pods with.
func templateGeneration(set *appsv1.DaemonSet) int64 {
	if n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
		return n
	}
	return set.Generation
}

// Status returns the status that a set should have.
func Status(set *appsv1.DaemonSet, at Placements, hash string, now time.Time) appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{
		ObservedGeneration: set.Generation,
		CollisionCount:     set.Status.CollisionCount,
		Conditions:         set.Status.Conditions,
	}
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	for _, place := range at.perNode {
		var here []*corev1.Pod
		for _, pod := range place.pods {
			if pod.DeletionTimestamp == nil {
				here = append(here, pod)
			}
		}
		if !place.shouldRun {
			if len(here) > 0 {
				s.NumberMisscheduled++
			}
			continue
		}
		s.DesiredNumberScheduled++
		if len(here) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		pod := selectRemaining(here, hash)[0]
		if ready, _ := loop.IsReady(pod); ready {
			s.NumberReady++
			if loop.IsAvailable(pod, minReady, now) {
				s.NumberAvailable++
			}
		}
		if isCurrent(pod, hash) {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}

// recordRevision ensures that a ControllerRevision holds the set's template, and deletes old revisions. It returns the
// hash that pods of this template have as a label.
func (d *controller) recordRevision(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	live := map[string]bool{}
	for _, pod := range d.pods.Of(set.UID) {
		live[pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]] = true
	}
	update, _, err := d.revisions.Record(ctx, loop.RevisionOwner{
		Owner: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		Collisions: &set.Status.CollisionCount, Limit: set.Spec.RevisionHistoryLimit,
		IsUsed: func(c *appsv1.ControllerRevision) bool {
			return live[c.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]]
		},
		ReadLive: d.readLive(set),
	})
	if err != nil {
		return "", err
	}
	return update.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], nil
}
