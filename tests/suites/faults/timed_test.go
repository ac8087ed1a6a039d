package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

const leavesNode = "a-pod-leaves-a-silent-node"

// timedMoves are what controllers do when a time has passed: begin creates what waits while the clock stands still,
// over checks the result, and takes is the time by the clock.
var timedMoves = []struct {
	name  string
	takes time.Duration
	begin func(t *testing.T, s *testNamespace)
	over  func(ctx context.Context, s *testNamespace) (bool, any)
}{
	{"a-finished-job-goes", time.Hour, func(t *testing.T, s *testNamespace) {
		makeJob(t, s, func(j *batchv1.Job) {
			j.Spec.Template.Labels[exitsLater], j.Spec.TTLSecondsAfterFinished = "yes", ptr.To[int32](3600)
		})
		s.waitFor(t, "the end of the job", func(ctx context.Context) (bool, any) {
			j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && j.Status.CompletionTime != nil, j
		})
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && j.DeletionTimestamp != nil, j
	}},
	{"a-job-has-a-deadline", 10 * time.Minute, func(t *testing.T, s *testNamespace) {
		makeJob(t, s, func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](600) })
		s.waitFor(t, "a pod", func(ctx context.Context) (bool, any) {
			p := s.podsByImage(ctx)
			return p == "1 example.com/a:1 Running", p
		})
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobFailed && c.Reason == "DeadlineExceeded"
		}), j
	}},
	{"a-failed-pod-is-replaced-later", 10 * time.Second, func(t *testing.T, s *testNamespace) {
		makeJob(
			t,
			s,
			func(j *batchv1.Job) {
				j.Spec.Template.Labels[exitsLater], j.Spec.Template.Labels[failsOnce] = "yes", ""
			},
		)
		s.waitFor(t, "the failure", func(ctx context.Context) (bool, any) {
			j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && j.Status.Failed == 1, j
		})
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1, j
	}},
	{"a-rollout-makes-no-progress", 10 * time.Minute, func(t *testing.T, s *testNamespace) {
		makeDeployment(t, s, func(d *appsv1.Deployment) { d.Spec.Template.Labels[neverStarts] = "yes" })
		s.waitFor(t, "a status", func(ctx context.Context) (bool, any) {
			d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && d.Status.UnavailableReplicas == 1, d
		})
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil &&
			slices.ContainsFunc(d.Status.Conditions,
				func(c appsv1.DeploymentCondition) bool { return c.Reason == "ProgressDeadlineExceeded" }), d
	}},
	{"a-pod-is-available-later", 5 * time.Minute, func(t *testing.T, s *testNamespace) {
		makeDeployment(t, s, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 300 })
		s.waitFor(t, "a ready pod", func(ctx context.Context) (bool, any) {
			d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && d.Status.ReadyReplicas == 1, d
		})
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 1, d
	}},
	{"a-time-of-a-schedule-comes", 40 * time.Minute, func(t *testing.T, s *testNamespace) {
		at := s.clock.Now().UTC().Add(40 * time.Minute)
		cj := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: batchv1.CronJobSpec{
			Schedule: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), TimeZone: ptr.To("Etc/UTC"),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: newTemplate("1", nil)}}}}
		cj.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		if _, err := s.client.BatchV1().CronJobs(s.namespace).Create(t.Context(), cj,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		jobs, err := s.client.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(jobs.Items) == 1, jobs
	}},
	{"a-bootstrap-token-expires", time.Hour, func(t *testing.T, s *testNamespace) {
		token := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				"token-id": "abcdef", "token-secret": "0123456789abcdef",
				"expiration": s.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		}
		if _, err := s.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), token,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		secret, err := s.client.CoreV1().
			Secrets(metav1.NamespaceSystem).
			Get(ctx, "bootstrap-token-abcdef", metav1.GetOptions{})
		return apierrors.IsNotFound(err), secret
	}},
	{"a-pod-of-no-node-goes", 40 * time.Second, func(t *testing.T, s *testNamespace) {
		makePod(t, s, "nowhere", nil)
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err), pod
	}},
	{leavesNode, 340 * time.Second, func(t *testing.T, s *testNamespace) {
		makePod(t, s, "n1", nil) // with the tolerations of 300 s that every pod gets
		renewLeases(t.Context(), s, nodeNames...)
	}, func(ctx context.Context, s *testNamespace) (bool, any) {
		renewLeases(ctx, s, "n2", "n3")
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil, pod
	}},
}

func makeJob(t *testing.T, s *testNamespace, f func(*batchv1.Job)) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: batchv1.JobSpec{Template: newTemplate("1", nil)}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	f(job)
	if _, err := s.client.BatchV1().Jobs(s.namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func makeDeployment(t *testing.T, s *testNamespace, f func(*appsv1.Deployment)) {
	t.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: newTemplate("1", nil),
		},
	}
	f(d)
	if _, err := s.client.AppsV1().Deployments(s.namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func makePod(t *testing.T, s *testNamespace, node string, more map[string]string) {
	t.Helper()
	made := newTemplate("1", more)
	made.Spec.NodeName = node
	if _, err := s.client.CoreV1().Pods(s.namespace).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: made.Spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// renewLeases renews the leases of nodes.
func renewLeases(ctx context.Context, s *testNamespace, names ...string) {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for _, name := range names {
		now := metav1.NewMicroTime(s.clock.Now())
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &now},
			}
			_, _ = leases.Create(ctx, lease, metav1.CreateOptions{})
		} else if err == nil {
			lease.Spec.RenewTime = &now
			_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
	}
}

// Each waits for hours on a clock that the test moves. Nothing happens before its time, and then it happens.
func TestEveryTimedActionGoesByTheClock(t *testing.T) {
	var all errgroup.Group
	defer func() { _ = all.Wait() }()
	all.SetLimit(3) // each is a whole control plane
	for _, m := range timedMoves {
		all.Go(func() error {
			t.Run(m.name, func(t *testing.T) {
				// An hour late: what the API server does in real time must not go by this clock.
				clock := clocktesting.NewFakeClock(time.Now().Truncate(time.Minute).Add(-time.Hour))
				w := newWorld(t, &faults{}, clock)
				w.startNodes(t)
				var without []string
				if m.name != leavesNode {
					without = []string{"-node"} // the test does not renew leases
				}
				w.runControllers(t, 0, without...)
				s := &testNamespace{world: w, namespace: m.name}
				// Items that a conflict has returned to a queue also wait for the clock.
				var before time.Duration
				s.betweenAttempts = func() { clock.Step(5 * time.Millisecond); before += 5 * time.Millisecond }
				s.createNamespace(t)
				m.begin(t, s)
				s.betweenAttempts = nil
				start := clock.Now()
				s.waitFor(t, "what was waited for", func(ctx context.Context) (bool, any) {
					seen, saw := m.over(ctx, s)
					if !seen {
						clock.Step(max(time.Second, m.takes/200))
					}
					return seen, saw
				})
				if took := clock.Since(start); took+before < m.takes || took > m.takes*3/2+5*time.Minute {
					t.Errorf("it took %s of the clock, want %s", took, m.takes)
				}
			})
			return nil
		})
	}
}
