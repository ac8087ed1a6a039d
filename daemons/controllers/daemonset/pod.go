package daemonset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"clusterctl/daemons/controllers/loop"
)

// tolerations are those that every pod of a set gets: trouble of its node does not
// move a pod that belongs to that node.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
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
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerations(&pod.Spec)...)
	term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node's name is enough: its labels were looked at when it was chosen.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
	return pod
}

// target is the node that a pod is on or meant for.
func target(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
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

// Status is what a set's status should say.
func Status(set *appsv1.DaemonSet, nodes []*corev1.Node, pods []*corev1.Pod, hash string, now time.Time) appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{ObservedGeneration: set.Generation, CollisionCount: set.Status.CollisionCount, Conditions: set.Status.Conditions}
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	for _, node := range nodes {
		run, _ := Fits(set, node)
		var here []*corev1.Pod
		for _, pod := range pods {
			if target(pod) == node.Name && pod.DeletionTimestamp == nil {
				here = append(here, pod)
			}
		}
		if !run {
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
		pod := split(here, hash)[0]
		if ready, _ := loop.Ready(pod); ready {
			s.NumberReady++
			if loop.Available(pod, minReady, now) {
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

// revise makes sure that a ControllerRevision holds the set's template, returns the
// hash that pods of this template are labelled with, and drops old revisions.
func (d *controller) revise(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	data, err := templatePatch(&set.Spec.Template)
	if err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return "", err
	}
	all, err := d.revisions.ControllerRevisions(set.Namespace).List(selector)
	if err != nil {
		return "", err
	}
	var mine []*appsv1.ControllerRevision
	for _, r := range all {
		if metav1.IsControlledBy(r, set) {
			mine = append(mine, r)
		}
	}
	slices.SortFunc(mine, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	client := d.Client.AppsV1().ControllerRevisions(set.Namespace)
	highest := int64(0)
	if len(mine) > 0 {
		highest = mine[len(mine)-1].Revision
	}
	for i, r := range mine {
		if bytes.Equal(r.Data.Raw, data) {
			if r.Revision < highest { // an undo makes an old template the newest
				updated := r.DeepCopy()
				updated.Revision = highest + 1
				if _, err := client.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
					return "", fmt.Errorf("renumber ControllerRevision %s: %w", r.Name, err)
				}
			}
			return r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], d.dropOld(ctx, set, append(slices.Clone(mine[:i]), mine[i+1:]...))
		}
	}
	h := fnv.New32a()
	_, _ = h.Write(data)
	hash := rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name + "-" + hash, Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}, Annotations: set.Annotations},
		Data: runtime.RawExtension{Raw: data}, Revision: highest + 1,
	}
	for k, v := range set.Spec.Template.Labels {
		revision.Labels[k] = v
	}
	revision.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if _, err := client.Create(ctx, revision, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("record the template of DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return hash, nil
}

func (d *controller) dropOld(ctx context.Context, set *appsv1.DaemonSet, old []*appsv1.ControllerRevision) error {
	limit := 10
	if set.Spec.RevisionHistoryLimit != nil {
		limit = int(*set.Spec.RevisionHistoryLimit)
	}
	live := map[string]bool{}
	for _, pod := range d.pods.Of(set.UID) {
		live[pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]] = true
	}
	for i := range len(old) - limit {
		if live[old[i].Labels[appsv1.DefaultDaemonSetUniqueLabelKey]] {
			continue
		}
		if err := d.Client.AppsV1().ControllerRevisions(set.Namespace).Delete(ctx, old[i].Name, loop.AsSeen(old[i])); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// templatePatch is a revision's data as kubectl rollout undo expects it: a patch that
// puts the template back.
func templatePatch(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}
