package admission

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/config"
)

func TestAnIngressGetsTheNewestDefaultClass(t *testing.T) {
	class := func(name, isDefault string, at int64) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				CreationTimestamp: metav1.Unix(at, 0),
				Annotations:       map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault},
			},
		}
	}
	p := &defaultIngressClass{apifake.New(class("old", "true", 1), class("new", "true", 2), class("other", "false", 3))}
	own := "own"
	for name, c := range map[string]struct {
		ingress networkingv1.Ingress
		want    string
	}{
		"none named": {networkingv1.Ingress{}, "new"},
		"one named":  {networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: &own}}, "own"},
		"the old way": {networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			classAnnotation: "x"}}}, ""},
	} {
		a := &api.Admission{Operation: "CREATE", Resource: ingressesGR.WithVersion("v1"), Object: &c.ingress}
		if err := p.Admit(context.Background(), a); err != nil {
			t.Fatal(err)
		}
		got := ""
		if c.ingress.Spec.IngressClassName != nil {
			got = *c.ingress.Spec.IngressClassName
		}
		if got != c.want {
			t.Errorf("%s: class %q, want %q", name, got, c.want)
		}
	}
}

func TestClaimsGrowOnlyIfTheClassAllows(t *testing.T) {
	yes := true
	p := &claimResize{
		apifake.New(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, AllowVolumeExpansion: &yes},
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}),
	}
	claim := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse(size)}
		if class != "" {
			c.Spec.StorageClassName = &class
		}
		return c
	}
	for name, c := range map[string]struct {
		class, size string
		phase       corev1.PersistentVolumeClaimPhase
		want        string
	}{
		"may":       {"grows", "2Gi", corev1.ClaimBound, ""},
		"the same":  {"fixed", "1Gi", corev1.ClaimPending, ""},
		"may not":   {"fixed", "2Gi", corev1.ClaimBound, "must support resize"},
		"no class":  {"", "2Gi", corev1.ClaimBound, "must support resize"},
		"not bound": {"grows", "2Gi", corev1.ClaimPending, "only bound persistent volume claims"},
	} {
		a := &api.Admission{
			Operation: "UPDATE",
			Resource:  claimsGR.WithVersion("v1"),
			Object:    claim(c.class, c.size, c.phase),
			Old:       claim(c.class, "1Gi", c.phase),
		}
		if err := p.Validate(context.Background(), a); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// grantedVerbs lists what users may do, as "verb resource/subresource".
type grantedVerbs map[string]bool

func (g grantedVerbs) Authorize(_ context.Context, _ api.User, r api.Request) (api.Decision, string, error) {
	name := r.Verb + " " + r.GroupVersionResource.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if g[name] {
		return api.Allow, "", nil
	}
	return api.NoOpinion, "", nil
}

func TestOwnerReferencesNeedRights(t *testing.T) {
	block := true
	ref := func(kind string, block *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "1", BlockOwnerDeletion: block},
		}
	}
	pod := func(refs []metav1.OwnerReference) runtime.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", OwnerReferences: refs}}
	}
	for name, c := range map[string]struct {
		rights   grantedVerbs
		old, now runtime.Object
		want     string
	}{
		"made without":  {grantedVerbs{}, nil, pod(nil), ""},
		"made with":     {grantedVerbs{}, nil, pod(ref("ReplicaSet", nil)), ""},
		"made blocking": {grantedVerbs{}, nil, pod(ref("ReplicaSet", &block)), "you can't set finalizers on"},
		"made blocking, and may": {grantedVerbs{"update replicasets/finalizers": true}, nil,
			pod(ref("ReplicaSet", &block)),
			""},
		"of no kind":       {grantedVerbs{}, nil, pod(ref("Nothing", &block)), "no kind Nothing"},
		"changed":          {grantedVerbs{}, pod(nil), pod(ref("ReplicaSet", nil)), "you can't delete"},
		"changed, and may": {grantedVerbs{"delete pods": true}, pod(nil), pod(ref("ReplicaSet", nil)), ""},
		"taken away":       {grantedVerbs{}, pod(ref("ReplicaSet", nil)), pod(nil), "you can't delete"},
		"left alone":       {grantedVerbs{}, pod(ref("ReplicaSet", &block)), pod(ref("ReplicaSet", &block)), ""},
	} {
		a := &api.Admission{
			Operation: "CREATE",
			Resource:  schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "shop",
			Name:      "p",
			Object:    c.now,
		}
		if c.old != nil {
			a.Operation, a.Old = "UPDATE", c.old
		}
		if err := newOwnerReferences(apifake.New(), c.rights).Validate(context.Background(),
			a); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for plugins, want := range map[string]string{"": "", "OwnerReferencesPermissionEnforcement": "", "NoSuchPlugin": `unknown admission plugin "NoSuchPlugin"`} {
		cfg := config.DefaultAPIServer()
		if plugins != "" {
			cfg.EnableAdmissionPlugins = []string{plugins}
		}
		if _, _, err := All(cfg, apifake.New(), grantedVerbs{},
			prometheus.NewRegistry()); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v", plugins, err)
		}
	}
}
