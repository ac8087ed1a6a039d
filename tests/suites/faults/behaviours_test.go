package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

// controllerBehaviours are the purposes of controllers. Each runs in a namespace of its name, and returns its final
// state. bound returns a function that checks for violations after each event of a pod.
var controllerBehaviours = []struct {
	name  string
	bound func() podBound
	play  func(t *testing.T, s *testNamespace) string
}{
	{"deployment-rolls-out", func() podBound { return podsWithin(5, 4, 4) }, deploymentRolls},
	{"replicaset-scales", func() podBound { return podsWithin(6, 6, 0) }, replicaSetScales},
	{"statefulset-updates-in-order", oneOfEachOrdinal, statefulSetUpdates},
	{"daemonset-updates", onePerNode, daemonSetUpdates},
	{"job-counts-its-indexes", func() podBound { return podsWithin(2, 2, 0) }, jobCompletes},
	{"cronjob-starts-each-time-once", func() podBound { return podsWithin(1, 1, 0) }, cronJobStarts},
	{"budget-holds", func() podBound { return podsWithin(5, 5, 4) }, budgetHolds},
	{"endpoints-follow", nil, endpointsFollow},
	{"peers-follow", nil, peersFollow},
	{"addresses-are-given", nil, addressesAreUnique},
	{"garbage-goes", nil, garbageIsCollected},
	{"namespace-goes", nil, namespaceIsDeleted},
	{"claims-are-bound", nil, claimsAreBound},
}

func deploymentRolls(t *testing.T, s *testNamespace) string {
	api := s.client.AppsV1().Deployments(s.namespace)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](4), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: newTemplate("1", nil),
		Strategy: appsv1.DeploymentStrategy{
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge:       ptr.To(intstr.FromInt32(1)),
				MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			},
		},
	}}
	if _, err := api.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"1", "2", "3", "1"} {
		updateObject(t, s, api.Get, api.Update, "web",
			func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/a:" + image })
		s.waitFor(t, "the rollout of "+image, func(ctx context.Context) (bool, any) {
			d, err := api.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			pods := s.podsByImage(ctx)
			st := d.Status
			return st.ObservedGeneration == d.Generation && st.UpdatedReplicas == 4 && st.Replicas == 4 &&
				st.AvailableReplicas == 4 &&
				pods == "4 example.com/a:"+image+" Running", fmt.Sprint(st, pods)
		})
	}
	sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, set := range sets.Items {
		lines = append(lines, fmt.Sprintf("%s revision %s: %d", set.Spec.Template.Spec.Containers[0].Image,
			set.Annotations["deployment.kubernetes.io/revision"], *set.Spec.Replicas))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func replicaSetScales(t *testing.T, s *testNamespace) string {
	api := s.client.AppsV1().ReplicaSets(s.namespace)
	if _, err := api.Create(t.Context(), newReplicaSet(0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, n := range []int32{6, 2, 5, 0, 6} {
		updateObject(t, s, api.Get, api.Update, "web", func(r *appsv1.ReplicaSet) { r.Spec.Replicas = &n })
		want := fmt.Sprintf("%d example.com/a:1 Running", n)
		if n == 0 {
			want = ""
		}
		s.waitFor(t, fmt.Sprintf("%d pods", n), func(ctx context.Context) (bool, any) {
			r, err := api.Get(ctx, "web", metav1.GetOptions{})
			pods := s.podsByImage(ctx)
			return err == nil && r.Status.ReadyReplicas == n && r.Status.Replicas == n && pods == want, pods
		})
		made = append(made, fmt.Sprintf("%d pods, %d ever", n, s.seen.countPods(s.namespace)))
	}
	return strings.Join(made, "; ")
}

// oneOfEachOrdinal returns the bound of a StatefulSet of three pods: a pod is created only if those before it are
// ready, and at most one is missing during an update.
func oneOfEachOrdinal() podBound {
	away := podsWithin(3, 3, 2)
	return func(pods map[string]*corev1.Pod, event *corev1.Pod, added bool) string {
		if added {
			for n := range 3 {
				name := fmt.Sprintf("web-%d", n)
				if name == event.Name {
					break
				}
				if before := pods[name]; before == nil || !isReady(before) {
					return fmt.Sprintf("it is made before %s is ready", name)
				}
			}
		}
		return away(pods, event, added)
	}
}

func statefulSetUpdates(t *testing.T, s *testNamespace) string {
	api := s.client.AppsV1().StatefulSets(s.namespace)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](
			3,
		), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "web", Template: newTemplate("1", nil)}}
	if _, err := api.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"1", "2"} {
		updateObject(t, s, api.Get, api.Update, "web",
			func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "example.com/a:" + image })
		s.waitFor(t, "the rollout of "+image, func(ctx context.Context) (bool, any) {
			set, err := api.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			pods, st := s.podsByImage(ctx), set.Status
			return st.ObservedGeneration == set.Generation && st.AvailableReplicas == 3 &&
				st.UpdateRevision == st.CurrentRevision &&
				pods == "3 example.com/a:"+image+" Running", fmt.Sprint(st, pods)
		})
	}
	revisions, err := s.client.AppsV1().ControllerRevisions(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range revisions.Items {
		template, err := loop.TemplateOf(&r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("revision %d %s of %s", r.Revision, r.Name,
			template.Spec.Containers[0].Image))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s; %d pods ever", strings.Join(lines, "; "), s.seen.countPods(s.namespace))
}

// onePerNode returns the bound of a DaemonSet on three nodes.
func onePerNode() podBound {
	away := podsWithin(3, 3, 2)
	return func(pods map[string]*corev1.Pod, event *corev1.Pod, added bool) string {
		on := map[string]int{}
		for _, pod := range pods {
			if node := nodeFor(pod); pod.DeletionTimestamp == nil {
				if on[node]++; on[node] > 1 {
					return "two pods are for node " + node
				}
			}
		}
		return away(pods, event, added)
	}
}

func daemonSetUpdates(t *testing.T, s *testNamespace) string {
	api := s.client.AppsV1().DaemonSets(s.namespace)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: newTemplate("1", nil)}}
	if _, err := api.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"1", "2", "3"} {
		updateObject(t, s, api.Get, api.Update, "web",
			func(set *appsv1.DaemonSet) { set.Spec.Template.Spec.Containers[0].Image = "example.com/a:" + image })
		s.waitFor(t, "the rollout of "+image, func(ctx context.Context) (bool, any) {
			set, err := api.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			pods, st := s.podsByImage(ctx), set.Status
			return st.ObservedGeneration == set.Generation && st.NumberAvailable == 3 &&
				st.UpdatedNumberScheduled == 3 &&
				pods == "3 example.com/a:"+image+" Running", fmt.Sprint(st, pods)
		})
	}
	return fmt.Sprintf("%d pods ever", s.seen.countPods(s.namespace))
}

func jobCompletes(t *testing.T, s *testNamespace) string {
	api := s.client.BatchV1().Jobs(s.namespace)
	for _, mode := range []batchv1.CompletionMode{batchv1.IndexedCompletion, batchv1.NonIndexedCompletion} {
		name, fails := strings.ToLower(string(mode)), map[string]string{exitsLater: "yes", failsOnce: ""}
		if mode == batchv1.IndexedCompletion {
			fails[failsOnce] = "1"
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](
				5,
			), Parallelism: ptr.To[int32](2), CompletionMode: &mode, Template: newTemplate("1", fails)}}
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		if _, err := api.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.waitFor(t, "job "+name, func(ctx context.Context) (bool, any) {
			job, err := api.Get(ctx, name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
			}), job
		})
	}
	s.waitFor(t, "pods that wait for nothing", func(ctx context.Context) (bool, any) {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		return err == nil &&
			!slices.ContainsFunc(list.Items,
				func(pod corev1.Pod) bool { return len(pod.Finalizers) > 0 }), s.podsByImage(ctx)
	})
	jobs, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, job := range jobs.Items {
		lines = append(lines, fmt.Sprintf("%s: %d succeeded (%s), %d failed", job.Name, job.Status.Succeeded,
			job.Status.CompletedIndexes, job.Status.Failed))
	}
	return strings.Join(append(lines, s.podsByImage(t.Context()),
		fmt.Sprintf("%d pods ever", s.seen.countPods(s.namespace))), "; ")
}

// cronJobStarts checks that each time of the schedule has at most one job, which runs one pod, and that no two jobs run
// at the same time.
func cronJobStarts(t *testing.T, s *testNamespace) string {
	api := s.client.BatchV1().CronJobs(s.namespace)
	cj := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "tick"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
		SuccessfulJobsHistoryLimit: ptr.To[int32](100),
		JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{Template: newTemplate("1", map[string]string{exitsLater: "yes"})},
		}}}
	cj.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if _, err := api.Create(t.Context(), cj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var done []batchv1.Job
	s.waitFor(t, "three times", func(ctx context.Context) (bool, any) {
		list, err := s.client.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		done = slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return j.Status.Succeeded == 0 })
		return len(done) >= 3, len(list.Items)
	})
	times, twice := map[string]bool{}, 0
	for _, job := range done {
		at := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
		if times[at] || job.Status.Succeeded != 1 {
			twice++
		}
		times[at] = true
	}
	return fmt.Sprintf("three times or more, %d of them twice", twice)
}

// budgetHolds evicts ten pods, one after the other as the budget allows it.
func budgetHolds(t *testing.T, s *testNamespace) string {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Create(t.Context(), budget,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(t.Context(), newReplicaSet(5),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	evicted, refused := 0, error(nil)
	s.waitFor(t, "ten evictions", func(ctx context.Context) (bool, any) {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, pod := range list.Items {
			if !isReady(&pod) || pod.DeletionTimestamp != nil || evicted == 10 {
				continue
			}
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: s.namespace}}
			if refused = s.client.CoreV1().Pods(s.namespace).EvictV1(ctx, eviction); refused == nil {
				evicted++
			}
		}
		return evicted == 10, fmt.Sprint(evicted, refused)
	})
	var b *policyv1.PodDisruptionBudget
	s.waitFor(t, "five ready pods", func(ctx context.Context) (bool, any) {
		var err error
		b, err = s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		pods := s.podsByImage(ctx)
		return err == nil && b.Status.CurrentHealthy == 5 && b.Status.ExpectedPods == 5 &&
			b.Status.DisruptionsAllowed == 1 &&
			pods == "5 example.com/a:1 Running", fmt.Sprint(b, pods)
	})
	return fmt.Sprintf("%d evicted, %d pods ever, %d expected, %d desired", evicted, s.seen.countPods(s.namespace),
		b.Status.ExpectedPods, b.Status.DesiredHealthy)
}

func endpointsFollow(t *testing.T, s *testNamespace) string {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := s.client.CoreV1().Services(s.namespace).Create(t.Context(), service,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api := s.client.AppsV1().ReplicaSets(s.namespace)
	if _, err := api.Create(t.Context(), newReplicaSet(3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int32{3, 8, 1, 4} {
		updateObject(t, s, api.Get, api.Update, "web", func(r *appsv1.ReplicaSet) { r.Spec.Replicas = &n })
		s.waitFor(t, fmt.Sprintf("the addresses of %d pods", n), func(ctx context.Context) (bool, any) {
			pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			var want, sliced, listed []string
			for _, pod := range pods.Items {
				want = append(want, pod.Status.PodIP)
			}
			slices, err := s.client.DiscoveryV1().
				EndpointSlices(s.namespace).
				List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
			if err != nil {
				return false, err
			}
			for _, slice := range slices.Items {
				for _, e := range slice.Endpoints {
					if e.Conditions.Ready != nil && *e.Conditions.Ready {
						sliced = append(sliced, e.Addresses...)
					}
				}
			}
			endpoints, err := s.client.CoreV1().
				Endpoints(s.namespace).
				Get(ctx, "web", metav1.GetOptions{})
				//nolint:staticcheck // what is deprecated is kept right, too
			if err != nil {
				return false, err
			}
			for _, subset := range endpoints.Subsets {
				for _, a := range subset.Addresses {
					listed = append(listed, a.IP)
				}
			}
			return len(want) == int(n) && sameSet(want, sliced) &&
				sameSet(want, listed), fmt.Sprint(want, sliced, listed)
		})
	}
	return "the addresses of four pods"
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func claimsAreBound(t *testing.T, s *testNamespace) string {
	for i := range 4 {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse(fmt.Sprintf("%dGi", i+1)),
				}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
				}},
		}
		if _, err := s.client.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	claims := s.client.CoreV1().PersistentVolumeClaims(s.namespace)
	for i := range 3 {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				}},
		}
		if _, err := claims.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	used := map[string]int{}
	s.waitFor(t, "three bound claims", func(ctx context.Context) (bool, any) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		clear(used)
		for _, c := range list.Items {
			if v, err := s.client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName,
				metav1.GetOptions{}); err == nil && c.Status.Phase == corev1.ClaimBound &&
				v.Status.Phase == corev1.VolumeBound &&
				v.Spec.ClaimRef != nil &&
				v.Spec.ClaimRef.UID == c.UID {
				used[v.Name]++
			}
		}
		return len(used) == 3, used
	})
	return fmt.Sprintf("%d volumes bound to a claim each", len(used)) // the assignment depends on the order of requests
}
