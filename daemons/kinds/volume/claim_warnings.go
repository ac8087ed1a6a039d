package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/warn"
)

func ClassWarnings(d *warn.List, annotations map[string]string) {
	if _, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		d.Addf(field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), oldClassText)
	}
}

// ClaimWarnings warns about fractions of bytes.
func ClaimWarnings(d *warn.List, spec *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", spec.Resources.Requests}, {"limits", spec.Resources.Limits}} {
		if q, ok := list.of[corev1.ResourceStorage]; ok && q.MilliValue()%1000 != 0 {
			d.Addf(at.Child("resources", list.name).Key(string(corev1.ResourceStorage)),
				"fractional byte value %q is invalid, must be an integer", q.String())
		}
	}
}

const oldClassText = `deprecated since v1.8; use "storageClassName" attribute instead`
