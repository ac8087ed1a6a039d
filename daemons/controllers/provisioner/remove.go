package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/controllers/loop"
)

// syncVolume removes a volume that is no longer used. It reads the volume from the API server, not from a cache.
func (p *controller) syncVolume(ctx context.Context, name string) error {
	v, err := p.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read volume %s: %w", name, err)
	}
	switch DecideVolume(v) {
	case ActionReleaseOnly:
		return p.removeFinalizer(ctx, v)
	case ActionRemove:
	default:
		return nil
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		claim, err := p.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case loop.IsAbsent(err, "persistentvolumeclaims", ref.Name):
			claim = nil
		case err != nil:
			return fmt.Errorf("read the claim of volume %s before it is removed: %w", name, err)
		}
		if !isUnclaimed(v, claim) {
			return nil
		}
	}
	return p.reclaim(ctx, v)
}

// reclaim removes the directory, and then the object. If the directory cannot be removed, it reports why and the object
// stays, because only the object leads to the data.
func (p *controller) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	node := v.Annotations[directory.NodeAnnotation]
	if node == "" || v.Spec.Local == nil || v.Spec.Local.Path != directory.Path(v.Name) {
		return p.recordFailure(ctx, v, fmt.Sprintf(
			"the volume does not say on which node it lies (annotation %s), or is not at %s: remove it by hand",
			directory.NodeAnnotation, directory.Path(v.Name)))
	}
	_, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if loop.IsAbsent(err, "nodes", node) {
		return p.recordFailure(ctx, v, fmt.Sprintf("node %q, which has the data at %s, does not exist: the "+
			"volume is removed when it is back, or by hand", node, v.Spec.Local.Path))
	} else if err != nil {
		return fmt.Errorf("read node %s: %w", node, err)
	}
	err = p.remove(ctx, node, v)
	if apierrors.HasStatusCause(err, directory.MissingCause) {
		// It is not certain that the data is gone: its disk may be mounted again. Repeat the request until the
		// directory is removed, or until the volume's annotation no longer says that it existed.
		if failed := p.recordFailure(ctx, v, fmt.Sprintf("node %s: %v", node, err)); failed != nil {
			return failed
		}
		return fmt.Errorf("have node %s remove volume %s: %w", node, v.Name, err)
	} else if err != nil {
		p.Events.Eventf(v, corev1.EventTypeWarning, "VolumeFailedDelete", "node %s: %v", node, err)
		return fmt.Errorf("have node %s remove volume %s: %w", node, v.Name, err)
	}
	if v.DeletionTimestamp == nil {
		options := loop.IfUnchanged(v)
		if err := p.Client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, options); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("delete volume %s: %w", v.Name, err)
		}
		if v, err = p.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{}); apierrors.IsNotFound(
			err,
		) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read volume: %w", err)
		}
	}
	return p.removeFinalizer(ctx, v)
}

// removeFinalizer removes the finalizer from a volume that is being deleted.
func (p *controller) removeFinalizer(ctx context.Context, v *corev1.PersistentVolume) error {
	updated := v.DeepCopy()
	updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(f string) bool { return f == directory.Finalizer })
	if _, err := p.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("let volume %s go: %w", v.Name, err)
	}
	return nil
}

// recordFailure records why a volume cannot be removed.
func (p *controller) recordFailure(ctx context.Context, v *corev1.PersistentVolume, message string) error {
	if v.Status.Phase == corev1.VolumeFailed && v.Status.Message == message {
		return nil
	}
	p.Events.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", message)
	updated := v.DeepCopy()
	updated.Status.Phase, updated.Status.Message = corev1.VolumeFailed, message
	if _, err := p.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("say why volume %s stays: %w", v.Name, err)
	}
	return nil
}

// removeTimeout bounds one request to a kubelet. The kubelet continues after it, and a later request gets the result.
const removeTimeout = time.Minute

// requestGrowth asks a kubelet to raise the size limit of a directory.
func (p *controller) requestGrowth(ctx context.Context, node, volume string, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	body, err := p.Client.CoreV1().
		RESTClient().
		Put().
		Resource("nodes").
		Name(node).
		SubResource("proxy").
		Suffix(directory.Resource, volume).
		Param(directory.SizeParameter, strconv.FormatInt(bytes, 10)).
		Do(ctx).
		Raw()
	return kubeletResult(body, err, volume)
}

// requestRemoval asks a kubelet through the API server to remove a directory. Only an answer of the kubelet itself
// counts: a 404 from a proxy on the way proves nothing about the directory.
func (p *controller) requestRemoval(ctx context.Context, node string, v *corev1.PersistentVolume) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	request := p.Client.CoreV1().
		RESTClient().
		Delete().
		Resource("nodes").
		Name(node).
		SubResource("proxy").
		Suffix(directory.Resource, v.Name)
	for query, annotation := range map[string]string{directory.UsedParameter: directory.UsedAnnotation,
		directory.MachineParameter: directory.MachineAnnotation} {
		if value := v.Annotations[annotation]; value != "" {
			request = request.Param(query, value)
		}
	}
	body, err := request.Do(ctx).Raw()
	return kubeletResult(body, err, v.Name)
}

// kubeletResult interprets the answer to a request about a volume: nil if the kubelet has done it, else why not. An
// answer that is not the kubelet's own is an error.
func kubeletResult(body []byte, err error, volume string) error {
	var answer metav1.Status
	unread := json.Unmarshal(body, &answer)
	own := unread == nil && answer.Details != nil && answer.Details.Kind == directory.Resource &&
		answer.Details.Name == volume
	switch {
	case own && answer.Status == metav1.StatusFailure:
		return &apierrors.StatusError{ErrStatus: answer}
	case err != nil:
		return err
	case unread != nil:
		return fmt.Errorf("read what the kubelet answered: %w", unread)
	case !own || answer.Status != metav1.StatusSuccess:
		return errors.New("the answer does not say that it is done")
	}
	return nil
}
