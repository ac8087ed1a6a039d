package upkeep

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/write"
)

// LabelSecret sets a label on a Secret, if the Secret exists.
func (s *Upkeep) LabelSecret(ctx context.Context, namespace, name, key, value string) error {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	_, err := s.config.Writes.Change(ctx, write.Own{Resource: secrets, Namespace: namespace, Name: name},
		func(live runtime.Object) (runtime.Object, error) {
			stored, ok := live.(*corev1.Secret)
			if !ok {
				return nil, apierrors.NewNotFound(secrets.GroupResource(), name)
			}
			next := stored.DeepCopy()
			if next.Labels == nil {
				next.Labels = map[string]string{}
			}
			next.Labels[key] = value
			return next, nil
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
