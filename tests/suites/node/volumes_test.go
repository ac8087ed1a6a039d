package node

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createBoundVolume creates a persistent volume and a claim that is bound to it.
func (n *node) createBoundVolume(name string, mode corev1.PersistentVolumeMode, path string) {
	n.Helper()
	ctx := context.Background()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	none, modes := "", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	claims := n.admin.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Create(
		ctx,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeMode: &mode, StorageClassName: &none, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}}},
		metav1.CreateOptions{},
	)
	if err != nil {
		n.Fatal(err)
	}
	_, err = n.admin.CoreV1().
		PersistentVolumes().
		Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, VolumeMode: &mode,
				ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
				NodeAffinity: &corev1.VolumeNodeAffinity{
					Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpExists},
						}}}},
				}}}, metav1.CreateOptions{})
	if err != nil {
		n.Fatal(err)
	}
	claim.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		n.Fatal(err)
	}
}

func claimVolumes(name string) []corev1.Volume {
	return []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			},
		},
	}
}

// A device of the machine is a device in a container, and only that container can use it. The pod's directory contains
// none afterwards.
func TestBlockVolumesAreDevices(t *testing.T) {
	n := startNode(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 211))); err != nil {
		t.Fatal(err)
	}
	n.createBoundVolume("disk", corev1.PersistentVolumeBlock, disk)
	device := func(p *corev1.Pod) {
		p.Spec.Volumes = claimVolumes("disk")
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/data"}}
	}
	n.createPod(n.newShellPod("has", `test -b /dev/data && stat -c "%t:%T" /dev/data; sleep 1000`, device))
	n.waitFor("the pod to say what device it has",
		func() bool { return strings.Contains(n.logOf("has", corev1.PodLogOptions{}), "7:d3") })
	n.createPod(n.newShellPod("wants", "sleep 1000", device))
	n.waitFor("the other pod to be told that it cannot have it", func() bool {
		events, err := n.admin.CoreV1().
			Events("default").
			List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=wants"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message,
				"volume uses the ReadWriteOncePod access mode and is already in use by another pod") {
				return true
			}
		}
		return false
	})
	n.deletePod("has")
	n.waitFor("the other pod to have it", func() bool { return isReady(n.getPod("wants")) })
	n.deletePod("wants")
	n.waitFor("the pods to go", func() bool { return n.getPod("has") == nil && n.getPod("wants") == nil })
}

// A restarted container has the present content of its sub-path: a ConfigMap's new value, and a directory that has
// replaced the former one.
func TestRestartedContainersMountTheCurrentSubPath(t *testing.T) {
	n := startNode(t)
	ctx := context.Background()
	maps := n.admin.CoreV1().ConfigMaps("default")
	cm, err := maps.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm"}, Data: map[string]string{"k": "first"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.createPod(
		n.newShellPod(
			"again",
			`echo $(cat /conf) $(cat /mine/from); while [ ! -e /all/go ]; do sleep 0.1; done; rm /all/go; mv /all/sub /all/was; mkdir /all/sub; echo new >/all/sub/from; exit 1`,
			func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyAlways
				p.Spec.Volumes = []corev1.Volume{
					{
						Name: "cfg",
						VolumeSource: corev1.VolumeSource{
							ConfigMap: &corev1.ConfigMapVolumeSource{
								LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
							},
						},
					},
					{Name: "w", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				all := corev1.VolumeMount{Name: "w", MountPath: "/all"}
				p.Spec.InitContainers = []corev1.Container{
					{
						Name:         "first",
						Image:        n.containerd.Busybox,
						Command:      []string{"sh", "-c", "mkdir /all/sub; echo old >/all/sub/from"},
						VolumeMounts: []corev1.VolumeMount{all},
					},
				}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{all, {Name: "cfg", MountPath: "/cfg"},
					{Name: "cfg", MountPath: "/conf", SubPath: "k"}, {Name: "w", MountPath: "/mine", SubPath: "sub"}}
			},
		),
	)
	contains := func(want string) func() bool {
		return func() bool {
			return strings.TrimSpace(n.logOf("again", corev1.PodLogOptions{Container: "main"})) == want
		}
	}
	n.waitFor("the container to have what there was at first", contains("first old"))
	cm.Data["k"] = "second"
	if _, err := maps.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the new value in the pod",
		func() bool { out, _, _ := n.exec("again", nil, "cat", "/cfg/k"); return out == "second" })
	if out, _, err := n.exec("again", nil, "cat", "/conf"); err != nil || out != "first" {
		t.Errorf("the container that runs has %q by its sub-path: %v", out, err)
	}
	if _, _, err := n.exec("again", nil, "touch", "/all/go"); err != nil {
		t.Fatal(err)
	}
	n.waitFor("the container that began anew to have what there is by then", contains("second new"))
	n.deletePod("again")
	n.waitFor("the pod to go", func() bool { return n.getPod("again") == nil })
}
