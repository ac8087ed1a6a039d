package volume

import (
	"context"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A projected volume has the trust anchors of the named bundle, or of the selected bundles of a signer.
// Proves S30.
func TestTrustAnchorsAreProjected(t *testing.T) {
	cert := func(text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
	}
	bundle := func(name, signer, label, text string) certificatesv1.ClusterTrustBundle {
		return certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"v": label}},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
		}
	}
	const signer, other = "example.com/s", "example.com/o"
	bundles := []certificatesv1.ClusterTrustBundle{
		bundle("plain", "", "", "said before\n"+cert("b")+"\nand between\n"+cert("a")),
		bundle("example.com:s:1", signer, "old",
			cert("a")+cert("b")), bundle("example.com:s:2", signer, "new", cert("b")+cert("c")),
		bundle("example.com:o:1", other, "new", cert("d")),
	}
	of := func(name string) *string { return &name }
	yes, all := true, &metav1.LabelSelector{}
	young := &metav1.LabelSelector{MatchLabels: map[string]string{"v": "new"}}
	for name, c := range map[string]struct {
		p    corev1.ClusterTrustBundleProjection
		want string // want or err is set
		err  string
	}{
		"one": {corev1.ClusterTrustBundleProjection{Name: of("plain")}, cert("a") + cert("b"),
			""},
		"one of a signer": {corev1.ClusterTrustBundleProjection{Name: of("example.com:s:1")}, cert("a") +
			cert("b"), ""},
		"one that is not there":     {corev1.ClusterTrustBundleProjection{Name: of("none")}, "", "not found"},
		"one that may not be there": {corev1.ClusterTrustBundleProjection{Name: of("none"), Optional: &yes}, "", ""},
		"all of a signer": {corev1.ClusterTrustBundleProjection{SignerName: of(signer), LabelSelector: all},
			cert("a") + cert("b") + cert("c"), ""},
		"some of a signer": {corev1.ClusterTrustBundleProjection{SignerName: of(signer), LabelSelector: young},
			cert("b") + cert("c"), ""},
		"no selector selects none": {corev1.ClusterTrustBundleProjection{SignerName: of(signer)}, "",
			"matched zero ClusterTrustBundles"},
		"a signer without any": {corev1.ClusterTrustBundleProjection{SignerName: of("example.com/x"),
			LabelSelector: all}, "", "matched zero ClusterTrustBundles"},
		"a signer that may be": {corev1.ClusterTrustBundleProjection{SignerName: of("example.com/x"),
			LabelSelector: all, Optional: &yes}, "", ""},
		"neither": {corev1.ClusterTrustBundleProjection{}, "", "names neither a bundle nor a signer"},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := manager(t)
			s.bundles = bundles
			c.p.Path = "deep/ca.pem"
			_, err := m.Setup(
				context.Background(),
				newPod(
					corev1.VolumeSource{
						Projected: &corev1.ProjectedVolumeSource{
							Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &c.p}},
						},
					},
				),
			)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := readVolume(t, m, "kubernetes.io~projected", "deep/ca.pem"); got != c.want {
				t.Errorf("it has\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
