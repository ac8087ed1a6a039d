package volume

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/kubelet/pod"
)

// volumeFile is one file of a volume that is generated from data.
type volumeFile struct {
	data []byte
	mode fs.FileMode
	user *int64 // owner; nil means root
}

// Bounds of the files of a pod that are generated from API objects. A pod can name the same object thousands of times.
// The files of Secrets are in memory, which the pod's limits do not count.
const (
	maxGenerated = 64 << 20 // bytes
	fileOverhead = 512      // about the bytes that a file takes besides its content
)

// generatedBudget limits the files of a pod. It is safe for concurrent use.
type generatedBudget struct{ used atomic.Int64 }

// take counts a file. It returns an error if the pod has too many, or too large ones.
func (b *generatedBudget) take(size int) error {
	if b.used.Add(int64(size)+fileOverhead) > maxGenerated {
		return fmt.Errorf("the files of the pod's volumes from API objects take more than %d bytes", maxGenerated)
	}
	return nil
}

// fileSet are the files of a volume.
type fileSet struct {
	files  map[string]volumeFile
	budget *generatedBudget
}

func (s *fileSet) add(path string, f volumeFile) error {
	if err := s.budget.take(len(f.data)); err != nil {
		return err
	}
	s.files[path] = f
	return nil
}

// contents makes the files of volumes that are generated from API objects.
type contents struct {
	source Source
	node   func() pod.Node
	budget *generatedBudget // of the pod
}

// files returns the wanted files of a volume generated from API objects, by path. It also returns when the files must
// be refreshed; zero means no fixed time.
func (c contents) files(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (map[string]volumeFile,
	time.Time, error) {
	all := &fileSet{map[string]volumeFile{}, c.budget}
	switch {
	case v.ConfigMap != nil:
		m := v.ConfigMap
		return all.files, time.Time{},
			c.addConfigMap(ctx, p.Namespace, m.Name, m.Items, m.Optional, fileMode(m.DefaultMode), all)
	case v.Secret != nil:
		s := v.Secret
		return all.files, time.Time{},
			c.addSecret(ctx, p.Namespace, s.SecretName, s.Items, s.Optional, fileMode(s.DefaultMode), all)
	case v.DownwardAPI != nil:
		return all.files, time.Time{}, c.addDownward(p, v.DownwardAPI.Items, fileMode(v.DownwardAPI.DefaultMode), all)
	case v.Projected != nil:
		again, err := c.addProjected(ctx, p, v, all)
		return all.files, again, err
	}
	return nil, time.Time{}, fmt.Errorf("volume %s: its type is not supported", v.Name)
}

func fileMode(m *int32) fs.FileMode {
	if m == nil {
		return 0o644
	}
	return fs.FileMode(*m)
}

func (c contents) addProjected(ctx context.Context, p *corev1.Pod, v *corev1.Volume, all *fileSet,
) (again time.Time, err error) {
	perm := fileMode(v.Projected.DefaultMode)
	soonest := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	// Only the pod's user or group can read tokens and keys, if the pod has a common user or an fsGroup.
	only, user := perm, commonUser(p)
	if user != nil || fsGroup(p) != nil {
		only = 0o600
	}
	for i, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil:
			err = c.addConfigMap(ctx, p.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, perm, all)
		case s.Secret != nil:
			err = c.addSecret(ctx, p.Namespace, s.Secret.Name, s.Secret.Items, s.Secret.Optional, perm, all)
		case s.DownwardAPI != nil:
			err = c.addDownward(p, s.DownwardAPI.Items, perm, all)
		case s.ClusterTrustBundle != nil:
			var anchors []byte
			if anchors, err = c.trustAnchors(ctx, s.ClusterTrustBundle); err == nil {
				err = all.add(s.ClusterTrustBundle.Path, volumeFile{anchors, only, user})
			}
		case s.ServiceAccountToken != nil:
			t := s.ServiceAccountToken
			lifetime := time.Hour
			if t.ExpirationSeconds != nil {
				lifetime = time.Duration(*t.ExpirationSeconds) * time.Second
			}
			token, renew, err := c.source.Token(ctx, p, t.Audience, lifetime)
			if err != nil {
				return again, fmt.Errorf("failed to fetch token: %w", err)
			}
			soonest(renew)
			if err := all.add(t.Path, volumeFile{[]byte(token), only, user}); err != nil {
				return again, err
			}
		case s.PodCertificate != nil:
			wanted := s.PodCertificate
			pair, renew, err := c.source.PodCertificate(ctx, p, v.Name, i, wanted)
			if err != nil {
				return again, err
			}
			soonest(renew)
			owner := user
			if wanted.User != nil {
				owner = wanted.User
			}
			for path, data := range map[string][]byte{
				wanted.CredentialBundlePath: slices.Concat(pair.Key, pair.Chain),
				wanted.KeyPath:              pair.Key, wanted.CertificateChainPath: pair.Chain,
			} {
				if path == "" {
					continue
				}
				if err := all.add(path, volumeFile{data, only, owner}); err != nil {
					return again, err
				}
			}
		default:
			err = fmt.Errorf("a source of projected volume has a type that is not supported")
		}
		if err != nil {
			return again, err
		}
	}
	return again, nil
}

// commonUser returns the user of all containers of a pod. It returns nil if they differ, or if one uses the image's
// user.
func commonUser(p *corev1.Pod) (user *int64) {
	for i, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		var own *int64
		if sc := p.Spec.SecurityContext; sc != nil {
			own = sc.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			own = c.SecurityContext.RunAsUser
		}
		if own == nil || i > 0 && *own != *user {
			return nil
		}
		user = own
	}
	return user
}

func (c contents) addConfigMap(
	ctx context.Context,
	namespace, name string,
	items []corev1.KeyToPath,
	optional *bool,
	perm fs.FileMode,
	all *fileSet,
) error {
	m, err := c.source.ConfigMap(ctx, namespace, name)
	if err != nil {
		return ignoreMissing(err, optional)
	}
	data := map[string][]byte{}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	for k, v := range m.BinaryData {
		data[k] = v
	}
	return selectItems("configmap references non-existent config key", data, items, optional, perm, all)
}

func (c contents) addSecret(
	ctx context.Context,
	namespace, name string,
	items []corev1.KeyToPath,
	optional *bool,
	perm fs.FileMode,
	all *fileSet,
) error {
	s, err := c.source.Secret(ctx, namespace, name)
	if err != nil {
		return ignoreMissing(err, optional)
	}
	return selectItems("references non-existent secret key", s.Data, items, optional, perm, all)
}

// ignoreMissing returns nil if err is "not found" and the reference is optional. Otherwise it returns err.
func ignoreMissing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

func selectItems(
	missing string,
	data map[string][]byte,
	items []corev1.KeyToPath,
	optional *bool,
	perm fs.FileMode,
	all *fileSet,
) error {
	if len(items) == 0 {
		for k, v := range data {
			if err := all.add(k, volumeFile{data: v, mode: perm}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s: %s", missing, item.Key)
		}
		f := volumeFile{data: v, mode: perm}
		if item.Mode != nil {
			f.mode = fs.FileMode(*item.Mode)
		}
		if err := all.add(item.Path, f); err != nil {
			return err
		}
	}
	return nil
}

func (c contents) addDownward(
	p *corev1.Pod,
	items []corev1.DownwardAPIVolumeFile,
	perm fs.FileMode,
	all *fileSet,
) error {
	node := c.node()
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = pod.Field(p, item.FieldRef.FieldPath, node)
		case item.ResourceFieldRef != nil:
			spec := pod.Find(p, item.ResourceFieldRef.ContainerName)
			if spec == nil {
				return fmt.Errorf("downward API: container %q not found", item.ResourceFieldRef.ContainerName)
			}
			value, err = pod.ResourceField(p, spec, item.ResourceFieldRef, node)
		}
		if err != nil {
			return err
		}
		f := volumeFile{data: []byte(value), mode: perm}
		if item.Mode != nil {
			f.mode = fs.FileMode(*item.Mode)
		}
		if err := all.add(item.Path, f); err != nil {
			return err
		}
	}
	return nil
}
