package admission

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// A kubelet may write only objects of its node, and only the parts that a kubelet reports.
// Proves S12.
//
//style:long a table of writes by a node, with the objects that they change
func TestNodesWriteOnlyTheirObjects(t *testing.T) {
	mirrored := func(change func(*metav1.OwnerReference)) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			yes := true
			o := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n", Controller: &yes}
			change(&o)
			p.Annotations, p.Spec.NodeName, p.OwnerReferences = map[string]string{
				corev1.MirrorPodAnnotationKey: "x",
			}, "n1", []metav1.OwnerReference{
				o,
			}
		})
	}
	without := mirrored(func(*metav1.OwnerReference) {})
	without.OwnerReferences = nil
	inline := mirrored(func(*metav1.OwnerReference) {})
	inline.Spec.Volumes = []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				RBD: &corev1.RBDVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "s"}},
			},
		},
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", ResourceVersion: "7"}}
		change(c)
		return c
	}
	same := claim(func(*corev1.PersistentVolumeClaim) {})
	slice := func(node string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
		if node != "" {
			s.Spec.NodeName = &node
		}
		return s
	}
	on := func(change func(*corev1.Pod)) *corev1.Pod {
		p := newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
		change(p)
		return p
	}
	name := "c"
	const claims, slices = ":persistentvolumeclaims/status", "resource.k8s.io:resourceslices"
	for what, c := range map[string]struct {
		write *api.Admission
		error string
	}{
		"a mirror": {newWrite(node1, "CREATE", ":pods", "shop", "p",
			mirrored(func(*metav1.OwnerReference) {}), nil), ""},
		"a mirror of nobody": {newWrite(node1, "CREATE", ":pods", "shop", "p", without, nil), `node "n1" can only create pods with an owner reference set to itself`},
		"a mirror of a former node": {newWrite(node1, "CREATE", ":pods", "shop", "p",
			mirrored(func(o *metav1.OwnerReference) { o.UID = "old" }), nil), "node n1 UID mismatch: expected old " +
			"got n"},
		"an uncontrolled mirror": {newWrite(node1, "CREATE", ":pods", "shop", "p",
			mirrored(func(o *metav1.OwnerReference) { o.Controller = nil }), nil), "with a controller owner " +
			"reference set to itself"},
		"a mirror with a disk's secret": {newWrite(node1, "CREATE", ":pods", "shop", "p", inline, nil),
			"a mirror pod may not reference secrets"},
		"a size": {newWrite(node1, "UPDATE", claims, "shop", "disk", claim(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{"storage": quantity.MustParse("1Gi")}
		}), same), ""},
		"a claim's label": {newWrite(node1, "UPDATE", claims, "shop", "disk",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), same),
			"is not allowed to update fields other than status.capacity and status.conditions"},
		"a claim's finalizer": {newWrite(node1, "UPDATE", claims, "shop", "disk",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"a/b"} }), same), "is not allowed " +
			"to update fields other than"},
		"a claim's phase": {newWrite(node1, "UPDATE", claims, "shop", "disk",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), same),
			"is not allowed to update fields other than"},
		"a claim": {newWrite(node1, "UPDATE", ":persistentvolumeclaims", "shop", "disk", same, same),
			"may only update " +
				"PVC status"},
		"claims for a pod": {newWrite(node1, "UPDATE", ":pods/status", "shop", "p", on(func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: &name}}
		}), on(func(*corev1.Pod) {})), "cannot update resource claim statuses"},
		"its devices": {newWrite(node1, "CREATE", slices, "", "s", slice("n1"), nil), ""},
		"another's devices": {newWrite(node1, "CREATE", slices, "", "s", slice("n2"), nil), "can only create " +
			"ResourceSlice with the same NodeName as the requesting node"},
		"everybody's devices": {newWrite(node1, "CREATE", slices, "", "s", slice(""), nil), "can only create " +
			"ResourceSlice with the same NodeName as the requesting node"},
		"its devices go": {newWrite(node1, "DELETE", slices, "", "s", nil, slice("n1")), ""},
		"another's devices go": {newWrite(node1, "DELETE", slices, "", "s", nil, slice("n2")), "can only delete " +
			"ResourceSlice with the same NodeName as the requesting node"},
	} {
		if err := runPlugins(t, storedObjects(), c.write); (err == nil) != (c.error == "") ||
			err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", what, err, c.error)
		}
	}
}

// A kubelet may request certificates only for the pods on it, from the signers that they name.
// Proves S12.
func TestNodesRequestCertificatesOnlyForTheirPods(t *testing.T) {
	o := storedObjects()
	obj, _ := o.Get(podsGR, "shop", "mine")
	mine := obj.(*corev1.Pod).DeepCopy()
	mine.Spec.Volumes = append(
		mine.Spec.Volumes,
		corev1.Volume{
			Name: "c",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/pods"}}}},
			},
		},
	)
	o.Put(mine)
	o.Put(
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "sign"},
			Rules: []rbacv1.PolicyRule{
				{
					Verbs:     []string{signerVerb},
					APIGroups: []string{certificatesv1.GroupName},
					Resources: []string{"example.com:granted"},
				},
			},
		},
	)
	o.Put(
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "sign"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sign"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
		},
	)
	for error, change := range map[string]func(*certificatesv1.PodCertificateRequestSpec){
		"": func(*certificatesv1.PodCertificateRequestSpec) {},
		`PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"`: func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" },
		`names node UID "x", inconsistent with the running node ("n")`:                    func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "x" },
		`pod "none" not found`: func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "none" },
		`contains pod UID "x" which differs from running pod "u"`:                         func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "x" },
		`pod "shop/theirs" is not running on node "n1"`:                                   func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "theirs" },
		`contains serviceAccountName ("quiet") that differs from running pod ("default")`: func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "quiet" },
		`names service account UID "x"`:                                                   func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "x" },
		`no podCertificate volume of pod "shop/mine" is for signer "example.com/other"`:   func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/other" },
	} {
		r := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/pods", PodName: "mine", PodUID: "u", ServiceAccountName: "default",
			ServiceAccountUID: "u", NodeName: "n1", NodeUID: "n"}}
		change(&r.Spec)
		if err := runPlugins(t, o,
			newWrite(node1, "CREATE", "certificates.k8s.io:podcertificaterequests", "shop", "r", r,
				nil)); (err == nil) != (error == "") ||
			err != nil && !strings.Contains(err.Error(), error) {
			t.Errorf("%v, want %q", err, error)
		}
	}
	granted := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: "example.com/granted", PodName: "mine", PodUID: "u", ServiceAccountName: "default",
		ServiceAccountUID: "u", NodeName: "n1", NodeUID: "n"}}
	if err := runPlugins(t, o,
		newWrite(node1, "CREATE", "certificates.k8s.io:podcertificaterequests", "shop", "r", granted,
			nil)); err != nil {
		t.Errorf("a signer that nodes were granted: %v", err)
	}
}
