package why

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// refusing returns a Deployment whose pods the API server refuses with a message, and other objects.
func refusing(message string, more ...runtime.Object) []runtime.Object {
	d, s := newDeployment("web")
	return append(more, d, s, event("ReplicaSet", "web-1", "FailedCreate", "Error creating: "+message))
}

//style:long a table of broken workloads and what is said of them
func TestBrokenWorkloadsAreExplained(t *testing.T) {
	web, set := newDeployment("web")
	crashed := newPod("web-1-x", crashing("OOMKilled", 137), ownedBy("ReplicaSet", "web-1"))
	paused, _ := newDeployment("web")
	paused.Spec.Paused = true
	stale, _ := newDeployment("web")
	stale.Generation = 2
	expired := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "kube-controller-manager"}}
	expired.Spec.RenewTime = ptr.To(metav1.NewMicroTime(metav1.Now().Add(-600e9)))
	used := &corev1.ResourceQuota{ObjectMeta: newMeta("team")}
	hook := untyped("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "checks", map[string]any{
		"webhooks": []any{map[string]any{"name": "images.example.com",
			"clientConfig": map[string]any{"service": map[string]any{
				"namespace": "checks", "name": "reviewer"}}}}})
	ordered := &appsv1.StatefulSet{ObjectMeta: newMeta("db")}
	ordered.Spec.Replicas = ptr.To(int32(3))
	ordered.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 1}
	onDelete := ordered.DeepCopy()
	onDelete.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 0,
		CurrentRevision: "db-1", UpdateRevision: "db-2"}
	onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	daemons := &appsv1.DaemonSet{ObjectMeta: newMeta("agent")}
	daemons.Status.ObservedGeneration = 1
	daemons.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	for _, c := range []brokenCase{
		{name: "a crash below a Deployment", object: "deploy/web", log: "x",
			objects: []runtime.Object{web, set, crashed,
				newNode("a")},
			verdict: "Deployment shop/web has 0 of 2 pods available because node a ran out of memory and killed " +
				"container " +
				"app, which has no memory limit.",
			remedy: "spec.template.spec.containers[app].resources.limits.memory of Deployment shop/web",
			step:   "ReplicaSet shop/web-1: It has 0 of 2 pods available.\nPod shop/web-1-x:"},
		{name: "a ReplicaSet", object: "rs/web-1", log: "x", objects: []runtime.Object{web, set, crashed, newNode("a")},
			verdict: "ReplicaSet shop/web-1 has 0 of 2 pods available because node a ran out of memory and killed " +
				"container " +
				"app, which has no memory limit.", remedy: "kubectl set resources -n shop deployment/web -c app"},
		{name: "paused", object: "deployment/web", objects: []runtime.Object{paused},
			verdict: "Deployment shop/web has 0 of 2 pods available because it is paused.",
			remedy:  "kubectl rollout resume -n shop deployment/web"},
		{name: "no controller manager", object: "deployment/web", objects: []runtime.Object{stale, expired},
			verdict: "Deployment shop/web has 0 of 2 pods available because no kube-controller-manager has been " +
				"running for " +
				"10m.", remedy: "clusterctl status"},
		{name: "a full quota", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: exceeded quota: `+
			`team, requested: cpu=1, used: cpu=4, limited: cpu=4`, used),
			verdict: "Deployment shop/web has 0 of 2 pods available because ResourceQuota shop/team has no room: " +
				"requested " +
				"cpu=1, used cpu=4 of cpu=4.", remedy: "spec.hard of ResourceQuota shop/team"},
		{name: "a quota without requests", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: ` +
			`failed quota: team: must specify limits.cpu for: app`),
			verdict: "Deployment shop/web has 0 of 2 pods available because ResourceQuota shop/team demands that " +
				"every " +
				"container sets limits.cpu for: app.", remedy: "kubectl set resources -n shop deployment/web"},
		{name: "a limit range", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: maximum memory `+
			`usage per Container is 1Gi, but limit is 2Gi`, untyped("v1", "LimitRange", testNamespace, "bounds", nil)),
			verdict: "Deployment shop/web has 0 of 2 pods available because a LimitRange of namespace shop forbids " +
				"its " +
				"resources: maximum memory usage per Container is 1Gi, but limit is 2Gi.",
			remedy: "spec.limits of LimitRange shop/bounds"},
		{name: "pod security", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: violates ` +
			`PodSecurity "restricted:latest": allowPrivilegeEscalation != false`),
			verdict: `Deployment shop/web has 0 of 2 pods available because the pod security level "restricted:latest" of ` +
				"namespace shop forbids its pods: allowPrivilegeEscalation != false.",
			remedy: "kubectl label namespace shop pod-security.kubernetes.io/enforce=LEVEL --overwrite"},
		{name: "a webhook denies", object: "deployment/web", objects: refusing(
			`admission webhook "images.example.com" denied the request: unsigned image`, hook),
			verdict: "Deployment shop/web has 0 of 2 pods available because the admission webhook images.example.com " +
				"denies " +
				"its pods: unsigned image.", remedy: "kubectl edit validatingwebhookconfiguration checks"},
		{name: "a webhook is down", object: "deployment/web", objects: refusing(`Internal error occurred: failed calling `+
			`webhook "images.example.com": connection refused`, hook),
			verdict: "Deployment shop/web has 0 of 2 pods available because the admission webhook images.example.com " +
				"does " +
				"not answer: connection refused.", remedy: "clusterctl why -n checks service/reviewer"},
		{name: "a policy denies", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: ` +
			`ValidatingAdmissionPolicy 'owners' with binding 'all' denied request: the label owner is missing`),
			verdict: "Deployment shop/web has 0 of 2 pods available because the ValidatingAdmissionPolicy owners " +
				"denies its " +
				"pods: the label owner is missing.", remedy: "kubectl describe validatingadmissionpolicy owners"},
		{name: "a missing account", object: "deployment/web", objects: refusing(`pods "web-1-x" is forbidden: error looking ` +
			`up service account shop/robot: serviceaccount "robot" not found`),
			verdict: "Deployment shop/web has 0 of 2 pods available because ServiceAccount shop/robot does not exist.",
			remedy:  "kubectl create serviceaccount -n shop robot"},
		{name: "an ordered set", object: "statefulset/db",
			objects: []runtime.Object{ordered, newNode("a"), newPod("db-0",
				waitingFor("InvalidImageName", ""), ownedBy("StatefulSet", "db"))},
			verdict: `StatefulSet shop/db has 0 of 3 pods ready because "registry.example/web:v1" is not a valid name of an ` +
				"image.", remedy: "spec.template.spec.containers[app].image of StatefulSet shop/db",
			step: "it creates the next pod when all earlier ones are ready"},
		{name: "OnDelete", object: "statefulset/db", objects: []runtime.Object{onDelete},
			verdict: "StatefulSet shop/db has 0 of 3 pods updated because its update strategy OnDelete replaces pods " +
				"only " +
				"when they are deleted.", remedy: "spec.updateStrategy.type"},
		{name: "no nodes for a DaemonSet", object: "daemonset/agent", objects: []runtime.Object{daemons, newNode("a")},
			verdict: "DaemonSet shop/agent has no pods because no node has the label disk=ssd of its node selector.",
			remedy:  "spec.template.spec.nodeSelector of DaemonSet shop/agent"},
	} {
		t.Run(c.name, c.run)
	}
}

//style:long a table of broken objects and what is said of them
func TestBrokenJobsAndScalersAreExplained(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: newMeta("load")}
	job.OwnerReferences = controller("CronJob", "nightly")
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True",
		Reason:  "BackoffLimitExceeded",
		Message: "Job has reached the specified backoff limit"}}
	failed := newPod("load-x", ownedBy("Job", "load"), func(p *corev1.Pod) {
		p.Status.Phase, p.Spec.RestartPolicy = corev1.PodFailed, corev1.RestartPolicyNever
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 127, Reason: "Error"}}}}
	})
	suspended := &batchv1.Job{ObjectMeta: newMeta("load")}
	suspended.Spec.Suspend = ptr.To(true)
	nightly := &batchv1.CronJob{ObjectMeta: newMeta("nightly")}
	nightly.Spec.Schedule = "0 3 * * *"
	off := nightly.DeepCopy()
	off.Spec.Suspend = ptr.To(true)
	scaler := func(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason,
		message string) *autoscalingv2.HorizontalPodAutoscaler {
		h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: newMeta("web")}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
		h.Spec.MaxReplicas = 5
		h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: kind, Status: status,
			Reason:  reason,
			Message: message}}
		return h
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: newMeta("web")}
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1,
		ExpectedPods: 1}
	metrics := untyped("apiregistration.k8s.io/v1", "APIService", "", "v1beta1.metrics.k8s.io", map[string]any{
		"spec": map[string]any{"service": map[string]any{"namespace": "kube-system", "name": "metrics-server"}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "False",
			"message": "no endpoints are ready"}}}})
	for _, c := range []brokenCase{
		{name: "a failed job", object: "job/load", log: "load: not found", objects: []runtime.Object{job, failed,
			newNode("a")},
			verdict: "Job shop/load has failed because the program of container app ends with exit code 127 (its " +
				"command " +
				"was not found).", remedy: "spec.jobTemplate.spec.template.spec.containers[app].command of CronJob " +
				"shop/nightly",
			step: "Job has reached the specified backoff limit."},
		{name: "a suspended job", object: "job/load", objects: []runtime.Object{suspended},
			verdict: "Job shop/load does not run because it is suspended.", remedy: "spec.suspend of Job shop/load"},
		{name: "the last job failed", object: "cronjob/nightly", log: "x",
			objects: []runtime.Object{nightly, job, failed,
				newNode("a")},
			verdict: "CronJob shop/nightly has no successful last job because the program of container app ends with " +
				"exit " +
				"code 127 (its command was not found).", remedy: "CronJob shop/nightly", step: "Its last job is load."},
		{name: "a suspended CronJob", object: "cj/nightly", objects: []runtime.Object{off},
			verdict: "CronJob shop/nightly starts no jobs because it is suspended.", remedy: `{"spec":{"suspend":false}}`},
		{name: "a time zone", object: "cj/nightly", objects: []runtime.Object{nightly, event("CronJob", "nightly",
			"UnknownTimeZone", `invalid timeZone: "Mars": unknown time zone Mars`)},
			verdict: `CronJob shop/nightly starts no jobs because invalid timeZone: "Mars": unknown time zone Mars.`,
			remedy:  "spec.timeZone of CronJob shop/nightly"},
		{name: "no metrics", object: "hpa/web", objects: []runtime.Object{scaler(autoscalingv2.ScalingActive, "False",
			"FailedGetResourceMetric", "unable to fetch metrics from resource metrics API (metrics.k8s.io)"), metrics},
			verdict: "HorizontalPodAutoscaler shop/web does not scale because the API service v1beta1.metrics.k8s.io " +
				"is not " +
				"available: no endpoints are ready.", remedy: "clusterctl why -n kube-system service/metrics-server"},
		{name: "no requests", object: "hpa/web", objects: []runtime.Object{scaler(autoscalingv2.ScalingActive, "False",
			"FailedGetResourceMetric", "failed to get cpu utilization: missing request for cpu in container app of "+
				"Pod x")},
			verdict: "HorizontalPodAutoscaler shop/web does not scale because a container of Deployment shop/web has " +
				"no " +
				"request for cpu, of which the target is a percentage.",
			remedy: "kubectl set resources -n shop deployment/web --requests=cpu=AMOUNT"},
		{name: "the maximum", object: "hpa/web", objects: []runtime.Object{scaler(autoscalingv2.ScalingLimited, "True",
			"TooManyReplicas", "")},
			verdict: "HorizontalPodAutoscaler shop/web does not scale up further because it wants more than its " +
				"maxReplicas " +
				"of 5.", remedy: "spec.maxReplicas"},
		{name: "no target", object: "hpa/web", objects: []runtime.Object{scaler(autoscalingv2.AbleToScale, "False",
			"FailedGetScale", `deployments.apps "web" not found`)},
			verdict: "HorizontalPodAutoscaler shop/web does not scale because its target Deployment shop/web cannot " +
				"be read: " +
				`deployments.apps "web" not found.`, remedy: "spec.scaleTargetRef"},
		{name: "a tight budget", object: "pdb/web", objects: []runtime.Object{budget, newPod("web", readyPod)},
			verdict: "PodDisruptionBudget shop/web allows no evictions because its minAvailable of 1 leaves no room: " +
				"1 pods " +
				"are healthy, and at least 1 must be.", remedy: "spec.minAvailable of PodDisruptionBudget shop/web"},
		{name: "a budget without pods", object: "pdb/web", objects: []runtime.Object{budget},
			verdict: "PodDisruptionBudget shop/web protects nothing because no pod matches its selector.",
			remedy:  "spec.selector"},
	} {
		t.Run(c.name, c.run)
	}
}
