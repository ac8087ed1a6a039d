package admission

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/authz"
)

// serviceAccount sets the service account of every pod, and mounts the account's token, the cluster's CA and the
// namespace as files.
type serviceAccount struct{ objects api.CurrentObjects }

const (
	defaultAccount       = "default"
	tokenMountPath       = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolume          = "kube-api-access-"
	tokenLifetimeSeconds = int64(3607)
	rootCAName           = "kube-root-ca.crt"

	// accountPatience is how long to wait for the default account of a new namespace. A controller creates it, and the
	// first pod must not fail because it is faster.
	accountPatience     = time.Second
	accountPollInterval = 5 * time.Millisecond
)

// Admit sets the account and mounts its files.
func (p *serviceAccount) Admit(ctx context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || isMirrorPod(pod) {
		return nil
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	if pod.Spec.ServiceAccountName == defaultAccount {
		p.waitForDefaultAccount(ctx, a.Namespace)
	}
	obj, err := currentObject(ctx, p.objects, serviceAccountsGR, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if obj == nil {
		return forbidden(a, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found",
			a.Namespace, pod.Spec.ServiceAccountName, pod.Spec.ServiceAccountName))
	}
	account := obj.(*corev1.ServiceAccount)
	if wantsToken(pod, account) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append([]corev1.LocalObjectReference(nil), account.ImagePullSecrets...)
	}
	return nil
}

// waitForDefaultAccount returns when the cache has the default account of a namespace, or after accountPatience.
func (p *serviceAccount) waitForDefaultAccount(ctx context.Context, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, accountPatience)
	defer cancel()
	tick := time.NewTicker(accountPollInterval)
	defer tick.Stop()
	for {
		if _, ok := p.objects.Get(serviceAccountsGR, namespace, defaultAccount); ok {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Validate refuses mirror pods that use API objects, because the author of the manifest on the machine could read them.
// Other pods may use only the Secrets that their account allows.
func (p *serviceAccount) Validate(_ context.Context, a *api.Admission) error {
	debugged := a.Resource.GroupResource() == podsGR && a.Operation == "UPDATE" &&
		a.Subresource == "ephemeralcontainers"
	if !isOperation(a, "CREATE", podsGR) && !debugged {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if !isMirrorPod(pod) {
		if err := p.checkMountable(a, pod); err != nil {
			return forbidden(a, err)
		}
		return nil
	}
	if debugged {
		return nil
	}
	if pod.Spec.ServiceAccountName != "" {
		return forbidden(a, fmt.Errorf("a mirror pod may not reference service accounts"))
	}
	for resource := range authz.PodReferences(pod) {
		if resource == "secrets" {
			return forbidden(a, fmt.Errorf("a mirror pod may not reference secrets"))
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					return forbidden(a, fmt.Errorf("a mirror pod may not use ServiceAccountToken volume projections"))
				}
			}
		}
	}
	return nil
}

func isMirrorPod(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

func wantsToken(pod *corev1.Pod, account *corev1.ServiceAccount) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}

// mountToken mounts the account's files in every container that mounts nothing at that path.
func mountToken(pod *corev1.Pod) {
	name := ""
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume) {
			name = v.Name
		}
	}
	fresh := name == ""
	if fresh {
		name = tokenVolume + rand.String(5)
	}
	mounted := false
	mount := func(list []corev1.Container) {
		for i := range list {
			if mountsAt(&list[i], tokenMountPath) {
				continue
			}
			list[i].VolumeMounts = append(list[i].VolumeMounts,
				corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
			mounted = true
		}
	}
	mount(pod.Spec.InitContainers)
	mount(pod.Spec.Containers)
	if fresh && mounted {
		pod.Spec.Volumes = append(pod.Spec.Volumes,
			corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenFiles()}})
	}
}

func mountsAt(c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path {
			return true
		}
	}
	return false
}

func tokenFiles() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, tokenLifetimeSeconds
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: rootCAName},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}}
}
