package binder

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func ptr[T any](v T) *T { return &v }

func newClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "u"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
			StorageClassName: ptr(""),
			Resources:        corev1.VolumeResourceRequirements{Requests: storageSize("5Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	for _, f := range change {
		f(c)
	}
	return c
}

func storageSize(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
}

func newVolume(name, capacity string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{Capacity: storageSize(capacity),
			AccessModes: []corev1.PersistentVolumeAccessMode{
				"ReadWriteOnce",
			}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func reservedFor(name string, uid types.UID) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "d", Name: name, UID: uid}
	}
}

func TestClaimsGetTheBestMatchingVolume(t *testing.T) {
	now := metav1.Now()
	type pv = corev1.PersistentVolume
	type pvc = corev1.PersistentVolumeClaim
	many := func(v *pv) { v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadWriteMany) }
	for name, c := range map[string]struct {
		claim   *pvc
		volumes []*pv
		waits   bool
		want    string
	}{
		"the smallest that fits": {newClaim(),
			[]*pv{newVolume("big", "20Gi"), newVolume("fits", "6Gi"), newVolume("small", "4Gi")}, false, "fits"},
		"of the same size the first by name": {newClaim(), []*pv{newVolume("b", "5Gi"), newVolume("a", "5Gi")}, false,
			"a"},
		"none that is large enough": {newClaim(), []*pv{newVolume("small", "4Gi")}, false, ""},
		"the fewest ways of access": {newClaim(), []*pv{newVolume("many", "5Gi", many), newVolume("once", "9Gi")},
			false, "once"},
		"all ways of access": {newClaim(func(c *pvc) {
			c.Spec.AccessModes = append(c.Spec.AccessModes,
				corev1.ReadWriteMany)
		}), []*pv{newVolume("once", "5Gi"), newVolume("many", "9Gi", many)}, false, "many"},
		"none of another class": {newClaim(),
			[]*pv{newVolume("fast", "5Gi", func(v *pv) { v.Spec.StorageClassName = "fast" })}, false, ""},
		"of its class": {newClaim(func(c *pvc) { c.Spec.StorageClassName = ptr("fast") }),
			[]*pv{newVolume("a", "5Gi"), newVolume("fast", "5Gi", func(v *pv) { v.Spec.StorageClassName = "fast" })},
			false,
			"fast"},
		"of the class by the old annotation": {newClaim(func(c *pvc) {
			c.Spec.StorageClassName = nil
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "fast"}
		}), []*pv{newVolume("fast", "5Gi",
			func(v *pv) { v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "fast"} })}, false,
			"fast"},
		"what its selector selects": {newClaim(func(c *pvc) {
			c.Spec.Selector = &metav1.LabelSelector{
				MatchLabels: map[string]string{"a": "b"}}
		}),
			[]*pv{newVolume("a", "5Gi"), newVolume("b", "5Gi", func(v *pv) { v.Labels = map[string]string{"a": "b"} })},
			false, "b"},
		"no block device": {newClaim(),
			[]*pv{newVolume("block", "5Gi", func(v *pv) { v.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) })},
			false,
			""},
		"none with other attributes": {newClaim(func(c *pvc) { c.Spec.VolumeAttributesClassName = ptr("gold") }),
			[]*pv{newVolume("a", "5Gi")}, false, ""},
		"none that goes": {newClaim(),
			[]*pv{newVolume("a", "5Gi", func(v *pv) { v.DeletionTimestamp = &now })}, false, ""},
		"none that is not free": {newClaim(),
			[]*pv{newVolume("a", "5Gi", func(v *pv) { v.Status.Phase = corev1.VolumeReleased })}, false, ""},
		"none reserved for another":    {newClaim(), []*pv{newVolume("a", "5Gi", reservedFor("other", ""))}, false, ""},
		"none of a former of its name": {newClaim(), []*pv{newVolume("a", "5Gi", reservedFor("c", "old"))}, false, ""},
		"what is reserved for its name": {newClaim(),
			[]*pv{newVolume("a", "5Gi"), newVolume("mine", "50Gi", reservedFor("c", ""))}, false, "mine"},
		"what is bound to it already": {newClaim(),
			[]*pv{newVolume("a", "5Gi"),
				newVolume("mine", "50Gi", reservedFor("c", "u"), func(v *pv) { v.Status.Phase = corev1.VolumeBound })},
			false,
			"mine"},
		"a reserved one that is large": {newClaim(), []*pv{newVolume("small", "1Gi", reservedFor("c", ""))}, false, ""},
		"nothing free while it waits":  {newClaim(), []*pv{newVolume("a", "5Gi")}, true, ""},
		"what is reserved while it waits": {newClaim(),
			[]*pv{newVolume("a", "5Gi"), newVolume("mine", "5Gi", reservedFor("c", "u"))}, true, "mine"},
	} {
		got := ""
		if v := findMatch(c.claim, c.volumes, c.waits); v != nil {
			got = v.Name
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

//style:long a table of claims and volumes, with the decision on each
func TestClaimDecisions(t *testing.T) {
	type pvc = corev1.PersistentVolumeClaim
	now := metav1.Now()
	class := func(provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: "k"},
			Provisioner:       provisioner,
			VolumeBindingMode: &mode,
		}
	}
	ofClass := func(c *pvc) { c.Spec.StorageClassName = ptr("k") }
	noClass := func(c *pvc) { c.Spec.StorageClassName = nil }
	names := func(v string) func(*pvc) { return func(c *pvc) { c.Spec.VolumeName = v } }
	completed := func(c *pvc) {
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		c.Status.Phase = corev1.ClaimBound
	}
	placed := func(c *pvc) { c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n"} }
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	for name, c := range map[string]struct {
		claim  *pvc
		s      ClaimInput
		phase  corev1.PersistentVolumeClaimPhase
		bind   string
		class  string
		by     string
		reason string
		text   string
	}{
		"nothing there": {newClaim(), ClaimInput{}, corev1.ClaimPending, "", "", "",
			"FailedBinding", "no persistent volumes available for this claim and no storage class is set"},
		"a match": {newClaim(),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}}, corev1.ClaimBound, "a", "", "", "",
			""},
		"a match before the default class": {newClaim(func(c *pvc) { c.Spec.StorageClassName = nil }),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}, Default: class("p", "Immediate")},
			corev1.ClaimBound, "a", "", "", "", ""},
		"the default class": {newClaim(noClass), ClaimInput{Default: class("p", "Immediate")},
			corev1.ClaimPending, "", "k", "", "", ""},
		"the empty class stays": {newClaim(), ClaimInput{Default: class("p", "Immediate")}, corev1.ClaimPending,
			"", "", "", "FailedBinding", "no persistent volumes available for this claim and no storage class is set"},
		"a class that is not there": {newClaim(ofClass), ClaimInput{}, corev1.ClaimPending, "", "", "", "ProvisioningFailed", `storageclass.storage.k8s.io "k" not found`},
		"no provisioner": {newClaim(ofClass),
			ClaimInput{Class: class("kubernetes.io/no-provisioner", "Immediate")}, corev1.ClaimPending, "", "", "",
			"ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"},
		"a provisioner": {newClaim(ofClass), ClaimInput{Class: class("p.io/x", "Immediate")}, corev1.ClaimPending, "",
			"", "p.io/x", "ExternalProvisioning",
			"Waiting for a volume to be created either by the external provisioner 'p.io/x' or manually by the " +
				"system administrator. If volume creation is delayed, please verify that the provisioner is running " +
				"and correctly registered."},
		"no consumer yet": {newClaim(ofClass), ClaimInput{Class: class("p", wait)}, corev1.ClaimPending, "", "", "",
			"WaitForFirstConsumer", "waiting for first consumer to be created before binding"},
		"a consumer waits": {newClaim(ofClass), ClaimInput{Class: class("p", wait), Waiting: []string{"x"}},
			corev1.ClaimPending, "", "", "", "WaitForPodScheduled", "waiting for pod x to be scheduled"},
		"consumers wait": {newClaim(ofClass), ClaimInput{Class: class("p", wait), Waiting: []string{"x", "y"}},
			corev1.ClaimPending, "", "", "", "WaitForPodScheduled", "waiting for pods x,y to be scheduled"},
		"a node is chosen": {newClaim(ofClass, placed), ClaimInput{Class: class("p.io/x", wait)}, corev1.ClaimPending,
			"", "", "p.io/x", "ExternalProvisioning", ""},
		"one that goes": {newClaim(func(c *pvc) { c.DeletionTimestamp = &now }),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}}, corev1.ClaimPending, "", "", "", "",
			""},

		"names one that is yet to come": {newClaim(names("a")), ClaimInput{}, corev1.ClaimPending, "", "", "", "", ""},
		"names one that is free": {newClaim(names("a")),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}}, corev1.ClaimBound, "a", "", "", "",
			""},
		"names one that is too small": {newClaim(names("a")), ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi")}}, corev1.ClaimPending, "", "", "", "VolumeMismatch", `Cannot bind to requested volume "a": requested PV is too small`},
		"names one reserved for it": {newClaim(names("a")),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", reservedFor("c", ""))}},
			corev1.ClaimBound,
			"a", "", "", "", ""},
		"names another's":    {newClaim(names("a")), ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi", reservedFor("x", "x"))}}, corev1.ClaimPending, "", "", "", "FailedBinding", `volume "a" already bound to a different claim.`},
		"names its former's": {newClaim(names("a")), ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi", reservedFor("c", "old"))}}, corev1.ClaimPending, "", "", "", "FailedBinding", `volume "a" already bound to a different claim.`},

		"stays bound": {newClaim(names("a"), completed),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi", reservedFor("c", "u"))}},
			corev1.ClaimBound, "a", "", "", "", ""},
		"the volume forgot it": {newClaim(names("a"), completed),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}}, corev1.ClaimBound, "a", "", "", "",
			""},
		"lost the volume's name": {newClaim(completed),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi")}}, corev1.ClaimLost, "", "", "",
			"ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"},
		"lost the volume": {newClaim(names("a"), completed), ClaimInput{}, corev1.ClaimLost, "", "", "",
			"ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"},
		"lost, which was said": {newClaim(names("a"), completed, func(c *pvc) { c.Status.Phase = corev1.ClaimLost }),
			ClaimInput{}, corev1.ClaimLost, "", "", "", "", ""},
		"says bound to a former's": {newClaim(names("a"), completed),
			ClaimInput{Volumes: []*corev1.PersistentVolume{newVolume("a", "5Gi", reservedFor("c", "old"))}},
			corev1.ClaimLost, "", "", "", "ClaimMisbound", "Two claims are bound to the same volume, this one is " +
				"bound incorrectly"},
	} {
		d := DecideClaim(c.claim, c.s)
		bind, reason, text := "", "", ""
		if d.Bind != nil {
			bind = d.Bind.Name
		}
		if d.Event != nil {
			reason, text = d.Event.Reason, d.Event.Message
		}
		if d.Phase != c.phase || bind != c.bind || d.Class != c.class || d.Provisioner != c.by || reason != c.reason ||
			c.text != "" && text != c.text {
			t.Errorf("%s: %+v, binds %q, says %s %q", name, d, bind, reason, text)
		}
	}
}

func TestTheDefaultClassIsTheNewest(t *testing.T) {
	at := func(name string, minute int, marked string) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0)),
				Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": marked}},
		}
	}
	all := []*storagev1.StorageClass{
		at("old", 1, "true"),
		at("b", 2, "true"),
		at("a", 2, "true"),
		at("none", 3, "false"),
	}
	if got := defaultClass(all); got == nil || got.Name != "a" {
		t.Errorf("it is %v", got)
	}
	if got := defaultClass(all[3:]); got != nil {
		t.Errorf("without one it is %v", got)
	}
}

func TestClaimStatusComesFromTheVolume(t *testing.T) {
	v := newVolume("a", "10Gi")
	s := claimStatus(newClaim(), corev1.ClaimBound, v)
	if s.Phase != corev1.ClaimBound || s.Capacity.Storage().String() != "10Gi" || len(s.AccessModes) != 1 {
		t.Errorf("bound: %+v", s)
	}
	bound := newClaim(func(c *corev1.PersistentVolumeClaim) { c.Status = s })
	v.Spec.Capacity = storageSize("20Gi")
	if s := claimStatus(bound, corev1.ClaimBound, v); s.Capacity.Storage().String() != "10Gi" {
		t.Errorf("the capacity is who resizes', but became %v", s.Capacity)
	}
	if s := claimStatus(bound, corev1.ClaimLost, nil); s.Phase != corev1.ClaimLost || s.Capacity != nil ||
		s.AccessModes != nil {
		t.Errorf("lost: %+v", s)
	}
}
