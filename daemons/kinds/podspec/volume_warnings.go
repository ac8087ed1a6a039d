package podspec

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
	"clusterctl/daemons/kinds/warn"
)

// volumeWarnings warns about volumes of types that have no driver any more, and about files of one volume with
// overlapping paths.
func volumeWarnings(d *warn.List, volumes []corev1.Volume, at *field.Path) {
	for i := range volumes {
		v, where := &volumes[i], at.Index(i)
		for _, old := range []struct {
			set        bool
			name, text string
		}{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
			{v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"},
			{v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
			{v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
			{v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if old.set {
				d.Addf(where.Child(old.name), "%s", old.text)
			}
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			volume.ClaimWarnings(d, &v.Ephemeral.VolumeClaimTemplate.Spec,
				where.Child("ephemeral", "volumeClaimTemplate", "spec"))
		}
	}
	for i := range volumes {
		overlapWarnings(d, &volumes[i])
	}
}

// filePath is the path of a file in a volume. For volumes with several sources, it includes the source.
type filePath struct{ path, source string }

func (f filePath) String() string {
	if f.source == "" {
		return strconv.Quote(f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlapWarnings warns about files of one volume with the same path, or with a path below another file.
func overlapWarnings(d *warn.List, v *corev1.Volume) {
	var files []filePath
	about := "Projected"
	switch {
	case v.ConfigMap != nil:
		files, about = keyFiles(v.ConfigMap.Items, ""), fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name)
	case v.Secret != nil:
		files, about = keyFiles(v.Secret.Items, ""), fmt.Sprintf("Secret %q", v.Secret.SecretName)
	case v.DownwardAPI != nil:
		files, about = downwardPaths(v.DownwardAPI.Items, ""), "DownwardAPI"
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if countSetFields(&v.Projected.Sources[i]) == 0 {
				d.Add(fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			}
			files = append(files, sourceFiles(&v.Projected.Sources[i])...)
		}
	}
	for i := range files {
		f := &files[i]
		f.path = strings.TrimRight(f.path, "/")
		for _, other := range files[max(0, i-warn.MaxComparisons):i] {
			if !d.IsFull() && f.path != "" && other.path != "" &&
				(strings.HasPrefix(f.path+"/", other.path+"/") || strings.HasPrefix(other.path+"/", f.path+"/")) {
				d.Add(fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, about, f, other))
			}
		}
	}
}

// sourceFiles returns the files that a source of a projected volume names.
func sourceFiles(s *corev1.VolumeProjection) []filePath {
	switch {
	case s.ConfigMap != nil:
		return keyFiles(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil:
		return keyFiles(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil:
		return downwardPaths(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []filePath{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := value.OrZero(s.ClusterTrustBundle.Name)
		if s.ClusterTrustBundle.Name == nil {
			name = value.OrZero(s.ClusterTrustBundle.SignerName)
		}
		return []filePath{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", name)}}
	case s.PodCertificate != nil:
		return []filePath{
			{
				s.PodCertificate.CertificateChainPath,
				"PodCertificate chain",
			}, {s.PodCertificate.KeyPath, "PodCertificate key"},
			{s.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"},
		}
	}
	return nil
}

func keyFiles(items []corev1.KeyToPath, source string) []filePath {
	var files []filePath
	for _, item := range items {
		files = append(files, filePath{item.Path, source})
	}
	return files
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile, source string) []filePath {
	var files []filePath
	for _, item := range items {
		files = append(files, filePath{item.Path, source})
	}
	return files
}
