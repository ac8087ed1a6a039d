package provisioner

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"clusterctl/daemons/api/directory"
)

// usedClaims holds the claims, by namespace/name, whose volumes have to be marked as used by a pod.
type usedClaims struct {
	mu     sync.Mutex
	claims map[string]bool
}

// mountedClaims returns the claims that a pod has mounted according to its status: containers start only after the
// mounts.
func (u *usedClaims) mountedClaims(pod *corev1.Pod) (keys []string) {
	if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodSucceeded {
		return nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, pod.Namespace+"/"+ephemeral.VolumeClaimName(pod, v))
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		if u.claims == nil {
			u.claims = map[string]bool{}
		}
		u.claims[key] = true
	}
	return keys
}

func (u *usedClaims) has(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.claims[key]
}

func (u *usedClaims) delete(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.claims, key)
}

// markUsed marks a volume whose directory a pod has used. If the directory is missing later, the kubelet then knows
// that it existed. A reinstalled machine could not know that by itself.
func (p *controller) markUsed(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	v *corev1.PersistentVolume,
) error {
	key := claim.Namespace + "/" + claim.Name
	if !p.usedClaims.has(key) {
		return nil
	}
	if v.Annotations[directory.UsedAnnotation] == "" {
		updated := v.DeepCopy()
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, directory.UsedAnnotation, "true")
		if _, err := p.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("note that volume %s is made: %w", v.Name, err)
		}
	}
	p.usedClaims.delete(key)
	return nil
}
