package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/kubelet/pod"
)

// fakeSource is a Source with given objects.
type fakeSource struct {
	configMaps map[string]*corev1.ConfigMap
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	bundles    []certificatesv1.ClusterTrustBundle
	calls      int
}

func (s *fakeSource) TrustBundles(
	_ context.Context,
	name, signer string,
) (list []certificatesv1.ClusterTrustBundle, err error) {
	for _, b := range s.bundles {
		if b.Name == name || name == "" && b.Spec.SignerName == signer {
			list = append(list, b)
		}
	}
	if name != "" && len(list) == 0 {
		err = apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), name)
	}
	return list, err
}

func (s *fakeSource) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if c := s.configMaps[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (s *fakeSource) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if name == "s" {
		return &corev1.Secret{Data: map[string][]byte{"a": []byte("1")}}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (s *fakeSource) Token(context.Context, *corev1.Pod, string, time.Duration) (string, time.Time, error) {
	s.calls++
	return "token", time.Unix(5000, 0), nil
}

func (s *fakeSource) PodCertificate(_ context.Context, _ *corev1.Pod, volume string, index int,
	c *corev1.PodCertificateProjection) (KeyPair, time.Time, error) {
	if c.SignerName == "" {
		return KeyPair{}, time.Time{}, errors.New("the signer has issued nothing")
	}
	return KeyPair{Key: []byte("key of " + volume + "\n"),
		Chain: fmt.Appendf(nil, "chain %d\n", index)}, time.Unix(4000, 0), nil
}

func (s *fakeSource) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if c := s.claims[namespace+"/"+name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func (s *fakeSource) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if v := s.volumes[name]; v != nil {
		return v, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
}

func manager(t *testing.T) (*Manager, *fakeSource) {
	s := &fakeSource{
		configMaps: map[string]*corev1.ConfigMap{
			"cm": {Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
		},
	}
	return &Manager{
		Root:    t.TempDir(),
		Source:  s,
		Mounter: Plain{},
		Node:    func() pod.Node { return pod.Node{Name: "n1"} },
	}, s
}

func newPod(v corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "d", UID: "u", Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}}},
	}
}

func readVolume(t *testing.T, m *Manager, kind, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.PodDir("u"), "volumes", kind, "v", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Proves S30.
func TestConfigMapVolumeIsUpdated(t *testing.T) {
	m, s := manager(t)
	p := newPod(
		corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}},
		},
	)
	for range 2 {
		if _, err := m.Setup(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	if readVolume(t, m, "kubernetes.io~configmap", "a") != "1" ||
		readVolume(t, m, "kubernetes.io~configmap", "bin") != "\x00\x01" {
		t.Error("wrong content")
	}
	s.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"a": "3"}}
	if _, err := m.Setup(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if readVolume(t, m, "kubernetes.io~configmap", "a") != "3" {
		t.Error("the new value is not there")
	}
	entries, _ := os.ReadDir(filepath.Join(m.PodDir("u"), "volumes", "kubernetes.io~configmap", "v"))
	if len(entries) != 3 { // a, ..data, and one version
		t.Errorf("there are %v", entries)
	}
	if err := m.Teardown("u"); err != nil {
		t.Fatal(err)
	}
	if left, _ := m.Pods(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Proves S30.
func TestMissingObjectsFailUnlessOptional(t *testing.T) {
	m, _ := manager(t)
	yes := true
	ref := corev1.LocalObjectReference{Name: "none"}
	of := func(key, path string, optional *bool) corev1.VolumeSource {
		return corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
				Items: []corev1.KeyToPath{{Key: key, Path: path}}, Optional: optional},
		}
	}
	for name, c := range map[string]struct {
		source corev1.VolumeSource
		want   string // part of the error; empty if there is none
	}{
		"demanded": {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref}}, `configmaps "none" not found`},
		"optional": {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref,
			Optional: &yes}}, ""},
		"missing key":          {of("x", "x", nil), `MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: x`},
		"optional missing key": {of("x", "x", &yes), ""},
		"path leads out":       {of("a", "../x", nil), "invalid path"},
		"secret":               {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}, `secrets "none" not found`},
		"optional secret": {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none",
			Optional: &yes}}, ""},
		"missing secret key": {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s",
			Items: []corev1.KeyToPath{{Key: "x", Path: "x"}}}}, "references non-existent secret key: x"},
		"claim": {corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: "none"}}, "failed to fetch PVC"},
	} {
		if _, err := m.Setup(context.Background(), newPod(c.source)); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Proves S09, S30.
func TestProjectedVolumeHasAllItsSources(t *testing.T) {
	m, _ := manager(t)
	p := newPod(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{
			ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
				Items:                []corev1.KeyToPath{{Key: "a", Path: "deep/ca.crt"}},
			},
		},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}},
	}}})
	again, err := m.Setup(context.Background(), p)
	if err != nil || !again.Equal(time.Unix(5000, 0)) {
		t.Fatalf("again at %v, %v", again, err)
	}
	for path, want := range map[string]string{"token": "token", "deep/ca.crt": "1", "namespace": "d", "labels": `app="x"`} {
		if got := readVolume(t, m, "kubernetes.io~projected", path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func TestWriteReplacesAllFiles(t *testing.T) {
	names := []string{"a", "b", "c/d", "c/e", "f.txt"}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "volume")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			want := map[string]volumeFile{}
			for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names") {
				want[n] = volumeFile{data: []byte(rapid.SampledFrom([]string{"", "x", "yy"}).Draw(t, "data")),
					mode: 0o644}
			}
			if err := writeFiles(dir, want, nil); err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				data, err := os.ReadFile(filepath.Join(dir, n))
				f, ok := want[n]
				if ok != (err == nil) || ok && string(data) != string(f.data) {
					t.Fatalf("%s: %q, %v; want %q, %t", n, data, err, f.data, ok)
				}
			}
		}
	})
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		kind corev1.HostPathType
		ok   bool
	}{
		{dir, corev1.HostPathDirectory, true}, {plain, corev1.HostPathDirectory, false},
		{plain, corev1.HostPathFile, true}, {dir, corev1.HostPathFile, false},
		{dir + "/new", corev1.HostPathDirectory, false}, {dir + "/new", corev1.HostPathDirectoryOrCreate, true},
		{dir + "/f", corev1.HostPathFileOrCreate, true},
		{"/dev/null", corev1.HostPathCharDev, true}, {plain, corev1.HostPathSocket, false},
		{"/dev/null", corev1.HostPathBlockDev, false}, {plain, corev1.HostPathDirectoryOrCreate, false},
		{dir, corev1.HostPathFileOrCreate, false}, {dir + "/any", corev1.HostPathUnset, true},
	} {
		err := checkHostPath(&corev1.HostPathVolumeSource{Path: c.path, Type: &c.kind})
		if (err == nil) != c.ok ||
			err != nil &&
				!strings.HasPrefix(err.Error(),
					"hostPath type check failed: "+c.path+" is not a "+hostPathKinds[c.kind]) {
			t.Errorf("%s as %q: %v", c.path, c.kind, err)
		}
	}
}
