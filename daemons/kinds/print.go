package kinds

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// noneText is kubectl's text for an empty value.
const noneText = "<none>"

// age returns how long ago t was, as "5d2h".
func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Now().Sub(t.Time))
}

func ageMicro(t metav1.MicroTime) string { return age(metav1.Time(t)) }

// orNone returns s, or <none> if it is empty.
func orNone(s string) string {
	if s == "" {
		return noneText
	}
	return s
}

func selectorText(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }

func labelText(m map[string]string) string { return labels.FormatLabels(m) }

// containerNames and containerImages return the cells CONTAINERS and IMAGES.
func containerNames(spec *corev1.PodSpec) string {
	names := make([]string, 0, len(spec.Containers))
	for _, c := range spec.Containers {
		names = append(names, c.Name)
	}
	return strings.Join(names, ",")
}

func containerImages(spec *corev1.PodSpec) string {
	images := make([]string, 0, len(spec.Containers))
	for _, c := range spec.Containers {
		images = append(images, c.Image)
	}
	return strings.Join(images, ",")
}

// joinLimited joins the first limit entries and appends how many follow.
func joinLimited(list []string, limit int) string {
	if len(list) == 0 {
		return noneText
	}
	if len(list) <= limit {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], ","), len(list)-limit)
}

// accessModes abbreviates access modes, without duplicates and in a fixed order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		for _, have := range modes {
			if have == m.mode {
				out = append(out, m.short)
				break
			}
		}
	}
	return strings.Join(out, ",")
}
