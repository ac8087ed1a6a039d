// Package cell formats the cells of kubectl's columns.
package cell

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// NoneText is kubectl's text for an empty value.
const NoneText = "<none>"

// Age returns how long ago t was, as "5d2h".
func Age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// AgeMicro is Age for a time with microseconds.
func AgeMicro(t metav1.MicroTime) string { return Age(metav1.Time(t)) }

// OrNone returns s, or <none> if it is empty.
func OrNone(s string) string {
	if s == "" {
		return NoneText
	}
	return s
}

func SelectorText(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }

func LabelText(m map[string]string) string { return labels.FormatLabels(m) }

// ContainerNames and ContainerImages return the cells CONTAINERS and IMAGES.
func ContainerNames(spec *corev1.PodSpec) string {
	names := make([]string, 0, len(spec.Containers))
	for _, c := range spec.Containers {
		names = append(names, c.Name)
	}
	return strings.Join(names, ",")
}

func ContainerImages(spec *corev1.PodSpec) string {
	images := make([]string, 0, len(spec.Containers))
	for _, c := range spec.Containers {
		images = append(images, c.Image)
	}
	return strings.Join(images, ",")
}

// JoinLimited joins the first limit entries and appends how many follow.
func JoinLimited(list []string, limit int) string {
	if len(list) == 0 {
		return NoneText
	}
	if len(list) <= limit {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], ","), len(list)-limit)
}

// AccessModes abbreviates access modes, without duplicates and in a fixed order.
func AccessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		for _, current := range modes {
			if current == m.mode {
				out = append(out, m.short)
				break
			}
		}
	}
	return strings.Join(out, ",")
}
