package volume

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Proves S30.
func TestKeysAndCertificatesOfPodsAreProjected(t *testing.T) {
	own, group := int64(7), int64(1000)
	for name, row := range map[string]struct {
		source corev1.PodCertificateProjection
		group  *int64
		want   map[string]string // content by path
		mode   string
		user   *int64
	}{
		"a bundle": {corev1.PodCertificateProjection{CredentialBundlePath: "all.pem"}, nil,
			map[string]string{"all.pem": "key of v\nchain 1\n"}, "-rw-r--r--", nil},
		"two files": {corev1.PodCertificateProjection{KeyPath: "k/key.pem", CertificateChainPath: "chain.pem"}, nil,
			map[string]string{"k/key.pem": "key of v\n", "chain.pem": "chain 1\n"}, "-rw-r--r--", nil},
		"for a group": {corev1.PodCertificateProjection{KeyPath: "key.pem"}, &group,
			map[string]string{"key.pem": "key of v\n"}, "-rw-------", nil},
		"of a user's own": {corev1.PodCertificateProjection{KeyPath: "key.pem", User: &own}, nil,
			map[string]string{"key.pem": "key of v\n"}, "-rw-r--r--", &own},
	} {
		row.source.SignerName = "example.com/s"
		p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: row.group}}}
		v := &corev1.Volume{Name: "v",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
					{PodCertificate: &row.source}}}}}
		m := &Manager{Source: &fakeSource{}}
		files, again, err := contents{m.Source, m.Node, &generatedBudget{}}.files(t.Context(), p, v)
		if err != nil || !again.Equal(time.Unix(4000, 0)) {
			t.Errorf("%s: again at %s, %v", name, again, err)
		}
		delete(files, "token")
		got := map[string]string{}
		for path, f := range files {
			got[path] = string(f.data)
			if f.mode.String() != row.mode || (f.user == nil) != (row.user == nil) {
				t.Errorf("%s: %s has the mode %s and the user %v", name, path, f.mode, f.user)
			}
		}
		if !maps.Equal(got, row.want) {
			t.Errorf("%s: files are %q, want %q", name, got, row.want)
		}
	}
	v := &corev1.Volume{Name: "v",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{KeyPath: "k"}}}}}}
	from := contents{source: &fakeSource{}, budget: &generatedBudget{}}
	if _, _, err := from.files(t.Context(), &corev1.Pod{}, v); err == nil ||
		!strings.Contains(err.Error(), "issued nothing") {
		t.Errorf("a certificate that is not issued: %v", err)
	}
}
