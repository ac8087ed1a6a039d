package dev

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// createQuota creates a quota.
func createQuota(t *testing.T, namespace, name string, spec corev1.ResourceQuotaSpec) {
	t.Helper()
	must[*corev1.ResourceQuota](t)(sharedClient.CoreV1().ResourceQuotas(namespace).Create(t.Context(),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))
}

// awaitUsage waits until a quota's status has the given values.
func awaitUsage(t *testing.T, namespace, name string, pairs ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("quota %s to say %v", name, pairs), func(ctx context.Context) (bool, any) {
		q, err := sharedClient.CoreV1().ResourceQuotas(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		same := len(q.Status.Used) == len(pairs)/2 && len(q.Status.Hard) == len(q.Spec.Hard)
		for i := 0; i < len(pairs); i += 2 {
			used, ok := q.Status.Used[corev1.ResourceName(pairs[i])]
			same = same && ok && used.Cmp(resource.MustParse(pairs[i+1])) == 0
		}
		return same, q.Status
	})
}

func resourceList(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// Proves S12.
func TestQuotasReportTheirUsage(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createQuota(
		t,
		ns,
		"all",
		corev1.ResourceQuotaSpec{Hard: resourceList("pods", "3", "requests.cpu", "2", "count/deployments.apps", "1",
			"configmaps", "9", "secrets", "4", "services.nodeports", "2", "requests.storage", "5Gi",
			"fast.storageclass.storage.k8s.io/requests.storage", "2Gi", "count/nothing.example.com", "1")},
	)
	awaitUsage(t, ns, "all", "pods", "0", "requests.cpu", "0", "count/deployments.apps", "0", "configmaps", "1",
		"secrets", "0", "services.nodeports", "0", "requests.storage", "0",
		"fast.storageclass.storage.k8s.io/requests.storage", "0")
	createQuota(
		t,
		ns,
		"idle",
		corev1.ResourceQuotaSpec{
			Hard:   resourceList("pods", "3"),
			Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
		},
	)
	awaitUsage(t, ns, "idle", "pods", "0")
	createDeployment(t, ns, 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = resourceList("cpu", "300m")
	})
	awaitRollout(t, ns)
	fast := "fast"
	must[*corev1.PersistentVolumeClaim](t)(
		sharedClient.CoreV1().
			PersistentVolumeClaims(ns).
			Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &fast,
					AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
					Resources:        corev1.VolumeResourceRequirements{Requests: resourceList("storage", "1Gi")},
				}}, metav1.CreateOptions{}),
	)
	must[*corev1.Service](t)(
		sharedClient.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
			Spec: corev1.ServiceSpec{
				Type:  corev1.ServiceTypeNodePort,
				Ports: []corev1.ServicePort{{Port: 80}},
			}}, metav1.CreateOptions{}),
	)
	must[*corev1.Secret](t)(
		sharedClient.CoreV1().
			Secrets(ns).
			Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}),
	)
	full := []string{"pods", "2", "requests.cpu", "600m", "count/deployments.apps", "1", "configmaps", "1",
		"secrets", "1", "services.nodeports", "1", "requests.storage", "1Gi",
		"fast.storageclass.storage.k8s.io/requests.storage", "1Gi"}
	awaitUsage(t, ns, "all", full...)
	awaitUsage(t, ns, "idle", "pods", "0")
	// The status shows the usage that admission enforces.
	second := must[*appsv1.Deployment](t)(sharedClient.AppsV1().Deployments(ns).Get(t.Context(), "web",
		metav1.GetOptions{}))
	second.ObjectMeta = metav1.ObjectMeta{Name: "second"}
	_, err := sharedClient.AppsV1().Deployments(ns).Create(t.Context(), second, metav1.CreateOptions{})
	if want := "exceeded quota: all, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: " +
		"count/deployments.apps=1"; !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("a second deployment: %v", err)
	}
	// The usage of a deleted object is released, and a changed limit is shown at once.
	if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sharedClient.CoreV1().ResourceQuotas(ns).Patch(t.Context(), "all", types.MergePatchType, []byte(`{"spec":{"hard":{"requests.storage":null,"secrets":"7"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitUsage(t, ns, "all", "pods", "0", "requests.cpu", "0", "count/deployments.apps", "0", "configmaps", "1",
		"secrets", "1", "services.nodeports", "1", "fast.storageclass.storage.k8s.io/requests.storage", "1Gi")
}

// A claim for devices, and a pod that requests the resource of their class, use the same quota.
// Proves S12.
func TestDevicesConsumeTheQuotaOfTheirClass(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	const gpu = "quota.example.com/gpu"
	must[*resourcev1.DeviceClass](t)(sharedClient.ResourceV1().DeviceClasses().Create(t.Context(),
		&resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{
				Name: "quota-gpu",
			}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To(gpu)}}, metav1.CreateOptions{}))
	t.Cleanup(func() {
		if err := sharedClient.ResourceV1().DeviceClasses().Delete(context.Background(), "quota-gpu",
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	claim := func(name string, count int64) error {
		_, err := sharedClient.ResourceV1().
			ResourceClaims(ns).
			Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: resourcev1.ResourceClaimSpec{
					Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r",
						Exactly: &resourcev1.ExactDeviceRequest{
							DeviceClassName: "quota-gpu",
							AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
							Count:           count,
						}}}},
				}}, metav1.CreateOptions{})
		return err
	}
	createQuota(
		t,
		ns,
		"gpus",
		corev1.ResourceQuotaSpec{
			Hard: resourceList("requests."+gpu, "3", "requests.deviceclass.resource.kubernetes.io/quota-gpu", "9",
				"quota-gpu.deviceclass.resource.k8s.io/devices", "9"),
		},
	)
	if err := claim("two", 2); err != nil {
		t.Fatal(err)
	}
	awaitUsage(t, ns, "gpus", "requests."+gpu, "2", "requests.deviceclass.resource.kubernetes.io/quota-gpu", "2",
		"quota-gpu.deviceclass.resource.k8s.io/devices", "2")
	asks := func(name string) error {
		spec := podSpec()
		spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: resourceList(gpu, "1"),
			Limits: resourceList(gpu, "1")}
		_, err := sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
				metav1.CreateOptions{})
		return err
	}
	if err := asks("one"); err != nil {
		t.Fatal(err)
	}
	awaitUsage(t, ns, "gpus", "requests."+gpu, "3", "requests.deviceclass.resource.kubernetes.io/quota-gpu", "2",
		"quota-gpu.deviceclass.resource.k8s.io/devices", "2")
	for name, err := range map[string]error{"a pod": asks("more"), "a claim": claim("more", 1)} {
		if !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "exceeded quota: gpus, requested: requests.quota.example.com/gpu=1, used: "+
				"requests.quota.example.com/gpu=3, limited: requests.quota.example.com/gpu=3") {
			t.Errorf("%s beyond it: %v", name, err)
		}
	}
}
