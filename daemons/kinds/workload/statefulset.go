package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

func StatefulSets() *kind.Kind {
	return &kind.Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		Resource: "statefulsets", Singular: "statefulset", ShortNames: []string{"sts"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[appsv1.StatefulSet](), NewList: kind.New[appsv1.StatefulSetList](),
		Default:        kind.Adapt(defaultStatefulSet),
		NameErrors:     validate.DNSLabelNameErrors, // it is part of its pods' hostnames
		PrepareCreate:  kind.Adapt(func(s *appsv1.StatefulSet) { s.Status = appsv1.StatefulSetStatus{} }),
		PrepareUpdate:  kind.AdaptUpdate(func(s, old *appsv1.StatefulSet) { s.Status = old.Status }),
		Warnings:       statefulSetWarnings,
		Validate:       kind.AdaptValidate(validateStatefulSet),
		ValidateUpdate: kind.AdaptValidateUpdate(validateStatefulSetUpdate),
		Columns:        kind.NewColumns("Ready", "Age", "Containers*", "Images*"),
		Row: kind.AdaptRow(func(s *appsv1.StatefulSet) []any {
			spec := &s.Spec.Template.Spec
			return []any{
				fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, value.OrZero(s.Spec.Replicas)),
				cell.Age(s.CreationTimestamp),
				cell.ContainerNames(spec), cell.ContainerImages(spec),
			}
		}),
		Status: kind.NewStatus(func(to, from *appsv1.StatefulSet) { to.Status = *from.Status.DeepCopy() },
			validateStatefulSetStatus),
		Scale: &kind.Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				s := o.(*appsv1.StatefulSet)
				return value.OrZero(s.Spec.Replicas), s.Status.Replicas, scaleSelector(s.Spec.Selector)
			},
			Set: func(o runtime.Object, n int32) { o.(*appsv1.StatefulSet).Spec.Replicas = &n },
		},
	}
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	value.SetDefault(&s.Spec.Replicas, 1)
	value.SetDefault(&s.Spec.RevisionHistoryLimit, 10)
	value.SetEmpty(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	value.SetEmpty(&s.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		value.SetDefault(&s.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		value.SetDefault(&s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
		value.SetDefault(&s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	value.SetDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy,
		appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	value.SetEmpty(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	value.SetEmpty(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	podspec.DefaultTemplate(&s.Spec.Template)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		volume.DefaultClaim(claim)
		claim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	}
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.NotNegative(int64(value.OrZero(s.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, validate.NotNegative(int64(s.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	switch policy := s.Spec.PodManagementPolicy; policy {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), policy,
			"must be 'OrderedReady' or 'Parallel'"))
	}
	update := path.Child("updateStrategy")
	switch strategy := s.Spec.UpdateStrategy; strategy.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if strategy.RollingUpdate != nil {
			errs = append(errs, field.Invalid(update.Child("rollingUpdate"), strategy.RollingUpdate,
				"only allowed for updateStrategy 'RollingUpdate'"))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if r := strategy.RollingUpdate; r != nil {
			errs = append(errs,
				validate.NotNegative(int64(value.OrZero(r.Partition)), update.Child("rollingUpdate", "partition"))...)
			at := update.Child("rollingUpdate", "maxUnavailable")
			errs = append(errs, validate.CountOrShare(r.MaxUnavailable, at)...)
			if r.MaxUnavailable != nil && validate.IsZero(r.MaxUnavailable) {
				errs = append(errs, field.Invalid(at, r.MaxUnavailable, "cannot be 0"))
			}
		}
	default:
		errs = append(errs, field.Invalid(update, strategy, "must be 'RollingUpdate' or 'OnDelete'"))
	}
	if p := s.Spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		policies := []appsv1.PersistentVolumeClaimRetentionPolicyType{
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		}
		errs = append(errs, validate.Supported(p.WhenDeleted, policies, at.Child("whenDeleted"))...)
		errs = append(errs, validate.Supported(p.WhenScaled, policies, at.Child("whenScaled"))...)
	}
	if o := s.Spec.Ordinals; o != nil {
		errs = append(errs, validate.NotNegative(int64(o.Start), path.Child("ordinals", "start"))...)
	}
	errs = append(errs, validateTemplateSelector("StatefulSet", s.Spec.Selector, &s.Spec.Template, path)...)
	// The volumes for the claims are added when pods are created, so mounts may refer to them.
	template := s.Spec.Template.DeepCopy()
	for i, c := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, volume.ValidateClaim(&c.Spec, path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
		if !hasVolume(template.Spec.Volumes, c.Name) {
			template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{
				Name: c.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}},
			})
		}
	}
	errs = append(errs, podspec.ValidateTemplate(template, path.Child("template"))...)
	return append(errs, requireAlwaysRestart("StatefulSet", &s.Spec.Template.Spec, path.Child("template", "spec"))...)
}

func hasVolume(volumes []corev1.Volume, name string) bool {
	for _, v := range volumes {
		if v.Name == name {
			return true
		}
	}
	return false
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validateStatefulSet(s)
	statefulSetSpec := s.Spec.DeepCopy()
	statefulSetSpec.Replicas, statefulSetSpec.Template, statefulSetSpec.UpdateStrategy = old.Spec.Replicas,
		old.Spec.Template, old.Spec.UpdateStrategy
	statefulSetSpec.MinReadySeconds, statefulSetSpec.RevisionHistoryLimit = old.Spec.MinReadySeconds,
		old.Spec.RevisionHistoryLimit
	statefulSetSpec.Ordinals, statefulSetSpec.PersistentVolumeClaimRetentionPolicy = old.Spec.Ordinals,
		old.Spec.PersistentVolumeClaimRetentionPolicy
	if len(validate.Immutable(statefulSetSpec, &old.Spec, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than "+
			"'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "+
			"'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}
