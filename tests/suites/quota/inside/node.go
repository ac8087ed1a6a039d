package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/kubelet/volume"
)

// node is a kubelet's volumes, with claims of the sizes in bytes in sizes.
type node struct {
	*volume.Manager
	sizes     map[string]int64
	unbounded []string // the reason each time a volume had no bound
}

const mebibyte = 1 << 20

func newNode() *node {
	n := &node{sizes: map[string]int64{}}
	n.Manager = &volume.Manager{
		Root:        "/mnt/kubelet",
		Source:      fakeSource{n},
		Mounter:     volume.Kernel{},
		Provisioned: filepath.Join(mountPoint, "volumes"),
		Projects:    &volume.Projects{},
		OnUnbounded: func(_ string, reason error) { n.unbounded = append(n.unbounded, reason.Error()) },
	}
	return n
}

func (n *node) volumePath(name string) string { return filepath.Join(n.Provisioned, name) }

// useVolume makes a pod use a volume of a size. done ends the pod.
func (n *node) useVolume(name string, bytes int64) (done func() error, err error) {
	n.sizes[name] = bytes
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}},
	}
	done = func() error { return n.Teardown(string(p.UID)) }
	_, err = n.Setup(context.Background(), p)
	return done, err
}

// createVolumes creates volumes by using each once.
func (n *node) createVolumes(names ...string) error {
	for _, name := range names {
		done, err := n.useVolume(name, 4*mebibyte)
		if err := errors.Join(err, done()); err != nil {
			return err
		}
	}
	return nil
}

type fakeSource struct{ n *node }

var errNotFound = errors.New("there is none")

func (fakeSource) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, errNotFound
}
func (fakeSource) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errNotFound
}
func (fakeSource) Token(context.Context, *corev1.Pod, string, time.Duration) (string, time.Time, error) {
	return "", time.Time{}, errNotFound
}
func (fakeSource) TrustBundles(context.Context, string, string) ([]certificatesv1.ClusterTrustBundle, error) {
	return nil, errNotFound
}

func (fakeSource) PodCertificate(context.Context, *corev1.Pod, string, int,
	*corev1.PodCertificateProjection) (volume.KeyPair, time.Time, error) {
	return volume.KeyPair{}, time.Time{}, errNotFound
}

func (s fakeSource) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: name,
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, nil
}

func (s fakeSource) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": directory.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "d", Name: name, UID: types.UID(name)},
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(s.n.sizes[name], resource.BinarySI),
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: directory.Path(name)},
			},
		},
	}, nil
}

// fillFile writes bytes into a new file as an ordinary user. It returns how many it could write, and the error that
// stopped it.
func fillFile(path string, bytes int64) (int64, string, error) {
	// Like a container, the process has access to the directory without access to its parent directories.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return 0, "", err
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe", "write", filepath.Join("/proc/self/fd/3", filepath.Base(path)),
		strconv.FormatInt(bytes, 10))
	cmd.ExtraFiles = []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, "", fmt.Errorf("%w: %s", err, out)
	}
	first, rest, _ := strings.Cut(string(out), " ")
	wrote, err := strconv.ParseInt(first, 10, 64)
	return wrote, rest, err
}

// writeAsUser is the process that fill runs.
func writeAsUser(path, bytes string) {
	left, err := strconv.ParseInt(bytes, 10, 64)
	wrote := int64(0)
	var f *os.File
	if err == nil {
		f, err = os.Create(path)
	}
	for piece := make([]byte, 64<<10); err == nil && left > 0; left -= int64(len(piece)) {
		var n int
		n, err = f.Write(piece)
		wrote += int64(n)
	}
	if err == nil {
		err = f.Sync()
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	fmt.Printf("%d %s", wrote, reason)
}
