package resourceclaim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			NodeName:       "n",
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("t")}},
		}}
	if change != nil {
		change(p)
	}
	return p
}

func claimOfPods(owner string, users ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "d",
			Name:       "c",
			UID:        "uid-c",
			Finalizers: []string{resourcev1.Finalizer},
		},
	}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, u := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: u, UID: types.UID("uid-" + u)})
	}
	if owner != "" {
		c.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(pod(owner, nil), corev1.SchemeGroupVersion.WithKind("Pod")),
		}
	}
	return c
}

// newTestController returns a controller. cached holds the pods in its cache, and server the pods on the server.
func newTestController(t *testing.T, claim *resourcev1.ResourceClaim, cached, server []*corev1.Pod) (*controller,
	*fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	factory := informers.New(client)
	r := New(loop.Context{Client: client, Informers: factory, Events: record.NewFakeRecorder(10),
		Log: slog.New(slog.DiscardHandler)}).(*controller)
	for _, p := range server {
		if err := client.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range cached {
		if err := informers.Pods(factory).Informer().GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if claim != nil {
		if err := client.Tracker().Add(claim); err != nil {
			t.Fatal(err)
		}
		if err := informers.ResourceClaims(factory).Informer().GetIndexer().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	return r, client
}

func TestClaimsAreFreedAfterTheirLastUser(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	stillRuns := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}
	}
	runs := []*corev1.Pod{pod("a", nil)}
	for name, c := range map[string]struct {
		claim             *resourcev1.ResourceClaim
		cached, server    []*corev1.Pod
		allocated, isGone bool
		users             int
	}{
		"in use":            {claimOfPods("", "a"), runs, runs, true, false, 1},
		"not shown yet":     {claimOfPods("", "a"), nil, runs, true, false, 1},
		"its pod is gone":   {claimOfPods("", "a"), nil, nil, false, false, 0},
		"its pod has ended": {claimOfPods("", "a"), []*corev1.Pod{pod("a", ended)}, nil, false, false, 0},
		"its containers run still": {claimOfPods("", "a"), []*corev1.Pod{pod("a", stillRuns)}, nil, true, false,
			1},
		"one of two is gone": {claimOfPods("", "a", "b"), runs, runs, true, false, 1},
		"another pod of the name": {claimOfPods("", "a"), nil,
			[]*corev1.Pod{pod("a", func(p *corev1.Pod) { p.UID = "later" })}, false, false, 0},
		"made for a pod that runs":      {claimOfPods("a", "a"), runs, runs, true, false, 1},
		"made for a pod that is gone":   {claimOfPods("a", "a"), nil, nil, false, true, 0},
		"never reserved, pod is gone":   {claimOfPods("a"), nil, nil, false, true, 0},
		"kept for nobody in particular": {claimOfPods(""), nil, nil, true, false, 0},
	} {
		r, client := newTestController(t, c.claim, c.cached, c.server)
		if err := r.sync(context.Background(), claimKey+"d/c"); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := client.ResourceV1().ResourceClaims("d").Get(context.Background(), "c", metav1.GetOptions{})
		if apierrors.IsNotFound(err) != c.isGone {
			t.Errorf("%s: %v", name, err)
		} else if err == nil &&
			((got.Status.Allocation != nil) != c.allocated || len(got.Status.ReservedFor) != c.users ||
				(len(got.Finalizers) > 0) != c.allocated) {
			t.Errorf("%s: %+v, finalizers %v", name, got.Status, got.Finalizers)
		}
	}
}

func TestEndedPodsEnqueueTheirExtendedResourceClaim(t *testing.T) {
	p := pod("a", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = nil
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c"}
	})
	r, client := newTestController(t, nil, nil, []*corev1.Pod{p})
	if err := client.Tracker().Add(claimOfPods("a", "a")); err != nil {
		t.Fatal(err)
	}
	r.Informers.StartWithContext(t.Context())
	r.Informers.WaitForCacheSync(t.Context().Done())
	next := func() string {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if r.Queue().Len() > 0 {
				key, _ := r.Queue().Get()
				r.Queue().Done(key)
				return key
			}
		}
		return "nothing"
	}
	first := []string{next(), next()} // both must exist
	slices.Sort(first)
	if want := []string{claimKey + "d/c", podKey + "d/a"}; !slices.Equal(first, want) {
		t.Fatalf("at first %q are looked at", first)
	}
	watched := func(a clienttesting.Action) bool { return a.Matches("watch", "pods") }
	for !slices.ContainsFunc(client.Actions(), watched) { // the fake API does not deliver earlier events
		time.Sleep(time.Millisecond)
	}
	ended := p.DeepCopy()
	ended.ResourceVersion, ended.Status.Phase = "2", corev1.PodSucceeded
	if _, err := client.CoreV1().Pods("d").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if key := next(); key != claimKey+"d/c" {
		t.Errorf("when its pod has ended, %s is looked at", key)
	}
}

// Only a 404 about the pod itself means that it is gone. Freed devices go to other pods at once.
func TestOtherNotFoundAnswersDoNotFreeDevices(t *testing.T) {
	for name, err := range map[string]error{
		"a page somewhere": apierrors.NewGenericServerResponse(404, "get", corev1.Resource("pods"), "a",
			"404 page not found", 0, true),
		"a namespace":    apierrors.NewNotFound(corev1.Resource("namespaces"), "d"),
		"nobody answers": apierrors.NewInternalError(errors.New("no")),
	} {
		r, client := newTestController(t, claimOfPods("a", "a"), nil, nil)
		client.PrependReactor("get", "pods",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		failed := r.sync(context.Background(), claimKey+"d/c")
		got, err := client.ResourceV1().ResourceClaims("d").Get(context.Background(), "c", metav1.GetOptions{})
		if failed == nil || err != nil || got.Status.Allocation == nil || len(got.Status.ReservedFor) != 1 {
			t.Errorf("%s: %v; the claim is %+v, %v", name, failed, got, err)
		}
	}
}

func TestClaimsAreCreatedOnceFromTheirTemplate(t *testing.T) {
	p := pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	r, client := newTestController(t, nil, []*corev1.Pod{p}, []*corev1.Pod{p})
	client.PrependReactor("create", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if c, ok := a.(clienttesting.CreateAction).GetObject().(*resourcev1.ResourceClaim); ok {
			c.Name = c.GenerateName + "x" // as the server would
		}
		return false, nil, nil
	})
	if err := r.sync(context.Background(), podKey+"d/a"); err == nil {
		t.Error("a claim is made of a template that is not there")
	}
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "t"},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"a": "b"},
				Annotations: map[string]string{"x": "y"},
			}},
	}
	if err := informers.ResourceClaimTemplates(r.Informers).Informer().GetIndexer().Add(template); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the cache shows neither the claim nor the status
		if err := r.sync(context.Background(), podKey+"d/a"); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.ResourceV1().ResourceClaims("d").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v: %v", err, list)
	}
	c := list.Items[0]
	if c.GenerateName != "a-gpu-" || c.Labels["a"] != "b" || c.Annotations["x"] != "y" ||
		c.Annotations[entryAnnotation] != "gpu" ||
		!metav1.IsControlledBy(&c, p) {
		t.Errorf("the claim is %+v", c)
	}
	stored, err := client.CoreV1().Pods("d").Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil || len(stored.Status.ResourceClaimStatuses) != 1 ||
		*stored.Status.ResourceClaimStatuses[0].ResourceClaimName != c.Name {
		t.Errorf("%v: the status is %+v", err, stored.Status)
	}
}
