package dev

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The hook of a chart runs an image with its own command, an init container before it and a sidecar.
// Proves S19.
func TestJobsOfUnknownImagesEndOnHollowNodes(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		spec := podSpec("/bin/migrate", "--all")
		spec.RestartPolicy = policy
		spec.InitContainers = []corev1.Container{
			{Name: "proxy", Image: "example.com/proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			{Name: "wait", Image: "example.com/wait:1"},
		}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "hook-"},
			Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
		}
		job = must[*batchv1.Job](t)(sharedClient.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{}))
		waitFor(t, "the job to complete", func(ctx context.Context) (bool, any) {
			j, err := sharedClient.BatchV1().Jobs(ns).Get(ctx, job.Name, metav1.GetOptions{})
			return err == nil && j.Status.Succeeded == 1 && hasJobCondition(batchv1.JobComplete, "")(j.Status), j
		})
	}
}

func TestInitContainersOfUnknownImagesEndAndTheRestRunsOn(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	spec := podSpec("/bin/serve")
	spec.InitContainers = []corev1.Container{{Name: "wait", Image: "example.com/wait:1"}}
	must[*corev1.Pod](t)(
		sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec},
				metav1.CreateOptions{}),
	)
	waitFor(t, "the pod to be ready", func(ctx context.Context) (bool, any) {
		p, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		return err == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready, p
	})
}

func TestASubPathMayBeAFileOnHollowNodes(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	must[*corev1.ConfigMap](t)(sharedClient.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "files",
		}, Data: map[string]string{"app.conf": "x"}}, metav1.CreateOptions{}))
	spec := podSpec()
	spec.Volumes = []corev1.Volume{
		{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "files"}}}},
	}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "files", MountPath: "/etc/app.conf", SubPath: "app.conf"},
	}
	must[*corev1.Pod](t)(
		sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec},
				metav1.CreateOptions{}),
	)
	waitFor(t, "the pod to be ready", func(ctx context.Context) (bool, any) {
		p, err := sharedClient.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		return err == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready, p
	})
}

// Proves S20.
func TestTheServiceKubernetesHasAnEndpoint(t *testing.T) {
	t.Parallel()
	waitFor(t, "an endpoint and a slice", func(ctx context.Context) (bool, any) {
		e, err := sharedClient.CoreV1().
			Endpoints("default").
			Get(ctx, "kubernetes", metav1.GetOptions{})
			//nolint:staticcheck // clients read them still
		if err != nil || len(e.Subsets) != 1 || len(e.Subsets[0].Addresses) != 1 {
			return false, err
		}
		s, err := sharedClient.DiscoveryV1().
			EndpointSlices("default").
			List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
		return err == nil && len(s.Items) == 1 && len(s.Items[0].Endpoints) == 1, err
	})
}

// Components with a lease end if they cannot renew it in time, as on a laptop that sleeps. So a development cluster's
// leases last a year.
func TestLeasesOfADevelopmentClusterAreNotRenewed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		l := must[*coordinationv1.Lease](t)(sharedClient.CoordinationV1().Leases("kube-system").Get(t.Context(), name,
			metav1.GetOptions{}))
		if l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds < 365*24*3600 {
			t.Errorf("the lease %s is to be renewed: %+v", name, l.Spec)
		}
	}
}
