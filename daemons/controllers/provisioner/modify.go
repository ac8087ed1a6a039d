package provisioner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api/directory"
)

// modifyAttributes handles a claim that asks for a VolumeAttributesClass: directories have no attributes. The request
// is never carried out. The claim's status reports that until the claim asks for its previous class again.
// modifyAttributes returns the updated claim, or nil if it is gone.
func (p *controller) modifyAttributes(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	var class *storagev1.VolumeAttributesClass
	if name := claim.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		got, err := p.attributes.Get(*name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		} else if err == nil {
			class = got
		}
	}
	s, reason := AttributesStatus(claim, class, p.Now())
	written, err := p.writeStatus(ctx, claim, s)
	if err == nil && written != nil && written.ResourceVersion != claim.ResourceVersion && reason != "" {
		p.Events.Event(claim, corev1.EventTypeWarning, "VolumeModifyFailed", reason)
	}
	return written, err
}

// AttributesStatus returns the status that a bound claim should have for the VolumeAttributesClass that it asks for,
// and a message. class is nil if it does not exist.
func AttributesStatus(
	claim *corev1.PersistentVolumeClaim,
	class *storagev1.VolumeAttributesClass,
	now time.Time,
) (corev1.PersistentVolumeClaimStatus, string) {
	s := *claim.Status.DeepCopy()
	name := func(n *string) string {
		if n == nil {
			return ""
		}
		return *n
	}
	wants := name(claim.Spec.VolumeAttributesClassName)
	if wants == name(s.CurrentVolumeAttributesClassName) {
		if s.ModifyVolumeStatus != nil {
			s.ModifyVolumeStatus = nil
			s.Conditions = withoutConditions(s.Conditions, corev1.PersistentVolumeClaimVolumeModifyVolumeError,
				corev1.PersistentVolumeClaimVolumeModifyingVolume)
		}
		return s, ""
	}
	state, reason := corev1.PersistentVolumeClaimModifyVolumeInfeasible, fmt.Sprintf(
		"volumes of %s have no attributes that could be changed", directory.Provisioner)
	switch {
	case class == nil:
		state, reason = corev1.PersistentVolumeClaimModifyVolumePending, fmt.Sprintf("VAC %s does not exist.", wants)
	case class.DriverName != directory.Provisioner:
		reason = fmt.Sprintf("VAC %s is for driver %s, and the volume is of %s", wants, class.DriverName,
			directory.Provisioner)
	}
	s.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: wants, Status: state}
	s.Conditions = withCondition(s.Conditions, corev1.PersistentVolumeClaimVolumeModifyVolumeError, reason, now)
	return s, reason
}
