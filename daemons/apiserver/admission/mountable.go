package admission

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
)

// mountableSecrets is the annotation of service accounts whose pods may use only the Secrets that the account lists.
const mountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// checkMountable returns an error if a pod uses a Secret that its account does not list.
func (p *serviceAccount) checkMountable(a *api.Admission, pod *corev1.Pod) error {
	obj, ok := p.objects.Get(serviceAccountsGR, a.Namespace, pod.Spec.ServiceAccountName)
	if !ok {
		return nil // Admit has checked that it exists
	}
	account := obj.(*corev1.ServiceAccount)
	if account.Annotations[mountableSecrets] != "true" {
		return nil
	}
	named := func(name string) bool {
		return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name })
	}
	const because = "is not allowed because service account %s does not reference that %s"
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !named(v.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=%q "+because, v.Secret.SecretName, account.Name, "secret")
		}
	}
	uses := func(what, container string, env []corev1.EnvVar, from []corev1.EnvFromSource) error {
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !named(e.ValueFrom.SecretKeyRef.Name) {
				return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q "+because, what, container,
					e.Name, e.ValueFrom.SecretKeyRef.Name, account.Name, "secret")
			}
		}
		for _, f := range from {
			if f.SecretRef != nil && !named(f.SecretRef.Name) {
				return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q "+because, what, container,
					f.SecretRef.Name, account.Name, "secret")
			}
		}
		return nil
	}
	for _, c := range pod.Spec.InitContainers {
		if err := uses("init container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := uses("container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if err := uses("ephemeral container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		if !slices.ContainsFunc(account.ImagePullSecrets,
			func(r corev1.LocalObjectReference) bool { return r.Name == s.Name }) {
			return fmt.Errorf("imagePullSecret %q "+because, s.Name, account.Name, "imagePullSecret")
		}
	}
	return nil
}
