package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
	}}
}

func TestAppliesOfTwoManagersConflictUnlessForced(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx := timeoutContext(t)
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		declare := func(data map[string]string) *applycorev1.ConfigMapApplyConfiguration {
			return applycorev1.ConfigMap("a", "default").WithData(data)
		}
		if _, err := maps.Apply(ctx, declare(map[string]string{"x": "1", "y": "1"}),
			metav1.ApplyOptions{FieldManager: "one"}); err != nil {
			t.Fatal(err)
		}
		_, err := maps.Apply(ctx, declare(map[string]string{"x": "2"}), metav1.ApplyOptions{FieldManager: "two"})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .data.x`) {
			t.Errorf("conflict: %v", err)
		}
		m, err := maps.Apply(ctx, declare(map[string]string{"x": "2"}),
			metav1.ApplyOptions{FieldManager: "two", Force: true})
		if err != nil || m.Data["x"] != "2" || m.Data["y"] != "1" {
			t.Errorf("forced: %+v, %v", m.Data, err)
		}
		// A field that its manager does not declare any more is removed.
		m, err = maps.Apply(ctx, declare(nil), metav1.ApplyOptions{FieldManager: "one"})
		if err != nil || len(m.Data) != 1 || m.Data["x"] != "2" {
			t.Errorf("given up: %+v, %v", m.Data, err)
		}
		again, err := maps.Apply(ctx, declare(nil), metav1.ApplyOptions{FieldManager: "one"})
		if err != nil || again.ResourceVersion != m.ResourceVersion {
			t.Errorf("applying again wrote %s over %s: %v", again.ResourceVersion, m.ResourceVersion, err)
		}
		if _, err := maps.Patch(ctx, "a", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`), metav1.PatchOptions{}); !apierrors.IsInvalid(
			err,
		) {
			t.Errorf("without a manager: %v", err)
		}
	})
}

func TestSpecAndStatusAreWrittenSeparately(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	apps := kubernetes.NewForConfigOrDie(cfg).AppsV1().Deployments("default")
	d := deployment("d")
	d.Status.Replicas = 7
	d, err := apps.Create(ctx, d, metav1.CreateOptions{})
	if err != nil || d.Generation != 1 || d.Status.Replicas != 0 || d.Spec.Replicas == nil || *d.Spec.Replicas != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	next := d.DeepCopy()
	next.Status.Replicas, *next.Spec.Replicas = 3, 9
	d, err = apps.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil || d.Status.Replicas != 3 || *d.Spec.Replicas != 1 || d.Generation != 1 {
		t.Fatalf("status: %+v, %v", d, err)
	}
	next = d.DeepCopy()
	next.Status.Replicas, *next.Spec.Replicas = 0, 2
	d, err = apps.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil || d.Status.Replicas != 3 || *d.Spec.Replicas != 2 || d.Generation != 2 {
		t.Fatalf("spec: %+v, %v", d, err)
	}
	same, err := apps.Update(ctx, d.DeepCopy(), metav1.UpdateOptions{})
	if err != nil || same.ResourceVersion != d.ResourceVersion {
		t.Errorf("writing the same again: %v", err)
	}
	scale, err := apps.GetScale(ctx, "d", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 2 || scale.Status.Selector != "app=d" {
		t.Fatalf("scale: %+v, %v", scale, err)
	}
	scale.Spec.Replicas = 5
	if scale, err = apps.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 5 {
		t.Fatalf("scale: %+v, %v", scale, err)
	}
	dry, err := apps.Patch(ctx, "d", types.MergePatchType, []byte(`{"spec":{"replicas":8}}`),
		metav1.PatchOptions{DryRun: []string{"All"}})
	if err != nil || *dry.Spec.Replicas != 8 {
		t.Fatalf("dry run: %v", err)
	}
	if d, err = apps.Get(ctx, "d", metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 5 || d.Generation != 3 {
		t.Errorf("after a dry run: %+v, %v", d.Spec.Replicas, err)
	}
}

func TestDeletionWaitsForFinalizersAndGracePeriod(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	maps, pods := client.CoreV1().ConfigMaps("default"), client.CoreV1().Pods("default")
	held := configMap("held")
	held.Finalizers = []string{"example.com/hold"}
	made, err := maps.Create(ctx, held, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := types.UID("other")
	if err := maps.Delete(ctx, "held",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("another's uid: %v", err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := maps.Delete(ctx, "held", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	m, err := maps.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || m.DeletionTimestamp == nil || len(m.Finalizers) != 2 || m.UID != made.UID {
		t.Fatalf("held: %+v, %v", m, err)
	}
	m.Finalizers = append(m.Finalizers, "example.com/more")
	if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a new finalizer while going: %v", err)
	}
	m.Finalizers = nil
	if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("let go: %v", err)
	}

	if _, err := pods.Create(ctx, pod("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
	}
	if err := pods.Bind(ctx, bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Bind(ctx, bind, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("bound twice: %v", err)
	}
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := pods.Get(ctx, "p", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 || p.Spec.NodeName != "n" ||
		p.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Fatalf("going: %+v, %v", p, err)
	}
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("by node: %v, %v", list, err)
	}
	now := int64(0)
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("killed: %v", err)
	}
}

func TestCollectionsAreDeletedBySelector(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	maps := client.CoreV1().ConfigMaps("default")
	createConfigMaps(t, ctx, client, 4)
	for _, name := range []string{"m000", "m001"} {
		if _, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"go":"away"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "go=away"}); err != nil {
		t.Fatal(err)
	}
	if list, err := maps.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 2 ||
		list.Items[0].Name != "m002" {
		t.Errorf("left %v, %v", list, err)
	}
}

func TestGeneratedNamesDiffer(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	seen := map[string]bool{}
	for range 20 {
		m, err := maps.Create(timeoutContext(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "g-"}},
			metav1.CreateOptions{})
		if err != nil || len(m.Name) != 7 || seen[m.Name] {
			t.Fatalf("%v, %v", m, err)
		}
		seen[m.Name] = true
	}
}

func TestEvictionSpendsTheBudget(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	pods, budgets := client.CoreV1().Pods("default"), client.PolicyV1().PodDisruptionBudgets("default")
	for _, name := range []string{"a", "b"} {
		p, err := pods.Create(ctx, pod(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if _, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	b, err := budgets.Create(
		ctx,
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
		}},
		metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation,
		DisruptionsAllowed: 1,
		CurrentHealthy:     2,
		DesiredHealthy:     1,
		ExpectedPods:       2,
	}
	if _, err := budgets.UpdateStatus(ctx, b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("evicted: %v", err)
	}
	answer, data := sendRaw(t, cfg, "POST", "/api/v1/namespaces/default/pods/b/eviction",
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"b"}}`, nil)
	if answer.StatusCode != 429 || !strings.Contains(string(data), string(policyv1.DisruptionBudgetCause)) {
		t.Errorf("over budget: %d %s", answer.StatusCode, data)
	}
}

func TestServersNeverAllocateAnAddressTwice(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			ctx := timeoutContext(t)
			var mu sync.Mutex
			addresses, ports := map[string]string{}, map[int32]string{}
			var wg sync.WaitGroup
			for i := range 3 {
				client := kubernetes.NewForConfigOrDie(startConfig(t, s,
					func(o *apiserverOptions) { o.Addresses.ServiceClusterIPRange = []string{"10.0.0.0/26"} }))
				wg.Go(func() {
					for j := range 15 {
						svc, err := client.CoreV1().
							Services("default").
							Create(ctx, service(fmt.Sprintf("s%d-%d", i, j)), metav1.CreateOptions{})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if other := addresses[svc.Spec.ClusterIP]; other != "" {
							t.Errorf("%s and %s have the address %s", other, svc.Name, svc.Spec.ClusterIP)
						}
						if other := ports[svc.Spec.Ports[0].NodePort]; other != "" {
							t.Errorf("%s and %s have the port %d", other, svc.Name, svc.Spec.Ports[0].NodePort)
						}
						addresses[svc.Spec.ClusterIP], ports[svc.Spec.Ports[0].NodePort] = svc.Name, svc.Name
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			checkServiceReleased(t, ctx, kubernetes.NewForConfigOrDie(startConfig(t, s,
				func(o *apiserverOptions) { o.Addresses.ServiceClusterIPRange = []string{"10.0.0.0/26"} })))
		})
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}},
	}}
}

// checkServiceReleased deletes a service and checks that its address and port are free again.
func checkServiceReleased(t *testing.T, ctx context.Context, client kubernetes.Interface) {
	t.Helper()
	services := client.CoreV1().Services("default")
	svc, err := services.Get(ctx, "s0-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again := service("again")
	again.Spec.ClusterIP, again.Spec.Ports[0].NodePort = svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort
	if _, err := services.Create(ctx, again, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a taken address: %v", err)
	}
	if err := services.Delete(ctx, "s0-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() error {
		_, err := services.Create(ctx, again, metav1.CreateOptions{})
		return err
	})
	if list, err := client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{}); err != nil ||
		len(list.Items) != 45 {
		t.Errorf("%d claims, %v", len(list.Items), err)
	}
}

func TestEventsAreServedUnderBothGroups(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	_, err := client.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: "e",
		}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"},
		Reason: "Tested", Message: "by a test", Type: "Normal",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		one := rest.CopyConfig(cfg)
		one.ContentType = contentType
		list, err := kubernetes.NewForConfigOrDie(one).
			EventsV1().
			Events("default").
			List(ctx, metav1.ListOptions{FieldSelector: "reason=Tested"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Note != "by a test" ||
			list.Items[0].Regarding.Name != "p" ||
			list.Items[0].ResourceVersion == "" {
			t.Errorf("%s: %+v, %v", contentType, list, err)
		}
	}
}

// Applying the same declaration again later changes nothing, even if the kind has defaults that were not sent. But data
// that looks like the times of managed fields is a change.
func TestRepeatedApplyChangesNothing(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	points := applycorev1.Endpoints("a", "default").
		WithSubsets(applycorev1.EndpointSubset(). //nolint:staticcheck // still served
								WithAddresses(applycorev1.EndpointAddress().WithIP("10.0.0.1")).
								WithPorts(applycorev1.EndpointPort().WithName("x").WithPort(80)))
	times := func(time string) *applycorev1.ConfigMapApplyConfiguration {
		return applycorev1.ConfigMap("a", "default").WithData(map[string]string{"time": time})
	}
	first, err := client.Endpoints("default").Apply(ctx, points, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.ConfigMaps("default").
		Apply(ctx, times("2026-01-01T00:00:00Z"), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		t.Fatal(err)
	}
	// Times in managed fields have a resolution of seconds.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now().Unix(); time.Now().Unix() <= start; {
		<-tick.C
	}
	again, err := client.Endpoints("default").Apply(ctx, points, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || again.ResourceVersion != first.ResourceVersion {
		t.Errorf("applied again: version %s after %s, %v", again.ResourceVersion, first.ResourceVersion, err)
	}
	updated, err := client.Endpoints("default").Update(ctx, again, metav1.UpdateOptions{FieldManager: "one"})
	if err != nil || updated.ResourceVersion != first.ResourceVersion {
		t.Errorf("updated to the same: version %s after %s, %v", updated.ResourceVersion, first.ResourceVersion, err)
	}
	after, err := client.ConfigMaps("default").
		Apply(ctx, times("2026-01-01T00:00:01Z"), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || after.ResourceVersion == before.ResourceVersion || after.Data["time"] != "2026-01-01T00:00:01Z" {
		t.Errorf("another time in the data: %v, version %s after %s, %v", after.Data, after.ResourceVersion,
			before.ResourceVersion, err)
	}
}
