package authz

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// parseRequest parses "verb group/resource[/sub] [namespace/]name [?fields]" or "verb /path".
func parseRequest(text string) api.Request {
	parts := strings.Fields(text)
	r := api.Request{Verb: parts[0]}
	if strings.HasPrefix(parts[1], "/") {
		r.Path = parts[1]
		return r
	}
	r.Resource = true
	group, rest, _ := strings.Cut(parts[1], ":")
	resource, sub, _ := strings.Cut(rest, "/")
	r.GroupVersionResource, r.Subresource = schema.GroupVersionResource{
		Group:    group,
		Version:  "v1",
		Resource: resource,
	}, sub
	for _, p := range parts[2:] {
		if fields, ok := strings.CutPrefix(p, "?"); ok {
			r.FieldSelector = fields
		} else if ns, name, ok := strings.Cut(p, "/"); ok {
			r.Namespace, r.Name = ns, name
		} else {
			r.Name = p
		}
	}
	return r
}

var (
	scheduler         = api.User{Name: "system:kube-scheduler"}
	cloudNode         = api.User{Name: "system:serviceaccount:kube-system:cloud-node-controller"}
	authenticatedUser = api.User{Name: "someone", Groups: []string{api.GroupAuthenticated}}
	anonymousUser     = api.User{Name: api.Anonymous, Groups: []string{api.GroupUnauthenticated}}
	adminUser         = api.User{Name: "kubernetes-admin", Groups: []string{"kubeadm:cluster-admins"}}
	mastersUser       = api.User{Name: "root", Groups: []string{api.GroupMasters}}
	viewerUser        = api.User{Name: "viewer", Groups: []string{"readers"}}
	editorUser        = api.User{Name: "system:serviceaccount:shop:deployer"}
	node1             = api.User{Name: "system:node:n1", Groups: []string{api.GroupNodes}}
)

func testObjects() *apifake.Objects {
	o := apifake.New(Defaults()...)
	o.Put(
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{groupSubject("readers")},
		},
	)
	o.Put(
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deploy"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "deployer"}},
		},
	)
	o.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.PodSpec{
		NodeName: "n1", ServiceAccountName: "web", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		Volumes: []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls"}}},
			{
				Name: "b",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				},
			},
		},
		Containers: []corev1.Container{
			{
				Env: []corev1.EnvVar{
					{
						ValueFrom: &corev1.EnvVarSource{
							ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
								LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
							},
						},
					},
				},
			},
		},
	}})
	o.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "2"}, Spec: corev1.PodSpec{
		NodeName: "n2", ServiceAccountName: "other",
		Volumes: []corev1.Volume{{Name: "a",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "theirs"}}}},
	}})
	o.Put(
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv1"},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}},
		},
	)
	return o
}

// addReferencedObjects adds the other objects of pods, besides Secrets and ConfigMaps, and Secrets that only their
// volumes name.
func addReferencedObjects(o *apifake.Objects) {
	ours, theirs, made := "n1", "n2", "made"
	obj, _ := o.Get(schema.GroupResource{Resource: "pods"}, "shop", "web")
	web := obj.(*corev1.Pod).DeepCopy()
	web.Spec.Volumes = append(
		web.Spec.Volumes,
		corev1.Volume{
			Name: "c",
			VolumeSource: corev1.VolumeSource{
				CephFS: &corev1.CephFSVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "ceph"}},
			},
		},
	)
	named := "named"
	web.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: &named},
		{Name: "b", ResourceClaimTemplateName: &named},
	}
	web.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: &made}}
	o.Put(web)
	volume := func(name, claim string, csi *corev1.CSIPersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{
				Namespace: "shop",
				Name:      claim,
			}, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: csi}}}
	}
	in := func(ns, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: ns, Name: name}
	}
	o.Put(volume("pv1", "data", &corev1.CSIPersistentVolumeSource{
		NodeStageSecretRef: in("vault",
			"stage"), NodePublishSecretRef: in("", "publish"), ControllerPublishSecretRef: in("vault", "attach")}))
	o.Put(volume("pv3", "elsewhere", &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: in("vault", "foreign")}))
	for name, node := range map[string]string{"mine": ours, "theirs": theirs} {
		o.Put(
			&storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       storagev1.VolumeAttachmentSpec{NodeName: node},
			},
		)
	}
	o.Put(
		&resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "mine"},
			Spec:       resourcev1.ResourceSliceSpec{NodeName: &ours},
		},
	)
	o.Put(
		&resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
			Spec:       resourcev1.ResourceSliceSpec{NodeName: &theirs},
		},
	)
	o.Put(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "everybodys"}})
	o.Put(
		&certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"},
			Spec:       certificatesv1.PodCertificateRequestSpec{NodeName: "n1"},
		},
	)
	o.Put(
		&certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "theirs"},
			Spec:       certificatesv1.PodCertificateRequestSpec{NodeName: "n2"},
		},
	)
}
