package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/apiserver/authz"
	"clusterctl/daemons/config"
)

var (
	root  = api.User{Name: "root", Groups: []string{api.GroupMasters}}
	node1 = api.User{Name: "system:node:n1", Groups: []string{api.GroupNodes}}
)

// storedObjects returns the objects that are stored before each write.
//
//style:long one literal list of objects
func storedObjects() *apifake.Objects {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, UID: "u"} }
	in := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name, UID: "u"} }
	active := corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	tokens := false
	list := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = quantity.MustParse(pairs[i+1])
		}
		return out
	}
	secure := named("secure")
	secure.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	objects := []runtime.Object{
		&corev1.Namespace{
			ObjectMeta: named("shop"),
			Status:     active,
		}, &corev1.Namespace{ObjectMeta: named("limited"), Status: active},
		&corev1.Namespace{
			ObjectMeta: named("bounded"),
			Status:     active,
		}, &corev1.Namespace{ObjectMeta: secure, Status: active},
		&corev1.Namespace{
			ObjectMeta: named("going"),
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
		},
		&corev1.ServiceAccount{
			ObjectMeta:                   in("shop", "quiet"),
			AutomountServiceAccountToken: &tokens,
			ImagePullSecrets:             []corev1.LocalObjectReference{{Name: "pull"}},
		},
		&schedulingv1.PriorityClass{ObjectMeta: named("high"), Value: 1000},
		&schedulingv1.PriorityClass{ObjectMeta: named("usual"), Value: 7, GlobalDefault: true},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "fast",
				Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
			},
		},
		&corev1.LimitRange{ObjectMeta: in("limited", "l"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: list("cpu", "500m"), DefaultRequest: list("cpu", "100m"),
			Max: list("cpu", "1"), Min: list("cpu", "50m"),
		}}}},
		&corev1.ResourceQuota{
			ObjectMeta: in("bounded", "q"),
			Spec:       corev1.ResourceQuotaSpec{Hard: list("pods", "2", "requests.cpu", "1", "configmaps", "1")},
		},
		&corev1.Pod{
			ObjectMeta: in("bounded", "first"),
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "600m")}}},
			},
		},
		&corev1.ConfigMap{ObjectMeta: in("bounded", "taken")},
		&corev1.Pod{
			ObjectMeta: in("shop", "mine"),
			Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "default", Volumes: []corev1.Volume{
				{
					Name: "api",
					VolumeSource: corev1.VolumeSource{
						Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
							{
								ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"},
							},
							{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "vault",
								Audience: "vault"}},
						}},
					},
				},
				{
					Name:         "inline",
					VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.example.com"}},
				},
				{
					Name: "disk",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
					},
				},
			}},
		},
		&storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: "secrets.example.com"},
			Spec:       storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "secrets"}}},
		},
		&storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: "disks.example.com"},
			Spec:       storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "disks"}}},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: in("shop", "disk"),
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "v"},
		},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com"},
				},
			},
		},
		&corev1.Pod{
			ObjectMeta: in("shop", "theirs"),
			Spec:       corev1.PodSpec{NodeName: "n2", ServiceAccountName: "default"},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:   "n1",
				UID:    "n",
				Labels: map[string]string{"kubernetes.io/hostname": "n1"},
			},
		},
	}
	for _, ns := range []string{"shop", "limited", "bounded", "secure"} {
		objects = append(objects, &corev1.ServiceAccount{ObjectMeta: in(ns, "default")})
	}
	o := apifake.New(objects...)
	for _, obj := range authz.Defaults() {
		o.Put(obj)
	}
	return o
}

// runPlugins passes a write through all plugins, as the API server does.
func runPlugins(t *testing.T, o api.CurrentObjects, a *api.Admission) error {
	t.Helper()
	authorizer, err := authz.New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	mutators, validators, err := All(config.DefaultAPIServer(), o, authorizer, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	validators = append(validators, NewQuota(o))
	for _, m := range mutators {
		if err := m.Admit(context.Background(), a); err != nil {
			return err
		}
	}
	for _, v := range validators {
		if err := v.Validate(context.Background(), a); err != nil {
			return err
		}
	}
	return nil
}

func newWrite(u api.User, operation, resource, namespace, name string, obj, old runtime.Object) *api.Admission {
	group, resource, _ := strings.Cut(resource, ":")
	resource, sub, _ := strings.Cut(resource, "/")
	return &api.Admission{
		Operation: operation, User: u, Namespace: namespace, Name: name, Object: obj, Old: old, Subresource: sub,
		Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
	}
}

func newPod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func withCPU(request, limit string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		if request != "" {
			r.Requests = corev1.ResourceList{"cpu": quantity.MustParse(request)}
		}
		if limit != "" {
			r.Limits = corev1.ResourceList{"cpu": quantity.MustParse(limit)}
		}
	}
}

// Proves S12.
//
//style:long a table of writes to each plugin, with the builders of their objects
func TestPluginsRejectWrites(t *testing.T) {
	number, policy := int32(5), corev1.PreemptNever
	mirrorOf := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			yes := true
			p.Annotations, p.Spec.NodeName = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, node
			p.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node, UID: "n", Controller: &yes},
			}
		}
	}
	token := func(to *authenticationv1.BoundObjectReference) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: to}}
	}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kubernetes.io/hostname": "n1"}},
		}
		change(n)
		return n
	}
	bundle := func(signer, text string, finalizers ...string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: "b", Finalizers: finalizers},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
		}
	}
	on := func(name string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "x", name })
	}
	for name, c := range map[string]struct {
		write *api.Admission
		error string
	}{
		"missing namespace":    {newWrite(root, "CREATE", ":configmaps", "nope", "x", &corev1.ConfigMap{}, nil), `namespaces "nope" not found`},
		"pod there":            {newWrite(root, "CREATE", ":pods", "nope", "p", newPod(nil), nil), `namespaces "nope" not found`},
		"namespace going":      {newWrite(root, "CREATE", ":configmaps", "going", "x", &corev1.ConfigMap{}, nil), `configmaps "x" is forbidden: unable to create new content in namespace going because it is being terminated`},
		"default namespace":    {newWrite(root, "DELETE", ":namespaces", "", "default", nil, nil), `namespaces "default" is forbidden: this namespace may not be deleted`},
		"other namespace":      {newWrite(root, "DELETE", ":namespaces", "", "shop", nil, nil), ""},
		"no account":           {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "ghost" }), nil), `pods "p" is forbidden: error looking up service account shop/ghost: serviceaccount "ghost" not found`},
		"unknown priority":     {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "x" }), nil), `pods "p" is forbidden: no PriorityClass with name x was found`},
		"priority by number":   {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.Priority = "high", &number }), nil), `pods "p" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name`},
		"other policy":         {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "high", &policy }), nil), `the string value of PreemptionPolicy (Never) must not be provided in pod spec`},
		"second default class": {newWrite(root, "CREATE", "scheduling.k8s.io:priorityclasses", "", "x", &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, GlobalDefault: true}, nil), `PriorityClass usual is already marked as default. Only one default can exist`},
		"above the limit":      {newWrite(root, "CREATE", ":pods", "limited", "p", newPod(withCPU("2", "2")), nil), `pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		"below the limit":      {newWrite(root, "CREATE", ":pods", "limited", "p", newPod(withCPU("10m", "")), nil), `pods "p" is forbidden: minimum cpu usage per Container is 50m, but request is 10m`},
		"quota of cpu":         {newWrite(root, "CREATE", ":pods", "bounded", "p", newPod(withCPU("500m", "")), nil), `pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1`},
		"within quota": {newWrite(root, "CREATE", ":pods", "bounded", "p", newPod(withCPU("400m", "")), nil),
			""},
		"nothing asked":        {newWrite(root, "CREATE", ":pods", "bounded", "p", newPod(nil), nil), `pods "p" is forbidden: failed quota: q: must specify requests.cpu for: c`},
		"quota of objects":     {newWrite(root, "CREATE", ":configmaps", "bounded", "x", &corev1.ConfigMap{}, nil), `configmaps "x" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`},
		"insecure pod":         {newWrite(root, "CREATE", ":pods", "secure", "p", newPod(nil), nil), `pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`},
		"mirror with account":  {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { mirrorOf("n1")(p); p.Spec.ServiceAccountName = "default" }), nil), `a mirror pod may not reference service accounts`},
		"no runtime class":     {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.RuntimeClassName = new(string); *p.Spec.RuntimeClassName = "x" }), nil), `pods "p" is forbidden: pod rejected: RuntimeClass "x" not found`},
		"masters certificate":  {newWrite(root, "CREATE", "certificates.k8s.io:certificatesigningrequests", "", "c", &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: mastersRequest(t)}}, nil), `use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`},
		"attest without right": {newWrite(node1, "CREATE", "certificates.k8s.io:clustertrustbundles", "", "b", bundle("example.com/s", "a"), nil), `clustertrustbundles.certificates.k8s.io "b" is forbidden: user not permitted to attest for signerName "example.com/s"`},
		"attest": {newWrite(root, "CREATE", "certificates.k8s.io:clustertrustbundles", "", "b",
			bundle("example.com/s", "a"), nil), ""},
		"bundle of no signer": {newWrite(node1, "CREATE", "certificates.k8s.io:clustertrustbundles", "", "b",
			bundle("", "a"), nil), ""},
		"change of a bundle": {newWrite(node1, "UPDATE", "certificates.k8s.io:clustertrustbundles", "", "b", bundle("example.com/s", "a"), bundle("example.com/s", "b")), `user not permitted to attest for signerName "example.com/s"`},
		"collected bundle": {newWrite(node1, "UPDATE", "certificates.k8s.io:clustertrustbundles", "", "b",
			bundle("example.com/s", "a", "finalizer"), bundle("example.com/s", "a")), ""},
		"bundle goes": {newWrite(node1, "DELETE", "certificates.k8s.io:clustertrustbundles", "", "b", nil,
			bundle("example.com/s", "a")), ""},
		"approve without right": {newWrite(node1, "UPDATE", "certificates.k8s.io:certificatesigningrequests/approval", "", "c", &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/s"}}, &certificatesv1.CertificateSigningRequest{}), `user not permitted to approve requests with signerName "example.com/s"`},

		"node makes a pod":       {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), nil), `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		"node mirrors elsewhere": {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(mirrorOf("n2")), nil), `node "n1" can only create pods with spec.nodeName set to itself`},
		"node mirrors with a secret": {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) {
			mirrorOf("n1")(p)
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A",
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "crown"}}}}}
		}), nil), `a mirror pod may not reference secrets`},
		"node mirrors with a pull secret": {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) {
			mirrorOf("n1")(p)
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "crown"}}
		}), nil), `a mirror pod may not reference secrets`},
		"node mirrors with a config map": {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) {
			mirrorOf("n1")(p)
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}
		}), nil), `node "n1" can not create pods that reference configmaps`},
		"mirror with a pull secret": {newWrite(root, "CREATE", ":pods", "shop", "p", newPod(func(p *corev1.Pod) {
			mirrorOf("n1")(p)
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "crown"}}
		}), nil), `a mirror pod may not reference secrets`},
		"node mirrors": {newWrite(node1, "CREATE", ":pods", "shop", "p", newPod(mirrorOf("n1")), nil),
			""},
		"node deletes":               {newWrite(node1, "DELETE", ":pods", "shop", "mine", nil, nil), ""},
		"node deletes another's":     {newWrite(node1, "DELETE", ":pods", "shop", "theirs", nil, nil), `pods "theirs" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself`},
		"node evicts another's":      {newWrite(node1, "CREATE", ":pods/eviction", "shop", "theirs", nil, nil), `node "n1" can only evict pods with spec.nodeName set to itself`},
		"node deletes an unseen one": {newWrite(node1, "DELETE", ":pods", "shop", "new", nil, on("n2")), `node "n1" can only delete pods with spec.nodeName set to itself`},
		"node evicts an unseen one":  {newWrite(node1, "CREATE", ":pods/eviction", "shop", "new", nil, nil), `pods "new" not found`},
		"status of another's":        {newWrite(node1, "UPDATE", ":pods/status", "shop", "x", on("n2"), on("n2")), `node "n1" can only update pod status for pods with spec.nodeName set to itself`},
		"status":                     {newWrite(node1, "UPDATE", ":pods/status", "shop", "x", on("n1"), on("n1")), ""},
		"other node":                 {newWrite(node1, "UPDATE", ":nodes", "", "n2", node(func(n *corev1.Node) { n.Name = "n2" }), node(func(*corev1.Node) {})), `node "n1" is not allowed to modify node "n2"`},
		"node taints":                {newWrite(node1, "UPDATE", ":nodes", "", "n1", node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}} }), node(func(*corev1.Node) {})), `node "n1" is not allowed to modify taints`},
		"node labels":                {newWrite(node1, "UPDATE", ":nodes", "", "n1", node(func(n *corev1.Node) { n.Labels["node-restriction.kubernetes.io/a"] = "b" }), node(func(*corev1.Node) {})), `is not allowed to modify labels: node-restriction.kubernetes.io/a`},
		"node role at registration":  {newWrite(node1, "CREATE", ":nodes", "", "n1", node(func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }), nil), `node "n1" is not allowed to set the following labels: node-role.kubernetes.io/control-plane`},
		"node's own labels": {newWrite(node1, "UPDATE", ":nodes", "", "n1",
			node(func(n *corev1.Node) {
				n.Labels["topology.kubernetes.io/zone"] = "a"
				n.Labels["example.com/x"] = "y"
			}), node(func(*corev1.Node) {})), ""},
		"other lease":        {newWrite(node1, "UPDATE", "coordination.k8s.io:leases", "kube-node-lease", "n2", &coordinationv1.Lease{}, nil), `can only access node lease with the same name as the requesting node`},
		"lease elsewhere":    {newWrite(node1, "UPDATE", "coordination.k8s.io:leases", "kube-system", "n1", &coordinationv1.Lease{}, nil), `can only access leases in the "kube-node-lease" system namespace`},
		"token unbound":      {newWrite(node1, "CREATE", ":serviceaccounts/token", "shop", "default", token(nil), nil), `node requested token not bound to a pod`},
		"token of none":      {newWrite(node1, "CREATE", ":serviceaccounts/token", "shop", "default", token(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "none", UID: "u"}), nil), `pods "none" not found`},
		"token of another's": {newWrite(node1, "CREATE", ":serviceaccounts/token", "shop", "default", token(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "theirs", UID: "u"}), nil), `node requested token bound to a pod scheduled on a different node`},
		"token": {newWrite(node1, "CREATE", ":serviceaccounts/token", "shop", "default",
			token(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "u"}), nil),
			""},
	} {
		err := runPlugins(t, storedObjects(), c.write)
		switch {
		case c.error == "" && err != nil:
			t.Errorf("%s: refused: %v", name, err)
		case c.error != "" && err == nil:
			t.Errorf("%s: admitted, want %q", name, c.error)
		case err != nil && !strings.Contains(err.Error(), c.error):
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.error)
		case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			t.Errorf("%s: %v is neither forbidden nor not found", name, err)
		}
	}
}

func TestNewPodsGetDefaults(t *testing.T) {
	p := newPod(nil)
	if err := runPlugins(t, storedObjects(), newWrite(root, "CREATE", ":pods", "shop", "p", p, nil)); err != nil {
		t.Fatal(err)
	}
	if p.Spec.ServiceAccountName != "default" || p.Spec.DeprecatedServiceAccount != "default" {
		t.Errorf("service account is %q, %q", p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount)
	}
	if p.Spec.Priority == nil || *p.Spec.Priority != 7 || p.Spec.PriorityClassName != "usual" ||
		*p.Spec.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("priority is %v of class %q", p.Spec.Priority, p.Spec.PriorityClassName)
	}
	if len(p.Spec.Tolerations) != 2 || p.Spec.Tolerations[0].Key != corev1.TaintNodeNotReady ||
		*p.Spec.Tolerations[1].TolerationSeconds != 300 {
		t.Errorf("tolerations are %v", p.Spec.Tolerations)
	}
	mount := p.Spec.Containers[0].VolumeMounts[0]
	if mount.MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" || !mount.ReadOnly ||
		!strings.HasPrefix(mount.Name, "kube-api-access-") ||
		len(mount.Name) != len("kube-api-access-")+5 {
		t.Errorf("mount is %+v", mount)
	}
	sources := p.Spec.Volumes[0].Projected.Sources
	if p.Spec.Volumes[0].Name != mount.Name || *sources[0].ServiceAccountToken.ExpirationSeconds != 3607 ||
		sources[1].ConfigMap.Name != "kube-root-ca.crt" ||
		sources[2].DownwardAPI.Items[0].FieldRef.FieldPath != "metadata.namespace" {
		t.Errorf("volume is %+v", p.Spec.Volumes[0])
	}

	p = newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "quiet" })
	if err := runPlugins(t, storedObjects(), newWrite(root, "CREATE", ":pods", "shop", "p", p, nil)); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Volumes) != 0 || len(p.Spec.ImagePullSecrets) != 1 {
		t.Errorf("an account without automount gave volumes %v, pull secrets %v", p.Spec.Volumes,
			p.Spec.ImagePullSecrets)
	}

	p = newPod(nil)
	if err := runPlugins(t, storedObjects(), newWrite(root, "CREATE", ":pods", "limited", "p", p, nil)); err != nil {
		t.Fatal(err)
	}
	r := p.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "100m" || r.Limits.Cpu().String() != "500m" {
		t.Errorf("defaults of the limit range: %v", r)
	}
	if want := "LimitRanger plugin set: cpu request for container c; cpu limit for container " +
		"c"; p.Annotations["kubernetes.io/limit-ranger"] != want {
		t.Errorf("annotation %q, want %q", p.Annotations["kubernetes.io/limit-ranger"], want)
	}
}

func TestOtherObjectsGetDefaults(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}}
	if err := runPlugins(t, storedObjects(), newWrite(root, "CREATE", ":nodes", "", "n9", n, nil)); err != nil {
		t.Fatal(err)
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != corev1.TaintNodeNotReady {
		t.Errorf("a new node's taints: %v", n.Spec.Taints)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := runPlugins(t, storedObjects(),
		newWrite(root, "CREATE", ":persistentvolumeclaims", "shop", "c", claim, nil)); err != nil {
		t.Fatal(err)
	}
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("storage class: %v", claim.Spec.StorageClassName)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{Username: "forged", SignerName: "example.com/s"},
	}
	if err := runPlugins(t, storedObjects(),
		newWrite(node1, "CREATE", "certificates.k8s.io:certificatesigningrequests", "", "c", csr, nil)); err != nil {
		t.Fatal(err)
	}
	if csr.Spec.Username != "system:node:n1" {
		t.Errorf("the requester is %q", csr.Spec.Username)
	}
}

func TestFirstPodWaitsForTheDefaultAccount(t *testing.T) {
	o := storedObjects()
	o.Put(
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "fresh"},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		},
	)
	done := make(chan error, 1)
	go func() { done <- runPlugins(t, o, newWrite(root, "CREATE", ":pods", "fresh", "p", newPod(nil), nil)) }()
	timer := time.AfterFunc(20*time.Millisecond, func() {
		o.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fresh", Name: "default"}})
	})
	defer timer.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
