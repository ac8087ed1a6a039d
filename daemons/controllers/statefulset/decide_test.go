package statefulset

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

var oldRevision, newRevision = revision{"web-old", template("old")}, revision{"web-new", template("new")}

func web(replicas int32, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web", UID: "set", Generation: 3}}
	s.Spec.Replicas, s.Spec.ServiceName, s.Spec.PodManagementPolicy = &replicas, "svc", appsv1.OrderedReadyPodManagement
	s.Spec.Selector, s.Spec.Template = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		*newRevision.template
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
			Partition:      ptr.To(int32(0)),
			MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		}}
	if change != nil {
		change(s)
	}
	return s
}

// podsOf parses text such as "0 1old 2!": ordinals, with the template and state of each pod. ! means not ready, x being
// deleted, f failed, and ~ ready for a second.
func podsOf(set *appsv1.StatefulSet, text string) (list []*corev1.Pod) {
	for _, word := range strings.Fields(text) {
		r := newRevision
		if strings.Contains(word, "old") {
			r = oldRevision
		}
		n := 0
		_, _ = fmt.Sscanf(word, "%d", &n)
		pod := newPod(set, n, r)
		pod.UID = types.UID(word)
		pod.Status.Phase = corev1.PodRunning
		ready, since := corev1.ConditionTrue, now.Add(-time.Hour)
		switch word[len(word)-1] {
		case '!':
			ready = corev1.ConditionFalse
		case 'x':
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		case 'f':
			pod.Status.Phase, ready = corev1.PodFailed, corev1.ConditionFalse
		case '~':
			since = now.Add(-time.Second)
		}
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Time{Time: since}},
		}
		list = append(list, pod)
	}
	return list
}

func decisionText(d Decision) string {
	var words []string
	for _, pod := range d.Create {
		words = append(
			words,
			"+"+strings.TrimPrefix(pod.Name, "web-")+strings.TrimPrefix(pod.Labels[appsv1.StatefulSetRevisionLabel],
				"web"),
		)
	}
	for _, pod := range d.Relabel {
		words = append(words, "~"+strings.TrimPrefix(pod.Name, "web-"))
	}
	for _, pod := range d.Delete {
		words = append(words, "-"+strings.TrimPrefix(pod.Name, "web-"))
	}
	return strings.Join(words, " ")
}

func TestSetDecisions(t *testing.T) {
	parallel := func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
	partitioned := func(n int32) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
	}
	unavailable := func(v intstr.IntOrString, more ...func(*appsv1.StatefulSet)) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &v
			for _, m := range more {
				m(s)
			}
		}
	}
	onDelete := func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	for _, row := range []struct {
		name     string
		replicas int32
		change   func(*appsv1.StatefulSet)
		pods     string
		want     string
	}{
		{"one after the other", 3, nil, "", "+0-new"},
		{"the first is not ready", 3, nil, "0!", ""},
		{"the second", 3, nil, "0", "+1-new"},
		{"one in the midst is missing", 3, nil, "0 2", "+1-new"},
		{"all there", 3, nil, "0 1 2", ""},
		{"at once", 3, parallel, "1!", "+0-new +2-new"},
		{"not ready for long enough", 3, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }, "0~", ""},
		{"ready for long enough", 3, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }, "0", "+1-new"},
		{"from another number", 2,
			func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} }, "3", "+4-new"},
		{"to another number", 2,
			func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} }, "0 1 3 4", "-1"},
		{"a failed one goes", 3, nil, "0 1f", "-1"},
		{"and is made anew", 3, nil, "0", "+1-new"},
		{"one on its way is waited for", 3, nil, "0x 1 2", ""},
		{"smaller: the last first", 1, nil, "0 1 2", "-2"},
		{"smaller: it is on its way", 1, nil, "0 1 2x", ""},
		{"smaller: not while another is not well", 1, nil, "0! 1 2", ""},
		{"smaller: a well one, though one before it is not", 1, nil, "0 1! 2", "-2"},
		{"smaller: the one that is not well", 1, nil, "0 1 2!", "-2"},
		{"smaller: at once", 1, func(s *appsv1.StatefulSet) { parallel(s) }, "0! 1 2!", "-2 -1"},
		{"smaller: the one that is not ready for long enough", 1,
			func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }, "0 1~", "-1"},
		{"smaller: not while one is not ready for long enough", 1,
			func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }, "0 1~ 2~", ""},
		{"none", 0, nil, "0 1", "-1"},
		{"an update: the last first", 3, nil, "0old 1old 2old", "-2"},
		{"an update: it comes back with it", 3, nil, "0old 1old", "+2-new"},
		{"an update: the next when it is ready", 3, nil, "0old 1old 2!", ""},
		{"an update: the next", 3, nil, "0old 1old 2", "-1"},
		{"an update: down to the partition", 3, partitioned(2), "0old 1old 2", ""},
		{"below the partition with what there is", 3, partitioned(2), "1old 2", "+0-old"},
		{"a partition beyond all", 3, partitioned(5), "0old 1old 2old", ""},
		{"an update two at a time", 4, unavailable(intstr.FromInt32(2)), "0old 1old 2old 3old", "-3 -2"},
		{"an update, a share, rounded up", 4, unavailable(intstr.FromString("30%")), "0old 1old 2old 3old", "-3 -2"},
		{"an update two at a time, one is down", 4, unavailable(intstr.FromInt32(2), parallel), "0old 1old 2old 3!",
			"-2"},
		{"an update counts those that are down below the partition", 3,
			unavailable(intstr.FromInt32(1), parallel, partitioned(1)), "0! 1old 2old", ""},
		{"an update with room for one that is down below the partition", 3,
			unavailable(intstr.FromInt32(2), parallel, partitioned(1)), "0! 1old 2old", "-2"},
		{"an update by numbers that do not begin at zero", 3, func(s *appsv1.StatefulSet) {
			s.Spec.Ordinals, s.Spec.UpdateStrategy.RollingUpdate.Partition = &appsv1.StatefulSetOrdinals{Start: 5},
				ptr.To[int32](2)
		}, "5old 6old 7old", "-7"},
		{"an update of one that does not work", 3, parallel, "0old 1old 2old!", "-2"},
		{"an update waits for the one that was updated", 3, parallel, "0old 1old 2!", ""},
		{"by hand", 3, onDelete, "0old 1old 2old", ""},
		{"by hand, deleted", 3, onDelete, "1old 2old", "+0-new"},
	} {
		set := web(row.replicas, row.change)
		if got := decisionText(Decide(set, oldRevision, newRevision, podsOf(set, row.pods), now)); got != row.want {
			t.Errorf("%s: of %q %q is done, want %q", row.name, row.pods, got, row.want)
		}
	}
}

// Clients choose these amounts. None of them may lead to a list of that length.
func TestSetsAreCreatedInBatches(t *testing.T) {
	parallel := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		return web(math.MaxInt32, func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			if change != nil {
				change(s)
			}
		})
	}
	for name, c := range map[string]struct {
		set              *appsv1.StatefulSet
		pods             int
		creates, deletes int
	}{
		"none is there":  {parallel(nil), 0, loop.Burst, 0},
		"some are there": {parallel(nil), 700, loop.Burst, 0},
		"numbers go high": {parallel(func(s *appsv1.StatefulSet) {
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{
				Start: math.MaxInt32}
		}), 0, loop.Burst, 0},
		"too many": {web(1,
			func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }), 700, 0,
			loop.Burst},
		"all are outdated": {parallel(func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To[int32](700),
				ptr.To(intstr.FromString("100%"))
			s.Spec.Template = *template("newer")
		}), 700, 0, loop.Burst},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i := range c.pods {
				pod := newPod(c.set, i, newRevision)
				pod.UID, pod.Status.Phase = types.UID(pod.Name), corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
				pods = append(pods, pod)
			}
			update := newRevision
			if c.pods > 0 && c.set.Spec.Template.Spec.Containers[0].Image == "newer" {
				update = revision{"web-newer", &c.set.Spec.Template}
			}
			d := Decide(c.set, newRevision, update, pods, now)
			if len(d.Create) != c.creates || len(d.Delete) != c.deletes {
				t.Errorf("%d to create, %d to delete; want %d and %d", len(d.Create), len(d.Delete), c.creates,
					c.deletes)
			}
		})
	}
}

func TestPodsHaveTheirIdentity(t *testing.T) {
	set := web(1, func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"l": "1"}}},
		}
	})
	r := revision{"web-new", template("new")}
	r.template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
	pod := newPod(set, 2, r)
	if pod.Name != "web-2" || pod.GenerateName != "" || pod.Spec.Hostname != "web-2" || pod.Spec.Subdomain != "svc" ||
		!metav1.IsControlledBy(pod, set) {
		t.Errorf("it is %+v", pod)
	}
	want := map[string]string{
		"app":                                "web",
		"controller-revision-hash":           "web-new",
		"statefulset.kubernetes.io/pod-name": "web-2",
		"apps.kubernetes.io/pod-index":       "2",
	}
	if fmt.Sprint(pod.Labels) != fmt.Sprint(want) || len(r.template.Labels) != 1 {
		t.Errorf("its labels are %v; the template's %v", pod.Labels, r.template.Labels)
	}
	if len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-web-2" ||
		pod.Spec.Volumes[1].Name != "tmp" {
		t.Errorf("its volumes are %+v", pod.Spec.Volumes)
	}
	if c := claimsOf(set, 2); len(c) != 1 || c[0].Name != "data-web-2" || c[0].Namespace != "n" ||
		c[0].Labels["app"] != "web" ||
		c[0].Labels["l"] != "1" {
		t.Errorf("its claims are %+v", c)
	}
	// Missing identity labels are restored.
	delete(pod.Labels, "apps.kubernetes.io/pod-index")
	set = web(1, nil)
	lost := podsOf(set, "0")
	delete(lost[0].Labels, "apps.kubernetes.io/pod-index")
	if d := Decide(set, newRevision, newRevision, lost, now); decisionText(d) != "~0" ||
		d.Relabel[0].Labels["apps.kubernetes.io/pod-index"] != "0" {
		t.Errorf("then %q is done", decisionText(d))
	}
	for name, member := range map[string]bool{"web-0": true, "web-12": true, "web-01": false, "web-": false,
		"web-x": false, "web--1": false, "other-1": false, "web-1-2": false} {
		if _, got := ordinalOf(set, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != member {
			t.Errorf("%s is a member: %t", name, got)
		}
	}
}

func TestClaimOwners(t *testing.T) {
	keep, drop := appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	by := func(version, kind, name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{
			APIVersion:         version,
			Kind:               kind,
			Name:               name,
			UID:                types.UID(uid),
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}
	}
	bySet, byPod := by("apps/v1", "StatefulSet", "web", "set"), by("v1", "Pod", "web-1", "pod")
	former, formerSet, stranger := by("v1", "Pod", "web-1", "former"), by("apps/v1", "StatefulSet", "web",
		"former"), by("example.com/v1", "Keeper", "web", "k")
	shared := bySet
	shared.Controller = nil
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "pod"}}
	for _, row := range []struct {
		deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType
		condemned       bool
		current, want   []metav1.OwnerReference
	}{
		{keep, keep, false, nil, nil},
		{keep, keep, true, []metav1.OwnerReference{other}, []metav1.OwnerReference{other}},
		{drop, keep, false, nil, []metav1.OwnerReference{bySet}},
		{drop, keep, true, []metav1.OwnerReference{bySet}, []metav1.OwnerReference{bySet}},
		{keep, keep, false, []metav1.OwnerReference{other, bySet, byPod}, []metav1.OwnerReference{other}},
		{keep, drop, false, []metav1.OwnerReference{byPod}, nil},
		{keep, drop, true, nil, []metav1.OwnerReference{byPod}},
		{keep, drop, true, []metav1.OwnerReference{former}, []metav1.OwnerReference{former}},
		{drop, drop, false, []metav1.OwnerReference{formerSet, bySet}, []metav1.OwnerReference{formerSet}},
		{drop, drop, true, []metav1.OwnerReference{stranger, byPod}, []metav1.OwnerReference{stranger}},
		{drop, keep, false, []metav1.OwnerReference{shared}, []metav1.OwnerReference{bySet}},
		{drop, drop, true, []metav1.OwnerReference{bySet}, []metav1.OwnerReference{byPod}},
		{drop, drop, false, []metav1.OwnerReference{byPod}, []metav1.OwnerReference{bySet}},
	} {
		set := web(1, func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: row.deleted,
				WhenScaled:  row.scaled,
			}
		})
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "data-web-1", OwnerReferences: row.current},
		}
		got, changed, _ := claimOwners(set, claim, pod, !row.condemned)
		if !apiequality.Semantic.DeepEqual(got, row.want) ||
			changed == apiequality.Semantic.DeepEqual(row.current, row.want) {
			t.Errorf("%s %s, condemned %t: %v become %v, changed %t", row.deleted, row.scaled, row.condemned,
				row.current,
				got, changed)
		}
	}
}

func TestStatusCountsPods(t *testing.T) {
	set := web(4, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 })
	s := Status(set, oldRevision, newRevision, podsOf(set, "0old 1old! 2~ 3x 4old"), now)
	got := fmt.Sprint(s.ObservedGeneration, s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas,
		s.UpdatedReplicas, s.CurrentRevision, s.UpdateRevision)
	if want := "3 5 4 3 3 1web-oldweb-new"; got != want { // a pod that is being deleted counts as ready while it is
		t.Errorf("it is %s, want %s", got, want)
	}
	set = web(2, nil)
	if s := Status(set, oldRevision, newRevision, podsOf(set, "0 1"), now); s.CurrentRevision != newRevision.name ||
		s.CurrentReplicas != 2 {
		t.Errorf("after an update it is %+v", s)
	}
	if s := Status(set, oldRevision, newRevision, podsOf(set, "0 1!"), now); s.CurrentRevision != oldRevision.name ||
		s.CurrentReplicas != 0 {
		t.Errorf("before its end it is %+v", s)
	}
}

func TestStatusCountsCollisions(t *testing.T) {
	set := web(1, nil)
	if s := Status(set, newRevision, newRevision, nil, now); s.CollisionCount == nil || *s.CollisionCount != 0 {
		t.Errorf("none: %v", s.CollisionCount)
	}
	set.Status.CollisionCount = ptr.To[int32](2)
	if s := Status(set, newRevision, newRevision, nil, now); *s.CollisionCount != 2 {
		t.Errorf("two: %d", *s.CollisionCount)
	}
}
