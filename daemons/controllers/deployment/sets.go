package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"clusterctl/daemons/controllers/loop"
)

// Annotations that kubectl rollout reads.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// claimSets returns the sets of a deployment: its own that match its selector, and matching orphans, which it adopts.
func (d *controller) claimSets(ctx context.Context, deployment *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, nil // the API server refuses such a deployment
	}
	all, err := d.sets.ReplicaSets(deployment.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var claimed []*appsv1.ReplicaSet
	for _, set := range all {
		owner, matches := metav1.GetControllerOfNoCopy(set), selector.Matches(labels.Set(set.Labels))
		switch {
		case owner != nil && owner.UID == deployment.UID && matches:
			claimed = append(claimed, set)
		case owner != nil && owner.UID == deployment.UID && deployment.DeletionTimestamp == nil:
			if err := d.release(ctx, deployment, set); err != nil {
				return nil, err
			}
		case owner == nil && matches && set.DeletionTimestamp == nil && deployment.DeletionTimestamp == nil:
			adopted, err := d.adopt(ctx, deployment, set)
			if err != nil {
				return nil, err
			}
			if adopted != nil {
				claimed = append(claimed, adopted)
			}
		}
	}
	return claimed, nil
}

// release removes the deployment's owner reference from a set whose labels no longer match.
func (d *controller) release(ctx context.Context, deployment *appsv1.Deployment, set *appsv1.ReplicaSet) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": []map[string]any{{"$patch": "delete", "uid": deployment.UID}}, "uid": set.UID,
	}})
	if err != nil {
		return err
	}
	_, err = d.Client.AppsV1().
		ReplicaSets(set.Namespace).
		Patch(ctx, set.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

func (d *controller) adopt(
	ctx context.Context,
	deployment *appsv1.Deployment,
	set *appsv1.ReplicaSet,
) (*appsv1.ReplicaSet, error) {
	fresh, err := d.Client.AppsV1().Deployments(deployment.Namespace).Get(ctx, deployment.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Deployment %s/%s before adopting: %w", deployment.Namespace, deployment.Name,
			err)
	}
	if fresh.UID != deployment.UID || fresh.DeletionTimestamp != nil {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(deployment, kind)}, "uid": set.UID,
	}})
	if err != nil {
		return nil, err
	}
	adopted, err := d.Client.AppsV1().
		ReplicaSets(set.Namespace).
		Patch(ctx, set.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil, nil
	}
	return adopted, err
}

// createSet creates the set for the deployment's template, with as many replicas as the strategy allows at once.
func (d *controller) createSet(
	ctx context.Context,
	deployment *appsv1.Deployment,
	sets []*appsv1.ReplicaSet,
) (made *appsv1.ReplicaSet, o outcome, err error) {
	hash := templateHash(&deployment.Spec.Template, deployment.Status.CollisionCount)
	template := deployment.Spec.Template.DeepCopy()
	template.Labels = withEntry(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	selector := deployment.Spec.Selector.DeepCopy()
	selector.MatchLabels = withEntry(selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: deployment.Name + "-" + hash, Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, kind)},
			Annotations:     d.annotations(deployment, nil, nextRevision(sets)),
		},
		Spec: appsv1.ReplicaSetSpec{
			Selector:        selector,
			Template:        *template,
			MinReadySeconds: deployment.Spec.MinReadySeconds,
		},
	}
	none := int32(0)
	set.Spec.Replicas = &none
	first := replicasOrDefault(deployment.Spec.Replicas)
	if deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		first = nextReplicas(deployment, set, sets)[set]
	}
	set.Spec.Replicas = &first

	made, err = d.Client.AppsV1().ReplicaSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		made, err = d.resolveCollision(ctx, deployment, set)
		return made, outcome{}, err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, outcome{}, nil
	case err != nil:
		d.Events.Eventf(deployment, corev1.EventTypeWarning, "ReplicaSetCreateError",
			"Failed to create new replica set %q: %v", set.Name, err)
		return nil, outcome{name: set.Name, failure: err}, nil
	}
	if first > 0 {
		d.Events.Eventf(deployment, corev1.EventTypeNormal, "ScalingReplicaSet",
			"Scaled up replica set %s from 0 to %d", made.Name, first)
	}
	return made, outcome{created: true}, nil
}

// resolveCollision handles a set that already has the new set's name. If it is the deployment's own set, which the
// cache does not show yet, it is returned. Otherwise the collision count is increased, so that the next sync uses
// another hash.
func (d *controller) resolveCollision(
	ctx context.Context,
	deployment *appsv1.Deployment,
	set *appsv1.ReplicaSet,
) (*appsv1.ReplicaSet, error) {
	existing, err := d.Client.AppsV1().ReplicaSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if owner := metav1.GetControllerOfNoCopy(existing); owner != nil && owner.UID == deployment.UID &&
		sameTemplate(&existing.Spec.Template, &deployment.Spec.Template) {
		return existing, nil
	}
	updated := deployment.DeepCopy()
	count := int32(1)
	if deployment.Status.CollisionCount != nil {
		count += *deployment.Status.CollisionCount
	}
	updated.Status.CollisionCount = &count
	if _, err := d.Client.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("replica set %s exists already: trying another hash", set.Name)
}

// setRevision gives the new set the highest revision and the deployment's annotations, and writes that revision to the
// deployment.
func (d *controller) setRevision(
	ctx context.Context,
	deployment *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
) (*appsv1.ReplicaSet, error) {
	wanted := d.annotations(deployment, newSet, nextRevision(oldSets(sets, newSet)))
	if !maps.Equal(newSet.Annotations, wanted) || newSet.Spec.MinReadySeconds != deployment.Spec.MinReadySeconds {
		updated := newSet.DeepCopy()
		updated.Annotations = wanted
		updated.Spec.MinReadySeconds = deployment.Spec.MinReadySeconds
		written, err := d.Client.AppsV1().ReplicaSets(updated.Namespace).Update(ctx, updated, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		sets[slices.Index(sets, newSet)] = written
		newSet = written
	}
	if revision := newSet.Annotations[revisionAnnotation]; deployment.Annotations[revisionAnnotation] != revision {
		patch, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"annotations": map[string]string{revisionAnnotation: revision}}},
		)
		if err != nil {
			return nil, err
		}
		written, err := d.Client.AppsV1().
			Deployments(deployment.Namespace).
			Patch(ctx, deployment.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		written.DeepCopyInto(deployment)
	}
	return newSet, nil
}

// annotations returns the annotations that a set should have: its own, those of the deployment that are not the
// deployment's alone, and the bookkeeping. A set never gets a lower revision than it has. When it becomes the newest
// again, its previous revision is added to its history.
func (d *controller) annotations(
	deployment *appsv1.Deployment,
	set *appsv1.ReplicaSet,
	revision int64,
) map[string]string {
	out := map[string]string{}
	if set != nil {
		maps.Copy(out, set.Annotations)
	}
	for k, v := range deployment.Annotations {
		switch k {
		case corev1.LastAppliedConfigAnnotation,
			revisionAnnotation,
			historyAnnotation,
			desiredAnnotation,
			maxAnnotation,
			"deprecated.deployment.rollback.to":
		default:
			out[k] = v
		}
	}
	if before := revisionOf(out); before < revision {
		if before > 0 {
			out[historyAnnotation] = appendHistory(out[historyAnnotation], strconv.FormatInt(before, 10))
		}
		out[revisionAnnotation] = strconv.FormatInt(revision, 10)
	}
	if _, sized := out[desiredAnnotation]; !sized { // a set that exists gets new values when it is scaled
		maps.Copy(out, sizeAnnotations(deployment))
	}
	return out
}

// maxHistoryLength is the maximum length in bytes of a set's list of former revisions.
const maxHistoryLength = 2000

// appendHistory returns the history with one more revision. It drops the oldest ones that exceed maxHistoryLength.
func appendHistory(history, revision string) string {
	for history != "" && len(history)+1+len(revision) > maxHistoryLength {
		_, history, _ = strings.Cut(history, ",")
	}
	if history == "" {
		return revision
	}
	return history + "," + revision
}

func sizeAnnotations(deployment *appsv1.Deployment) map[string]string {
	surge, _ := rolloutLimits(deployment)
	wanted := replicasOrDefault(deployment.Spec.Replicas)
	return map[string]string{
		desiredAnnotation: strconv.Itoa(int(wanted)),
		maxAnnotation:     strconv.Itoa(int(wanted) + int(surge)),
	}
}

// isResized reports whether the wanted number of replicas changed since the sets were last scaled.
func (d *controller) isResized(deployment *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	wanted := strconv.Itoa(int(replicasOrDefault(deployment.Spec.Replicas)))
	for _, set := range sets {
		if before, ok := set.Annotations[desiredAnnotation]; ok && replicasOrDefault(set.Spec.Replicas) > 0 &&
			before != wanted {
			return true
		}
	}
	return false
}

// scaleAll adapts the sets to a changed number of replicas without a rollout.
func (d *controller) scaleAll(
	ctx context.Context,
	deployment *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
) error {
	var active []*appsv1.ReplicaSet
	for _, set := range sets {
		if replicasOrDefault(set.Spec.Replicas) > 0 {
			active = append(active, set)
		}
	}
	wanted := replicasOrDefault(deployment.Spec.Replicas)
	if len(active) == 0 {
		if newSet == nil && len(sets) > 0 {
			newSet = slices.MaxFunc(sets,
				func(a, b *appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		}
		if newSet != nil {
			active = []*appsv1.ReplicaSet{newSet}
		}
	}
	switch {
	case len(active) == 0:
		return nil
	case len(active) == 1:
		return d.scale(ctx, deployment, active[0], wanted)
	case isSaturated(deployment, newSet): // sets that were adopted in the meantime have to go
		for _, set := range oldSets(active, newSet) {
			if err := d.scale(ctx, deployment, set, 0); err != nil {
				return err
			}
		}
		return nil
	case deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return nil
	}
	next := proportionalReplicas(deployment, active, func(set *appsv1.ReplicaSet) int64 {
		before, err := strconv.ParseInt(set.Annotations[maxAnnotation], 10, 64)
		if err != nil || before == 0 {
			return int64(deployment.Status.Replicas)
		}
		return before
	})
	for _, set := range active {
		n, changed := next[set]
		if !changed {
			n = replicasOrDefault(set.Spec.Replicas)
		}
		if err := d.scale(ctx, deployment, set, n); err != nil {
			return err
		}
	}
	return nil
}

// isSaturated reports whether the new set has all wanted pods and all are available.
func isSaturated(deployment *appsv1.Deployment, newSet *appsv1.ReplicaSet) bool {
	wanted := replicasOrDefault(deployment.Spec.Replicas)
	return newSet != nil && newSet.Annotations[desiredAnnotation] == strconv.Itoa(int(wanted)) &&
		replicasOrDefault(newSet.Spec.Replicas) == wanted && newSet.Status.AvailableReplicas == wanted
}

// scale writes a set's replicas, and the annotations with the deployment's wanted and maximum numbers.
func (d *controller) scale(ctx context.Context, deployment *appsv1.Deployment, set *appsv1.ReplicaSet, n int32) error {
	before := replicasOrDefault(set.Spec.Replicas)
	updated := set.DeepCopy()
	updated.Spec.Replicas = &n
	for k, v := range sizeAnnotations(deployment) {
		updated.Annotations = withEntry(updated.Annotations, k, v)
	}
	if before == n && maps.Equal(updated.Annotations, set.Annotations) {
		return nil
	}
	if _, err := d.Client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("scale ReplicaSet %s/%s to %d: %w", set.Namespace, set.Name, n, err)
	}
	if before != n {
		direction := "up"
		if n < before {
			direction = "down"
		}
		d.Events.Eventf(deployment, corev1.EventTypeNormal, "ScalingReplicaSet",
			"Scaled %s replica set %s from %d to %d", direction, set.Name, before, n)
	}
	return nil
}

// deleteOldSets deletes the oldest of the old sets that exceed the revision history limit, if they have no pods.
func (d *controller) deleteOldSets(ctx context.Context, deployment *appsv1.Deployment, old []*appsv1.ReplicaSet) error {
	if deployment.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	old = slices.DeleteFunc(old, func(set *appsv1.ReplicaSet) bool { return set.DeletionTimestamp != nil })
	slices.SortFunc(old, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Compare(revisionOf(a.Annotations), revisionOf(b.Annotations))
	})
	for i := range len(old) - int(*deployment.Spec.RevisionHistoryLimit) {
		set := old[i]
		if set.Status.Replicas != 0 || replicasOrDefault(set.Spec.Replicas) != 0 ||
			set.Generation > set.Status.ObservedGeneration {
			continue
		}
		if err := d.Client.AppsV1().ReplicaSets(set.Namespace).Delete(ctx, set.Name,
			loop.IfUnchanged(set)); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func nextRevision(sets []*appsv1.ReplicaSet) int64 {
	var highest int64
	for _, set := range sets {
		highest = max(highest, revisionOf(set.Annotations))
	}
	return highest + 1
}

func revisionOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// templateHash returns the hash that distinguishes templates in ReplicaSet names. It need not equal upstream's, since
// no client computes it.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	text, err := json.Marshal(template)
	if err == nil {
		_, _ = h.Write(text)
	}
	if collisions != nil {
		fmt.Fprintf(h, "%d", *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

func withEntry(m map[string]string, k, v string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[k] = v
	return out
}
